#!/usr/bin/env python3
"""From a GGUF target to a drafter head, a block drafter or an MTP block, in one command:

    python3 training/train_head.py -m target.gguf -o head.gguf

README.md beside this file describes the steps, the formats and what to expect. What a run leaves in --work lets the
next one go on where it was stopped.
"""
import argparse
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from headtrain.options import Defaults  # noqa: E402


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=Defaults)
    p.add_argument("-m", "--model", required=True, help="the target (GGUF)")
    p.add_argument("-o", "--output", required=True, help="the head to write (GGUF)")
    p.add_argument("--kind", choices=("eagle3", "dspark", "dflash", "mtp"), default="eagle3",
                   help="an EAGLE-3.1 head; a block drafter, DSpark or DFlash; or an MTP block: a layer of the target's shape, "
                        "which has none of its own output rows")
    p.add_argument("--whole", metavar="FILE", help="mtp: also write a copy of the target with the block in it")
    p.add_argument("--work", help="folder for data and checkpoints (default: the output's name with .work)")
    p.add_argument("--aerie", help="the program (default: build/aerie beside this folder, or the one on the PATH)")
    data = p.add_argument_group("data")
    data.add_argument("--turns", type=int, default=3000, help="user turns that the target makes up")
    data.add_argument("--templates", type=int, default=5000,
                      help="English prompts from templates: chat, questions, mathematics, translation, summary, retrieval, "
                           "code, short questions; 0: none")
    data.add_argument("--prompts", action="append", default=[], metavar="FILE",
                      help='your own: JSON lines with "text" or "messages"; a .txt file has one on each line')
    data.add_argument("--texts", action="append", default=[], metavar="DIR",
                      help="text and HTML files whose paragraphs are summarized and asked about, and whose sentences are "
                           "translated, too")
    data.add_argument("--hold-out", action="append", default=[], metavar="FILE", dest="held",
                      help="JSON lines with prompts that must not be used")
    data.add_argument("--warm", type=float, default=0.1,
                      help="share of the answers drawn at temperature 1; the rest are greedy")
    data.add_argument("-n", "--tokens", type=int, default=256, help="longest answer")
    data.add_argument("-c", "--context", type=int, default=1024, help="longest conversation")
    data.add_argument("-np", "--parallel", type=int, default=40, help="answers generated at once by each process")
    data.add_argument("--jobs", type=int, default=0, help="engine processes side by side; 0: one per core")
    data.add_argument("--taps",
                      help="layers tapped, by what they take in: 0 to L, L being after the last (default: 2,L/2,L of L layers)")
    data.add_argument("--likely", type=int, default=16, help="next tokens kept of the target's distribution")
    head = p.add_argument_group("head")
    head.add_argument("--draft-vocab", type=int, default=24576, help="tokens that can be drafted")
    head.add_argument("--kv-heads", type=int, default=0,
                      help="key and value heads; 0: as many as the target has query heads (mtp: the target's)")
    head.add_argument("--ffn", type=int, default=0,
                      help="width of the feed-forward part; 0: that of the target, for eagle3 a third more (mtp: the target's)")
    head.add_argument("--layers", type=int, default=2, help="layers of a block drafter")
    head.add_argument("--block", type=int, default=8, help="rows of a block drafter's block: how far ahead it drafts")
    head.add_argument("--markov-rank", type=int, default=64, help="dspark: rank of what the token before adds to the logits")
    head.add_argument("--mask-token", type=int, default=-1,
                      help="block drafters: token that stands for what is to be foreseen; -1: one that the data does not use")
    head.add_argument("--target-output", action="store_true",
                      help="block drafters: the target's output rows, as they are, in place of own ones")
    head.add_argument("--name", help="the head's name in its file (default: the output's file name without .gguf)")
    head.add_argument("--type", default="Q5_0", help="tensor type of the written head; F16: as converted")
    head.add_argument("--output-type",
                      help="of its output rows, the most of it with a large draft vocabulary (default: q5_1 with --type Q5_0, "
                      "else the same type)")
    train = p.add_argument_group("training")
    train.add_argument("--minutes", type=float, default=60, help="how long to train; 0: until --epochs")
    train.add_argument("--start-from", metavar="HEAD.gguf",
                       help="begin with the weights of a head written before, where there is no checkpoint yet (eagle3)")
    train.add_argument("--epochs", type=float, default=8, help="passes over the data at most")
    train.add_argument("--depths", type=int, default=5, help="steps unrolled: how far ahead the head learns to draft")
    train.add_argument("--anchors", type=int, default=64,
                       help="block drafters: blocks of a conversation that a visit trains on, drawn at random; 0: all")
    train.add_argument("--ce", type=float, default=0.1, help="dspark: weight of the cross-entropy with the true tokens")
    train.add_argument("--l1", type=float, default=0.9, help="dspark: weight of the distance to the target's distribution")
    train.add_argument("--block-decay", type=float, default=4.0,
                       help="block drafters: the row at depth k (from 0) counts exp(-k / this)")
    train.add_argument("--lr", type=float, default=1.5e-3,
                       help="highest learning rate of norms (Adam); of output rows 0.3 of it")
    train.add_argument("--lr-matrix", type=float, default=0.01, help="highest learning rate of the layer's matrices (Muon)")
    train.add_argument("--batch", type=int, default=512, help="chains per step and process")
    train.add_argument("--ce-share", type=float, default=0.5,
                       help="share of the rows beyond the first depth that the cross-entropy is computed for")
    train.add_argument("--common", type=int, default=8192,
                       help="draft ids whose output rows are in every step; the others' are drawn, --rare in each")
    train.add_argument("--rare", type=int, default=4096, help="see --common")
    train.add_argument("--eval-every", type=float, default=5,
                       help="minutes between two lines of the log, each with a checkpoint")
    train.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def find_program(given):
    beside = Path(__file__).resolve().parent.parent / "build" / "aerie"
    found = given or (str(beside) if beside.exists() else shutil.which("aerie"))
    if not found:
        raise SystemExit(
            "train_head: the program 'aerie' is neither in build/ nor on the PATH; build it, or say where it is "
            "by --aerie FILE")
    return found


def own_prompts(paths, warm, seed):
    import random

    from headtrain.engine import read_lines
    rng, made = random.Random(seed), []
    for path in paths:
        if path.endswith(".txt"):
            lines = [{"text": t} for t in Path(path).read_text(encoding="utf-8").splitlines() if t.strip()]
        else:
            lines = read_lines(path)
        for i, line in enumerate(lines):
            made.append({"group": "own", "temperature": 1.0 if rng.random() < warm else 0.0, "seed": i, **line,
                         "id": f"own-{len(made)}"})
    return made


def passages_of(answers):
    """Paragraphs that the target wrote, 280 to 900 characters, ending with a sentence."""
    from headtrain.engine import read_lines
    found = []
    for path in answers:
        for o in read_lines(path):
            if o.get("group") != "passage" or o["looped"]:
                continue
            for part in o["answer"].split("\n\n"):
                text = " ".join(part.split())[:900]
                text = text[:text.rfind(".") + 1]
                if len(text) >= 280:
                    found.append(text)
    return found


def make_answers(args, engine, work, taps):
    """Files of answers, and of their features."""
    import random

    from headtrain import prompts
    turns = engine.turns(work, args.turns, 128, args.parallel, args.seed) if args.turns else []
    n = args.templates
    passages, sentences = prompts.texts_from_files(random.Random(args.seed), args.texts,
                                                   max(300, n // 5)) if args.texts else ([], {})
    first = prompts.make(1, {"turns": len(turns), "chat": n // 8, "qa": n // 10, "translation": n // 8, "math": n // 10,
                             "code": n // 6,
                             "short": n // 10, "passage": n // 10, "varied": n // 3}, turns, warm=args.warm,
                         sentences=sentences)
    first = prompts.without(first, args.held) + own_prompts(args.prompts, args.warm, args.seed)
    if not first:
        raise SystemExit("train_head: nothing to answer: give --turns, --templates or --prompts")
    answers, features = engine.answers(work, "1", first, args.tokens, args.parallel, args.seed, taps, args.likely)
    passages += passages_of(answers) if n else []
    if passages and n:
        second = prompts.without(prompts.make(2, {"summary": n // 8, "retrieval": n // 8}, passages=passages, warm=args.warm),
                                 args.held)
        more = engine.answers(work, "2", second, args.tokens, args.parallel, args.seed, taps, args.likely)
        answers, features = answers + more[0], features + more[1]
    return answers, features


def check_mtp(args, target):
    """Refuses options that an MTP block does not support, before any work."""
    from headtrain import nextn
    if target.arch not in nextn.ARCHITECTURES:
        raise SystemExit(
            f"train_head: --kind mtp trains blocks for {' and '.join(nextn.ARCHITECTURES)}; {args.model} is of {target.arch}")
    if args.type.upper() not in nextn.TYPES:
        raise SystemExit(
            f"train_head: --type {args.type} is none that an MTP block is written in; {', '.join(nextn.TYPES)} are")
    for option, given in (("--start-from", args.start_from),
                          ("--ffn", args.ffn), ("--kv-heads", args.kv_heads), ("--taps", args.taps),
                          ("--output-type", args.output_type)):
        if given:
            raise SystemExit(f"train_head: {option} is of the other kinds; an MTP block has the target's shape")


def check_block(args):
    """Refuses options that a block drafter does not support, before any work."""
    if args.start_from:
        raise SystemExit("train_head: --start-from is of --kind eagle3; a block drafter goes on from its --work alone")
    for option, value, least, most in (("--layers", args.layers, 1, 8), ("--block", args.block, 1, 32),
                                       ("--markov-rank", args.markov_rank, 1, 4096), ("--anchors", args.anchors, 0, 1 << 20)):
        if not least <= value <= most:
            raise SystemExit(f"train_head: {option} {value}: {least} to {most} are possible")
    if args.ce < 0 or args.l1 < 0 or args.ce + args.l1 <= 0 or args.block_decay <= 0:
        raise SystemExit("train_head: --ce and --l1 cannot be negative nor both 0, and --block-decay is more than 0")


def write_head(args, engine, run, work, target, taps):
    """checkpoint.pt -> a checkpoint as Hugging Face has them -> GGUF -> quantized."""
    from headtrain import checkpoint
    name, saved, block = args.name or Path(args.output).stem, work / "checkpoint", args.kind != "eagle3"
    checkpoint.export(run / "checkpoint.pt", saved, target, not args.target_output)
    full = str(work / "head-f16.gguf") if args.type.upper() != "F16" else args.output
    reading = [] if block else ["--producer", "official", "--taps", ",".join(map(str, taps)), "--feedback", "post",
                                "--norm-before-residual", "off"]
    engine.call("convert", saved, "-o", full, "--target", args.model, "--outtype", "f16", "--name", name, *reading)
    if full != args.output:
        output_type = args.output_type or ("q5_1" if args.type.upper() == "Q5_0" else None)
        engine.call("quantize", full, args.output, args.type, *(["--output-tensor-type", output_type] if output_type else []))
    print(f"{args.output}: {Path(args.output).stat().st_size / 1e6:.1f} MB; use it as: aerie run -m {args.model} -md "
          f"{args.output} --spec-type draft-{args.kind}")


def main():
    args = arguments()
    if args.whole and args.kind != "mtp":
        raise SystemExit("train_head: --whole is of --kind mtp; an EAGLE head is always a file of its own")
    program = find_program(args.aerie)
    work = Path(args.work or args.output + ".work")
    if not Path(args.model).is_file():
        raise SystemExit(f"train_head: there is no target '{args.model}'")
    try:
        from headtrain import target as target_file, train
        from headtrain.engine import Engine
        from headtrain.plot import plot
    except ImportError as missing:
        raise SystemExit(f"train_head: {missing}; training/README.md begins with what to install") from None
    work.mkdir(parents=True, exist_ok=True)
    target = target_file.read(args.model)
    layers = target.n_layers
    mtp = args.kind == "mtp"
    if args.start_from and not Path(args.start_from).is_file():
        raise SystemExit(f"train_head: there is no head '{args.start_from}'")
    if mtp:
        check_mtp(args, target)
    block = args.kind in ("dspark", "dflash")
    if block:
        check_block(args)
    taps = [int(t) for t in args.taps.split(",")] if args.taps else sorted({min(2, layers - 1), layers // 2, layers})
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    engine = Engine(program, args.model, args.jobs or cores, args.context)

    if mtp:
        taps = [layers]
    answers, features = make_answers(args, engine, work, taps if layers in taps else taps + [layers])
    run = work / "run"
    train.train(train.Options(
        model=args.model, kind=args.kind, features=[str(f) for f in features], answers=[str(a) for a in answers], out=str(run),
        start=args.start_from or "", taps=taps,
        n_draft=args.draft_vocab, n_ff=target.n_ff if mtp else args.ffn or (target.n_ff if block else target.n_ff * 4 // 3),
        n_kv_heads=target.n_kv_heads if mtp else args.kv_heads, depths=args.block if block else args.depths, lr=args.lr,
        lr_matrix=args.lr_matrix, layers=args.layers, markov=args.markov_rank, mask=args.mask_token,
        own_output=not args.target_output, anchors=args.anchors, block_decay=args.block_decay, ce=args.ce, l1=args.l1,
        batch_rows=args.batch,
        ce_share=args.ce_share, n_common=args.common, n_rare=args.rare, minutes=args.minutes, epochs=args.epochs,
        eval_every=args.eval_every, seed=args.seed))
    plot(run / "log.csv", run / "log.png")

    if mtp:
        name = args.name or Path(args.output).stem
        from headtrain import nextn
        nextn.write(run / "checkpoint.pt", args.model, args.output, name, args.type, whole=False)
        if args.whole:
            nextn.write(run / "checkpoint.pt", args.model, args.whole, name, args.type, whole=True)
        print(f"{args.output}: {Path(args.output).stat().st_size / 1e6:.1f} MB; use it as: aerie run -m {args.model} -md "
              f"{args.output} --spec-type draft-mtp")
        return

    write_head(args, engine, run, work, target, taps)


if __name__ == "__main__":
    main()
