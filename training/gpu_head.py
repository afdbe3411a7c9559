#!/usr/bin/env python3
"""A drafter head on one GPU within minutes: python3 training/gpu_head.py prompts ..., then gpu_head.py train ...

`prompts` makes user turns and writes them as the target's tokens; it needs aerie's Python package, but no GPU. `train` needs
PyTorch, but no engine: the target answers in PyTorch, and the head is trained on these answers without a file in between.
README.md beside this file ("On a GPU") says what to expect.
"""
import argparse
import json
import lzma
import random
import sys
import time
from io import BytesIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from headtrain.options import Defaults  # noqa: E402

# Numbers of prompts by group, of 1000 in all. turns-*: the target goes on from a beginning of starts.py; turns: from none.
SHARES = {"turns": 105, "turns-code": 125, "turns-short": 40, "turns-math": 30, "turns-talk": 95, "code": 30, "varied": 150,
          "chat": 40, "qa": 40, "math": 70, "short": 15, "translation": 110, "passage": 10, "summary": 60, "retrieval": 80}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=Defaults)
    steps = p.add_subparsers(dest="step", required=True)
    s = steps.add_parser("prompts", help="user turns as tokens, for `train`", formatter_class=Defaults)
    s.add_argument("-m", "--model", required=True, help="the target (GGUF)")
    s.add_argument("-o", "--output", required=True, help="the file to write (.npz.xz)")
    s.add_argument("--count", type=int, default=100000, help="prompts; fewer where templates repeat themselves")
    s.add_argument("--prompts", action="append", default=[], metavar="FILE",
                   help='your own: JSON lines with "text" or "prompt"')
    s.add_argument("--texts", action="append", default=[], metavar="DIR",
                   help="text and HTML files whose paragraphs are summarized and asked about, and whose sentences are "
                        "translated")
    s.add_argument("--hold-out", action="append", default=[], metavar="FILE", dest="held",
                   help="JSON lines with prompts that must not be trained on")
    s.add_argument("--test", action="append", default=[], metavar="FILE",
                   help="JSON lines with prompts that are answered and measured, but not trained on; the group is "
                        "the file's name")
    s.add_argument("--warm", type=float, default=0.1, help="share of the answers drawn at temperature 1; the rest are greedy")
    s.add_argument("--longest", type=int, default=448, help="tokens of a prompt at most")
    s.add_argument("--seed", type=int, default=1)
    t = steps.add_parser("train", help="answers, features and training on this machine's GPU", formatter_class=Defaults)
    t.add_argument("-m", "--model", required=True, help="the target (GGUF)")
    t.add_argument("-p", "--prompts", required=True, help="what `prompts` wrote")
    t.add_argument("-o", "--output", required=True, help="folder for checkpoint and log")
    t.add_argument("--start-from", metavar="HEAD.gguf", help="begin with the weights of a head written before")
    t.add_argument("--minutes", type=float, default=10, help="of the whole, from start to end")
    t.add_argument("--write-share", type=float, default=0.3, help="share of the minutes after which answers are cut off")
    t.add_argument("-n", "--tokens", type=int, default=256, help="longest answer")
    t.add_argument("-np", "--parallel", type=int, default=2048, help="answers written at once; fewer where memory wants it")
    t.add_argument("--taps", help="layers tapped, by what they take in (default: 2,L/2,L of L layers)")
    t.add_argument("--depths", type=int, default=5, help="steps unrolled")
    t.add_argument("--batch", type=int, default=8192, help="chains per step")
    t.add_argument("--lr", type=float, default=1.5e-3, help="highest learning rate of norms (Adam); of output rows 0.3 of it")
    t.add_argument("--lr-matrix", type=float, default=0.01, help="highest learning rate of the layer's matrices (Muon)")
    t.add_argument("--dropout", type=float, default=0.0)
    t.add_argument("--kinds", default="eagle3", help="what is trained on the same rows, one after another, each in a folder of "
                                                    "OUTPUT if there are several: eagle3, dspark, dflash")
    t.add_argument("--shares", help="of the training's time, one for each of the kinds (default: equal)")
    t.add_argument("--block", type=int, default=8, help="rows of a block drafter's block")
    t.add_argument("--anchors", type=int, default=48, help="blocks of a conversation in a step of a block drafter")
    t.add_argument("--draft-vocab", type=int,
                   help="tokens that can be drafted, those that the answers use most (default: those of --start-from, else "
                        "24576)")
    t.add_argument("--eval-every", type=float, default=1.0, help="minutes between two measurements, each with a checkpoint")
    t.add_argument("--rows", type=float, default=0.55, help="share of the free memory that rows may take")
    t.add_argument("--no-graphs", action="store_true", help="no CUDA graphs")
    t.add_argument("--no-kernel", action="store_true", help="no attention kernel of Triton")
    t.add_argument("--seed", type=int, default=1)
    t = steps.add_parser("taps", help="prints the layers that `train` taps by default, as aerie convert takes them")
    t.add_argument("-m", "--model", required=True, help="the target (GGUF)")
    return p.parse_args()


# ---- Prompts ------------------------------------------------------------------------------------------------


def texts_of(paths):
    from headtrain.engine import read_lines
    return [(o.get("prompt") or o["text"], float(o.get("temperature", 0.0)), o.get("group", Path(path).stem))
            for path in paths for o in read_lines(path)]


def write_prompts(args):
    import numpy as np
    from headtrain import prompts as made, starts
    try:
        import aerie
    except ImportError:
        raise SystemExit("gpu_head: aerie's Python package is missing: pip install ./bindings/python") from None
    rng = random.Random(args.seed)
    n = {g: args.count * share // 1000 for g, share in SHARES.items()}
    passages, sentences = [], {}
    if args.texts:
        passages, sentences = made.texts_from_files(rng, args.texts, max(300, args.count // 10), per_file=60)
    plain = {g: k for g, k in n.items() if not g.startswith("turns")}
    lines = made.make(args.seed, plain, passages=passages, warm=args.warm, sentences=sentences)
    lines += [{"group": g, "text": text, "temperature": warm} for text, warm, g in texts_of(args.prompts)]
    test = texts_of(args.test)
    lines = made.without(lines, args.held + args.test)
    with aerie.Model(args.model, vocab_only=True) as model:
        def tokens_of(text):
            return model.chat_tokens([{"role": "user", "content": text}])
        one, other = tokens_of("A"), tokens_of("B")
        after = next(i for i in range(1, len(one)) if one[-i] != other[-i]) - 1
        before = next(i for i in range(len(one)) if one[i] != other[i])
        rows = [(line["group"], tokens_of(line["text"]), line["temperature"], 0) for line in lines]
        rows += [(f"test-{g}", tokens_of(text), 0.0, 1) for text, _, g in test]
        for group in [g for g in n if g.startswith("turns")]:
            for i in range(n[group]):
                text = starts.make(rng, group) if group in starts.GROUPS else ""
                ids = tokens_of(text or "A")
                rows.append((group, ids[:len(ids) - after - (0 if text else 1)], 0.8 if i % 4 else 1.0, 2))
        held = [tokens_of(text)[before:-after] for text, _, _ in texts_of(args.held) + test]
    rows = [r for r in rows if len(r[1]) <= args.longest]
    groups = sorted({r[0] for r in rows})
    about = {"groups": groups, "after": one[len(one) - after:], "warm": args.warm, "held": held, "seed": args.seed}
    data = BytesIO()
    np.savez(data, tokens=np.concatenate([np.array(r[1], dtype=np.uint32) for r in rows]).astype(
        np.uint16 if max(max(r[1]) for r in rows) < 1 << 16 else np.uint32),
        size=np.array([len(r[1]) for r in rows], dtype=np.uint16), group=np.array([groups.index(r[0]) for r in rows],
                                                                                  dtype=np.uint8),
        temperature=np.array([r[2] for r in rows], dtype=np.float16), kind=np.array([r[3] for r in rows], dtype=np.uint8),
        about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8))
    Path(args.output).write_bytes(lzma.compress(data.getvalue(), preset=6))
    for g in groups:
        of = [len(r[1]) for r in rows if r[0] == g]
        print(f"{g}: {len(of)} prompts, {sum(of) / len(of):.0f} tokens on average")
    print(f"{args.output}: {len(rows)} prompts, {Path(args.output).stat().st_size / 1e6:.1f} MB")


def read_prompts(path):
    """(list of dicts with group, tokens, temperature, test, start; about)"""
    import numpy as np
    raw = Path(path).read_bytes()
    data = np.load(BytesIO(lzma.decompress(raw) if str(path).endswith(".xz") else raw))
    about = json.loads(bytes(data["about"]))
    tokens, ends = data["tokens"].astype(np.int64), data["size"].astype(np.int64).cumsum()
    warm, kind, group = data["temperature"].tolist(), data["kind"].tolist(), data["group"].tolist()
    made, at = [], 0
    for i, end in enumerate(ends.tolist()):
        made.append({"group": about["groups"][group[i]], "tokens": tokens[at:end], "temperature": warm[i], "test": kind[i] == 1,
                     "start": kind[i] == 2})
        at = end
    return made, about


# ---- Training -----------------------------------------------------------------------------------------------


class Held:
    """Runs of seven tokens that occur in only one held-out prompt: turns that the target makes up must not contain them."""
    RUN = 7

    def __init__(self, prompts):
        import numpy as np
        runs = [np.unique(self.runs(p)) for p in prompts]
        values, counts = np.unique(np.concatenate(runs or [np.zeros(0, dtype=np.uint64)]), return_counts=True)
        self.held = values[counts == 1]

    def runs(self, tokens):
        """A number for each run."""
        import numpy as np
        x = np.asarray(tokens, dtype=np.uint64)
        n = max(len(x) - self.RUN + 1, 0)
        total = np.zeros(n, dtype=np.uint64)
        for k in range(self.RUN):
            total = total * np.uint64(0x9E3779B97F4A7C15) + x[k:k + n] + np.uint64(1)
        return total

    def which(self, items):
        """Returns for each array of tokens whether it contains such a run: [n]."""
        import numpy as np
        gap = np.full(self.RUN, 1 << 40, dtype=np.uint64)  # no run goes from one array into the next
        flat = np.concatenate([part for x in items for part in (np.asarray(x, dtype=np.uint64), gap)])
        ends = np.array([len(x) + self.RUN for x in items]).cumsum()
        hits = np.flatnonzero(np.isin(self.runs(flat), self.held))
        found = np.zeros(len(items), dtype=bool)
        found[np.searchsorted(ends, hits, side="right")] = True
        return found


def usual_taps(layers):
    return sorted({min(2, layers - 1), layers // 2, layers})


def kinds_of(args):
    """[(kind, share of the time)]"""
    kinds = args.kinds.split(",")
    try:
        shares = [float(s) for s in args.shares.split(",")] if args.shares else [1.0] * len(kinds)
    except ValueError:
        raise SystemExit(f"gpu_head: --shares {args.shares}: numbers are wanted, one for each of --kinds") from None
    if not set(kinds) <= {"eagle3", "dspark", "dflash"} or len(set(kinds)) < len(kinds):
        raise SystemExit(f"gpu_head: --kinds {args.kinds}: eagle3, dspark and dflash are possible, each once")
    if len(shares) != len(kinds) or min(shares) <= 0:
        raise SystemExit(f"gpu_head: --shares {args.shares}: one above 0 is wanted for each of {args.kinds}")
    if not 1 <= args.block <= 32 or args.anchors < 1:
        raise SystemExit("gpu_head: --block is 1 to 32, --anchors 1 or more")
    return list(zip(kinds, shares))


class Job:
    def __init__(self, args, say=None):
        import torch

        from headtrain import target as target_file
        self.args, self.begun = args, time.monotonic()
        self.out = Path(args.output)
        self.out.mkdir(parents=True, exist_ok=True)
        self.said = open(self.out / "log.txt", "a", encoding="utf-8")
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.set_float32_matmul_precision("high")
        torch.backends.cuda.enable_cudnn_sdp(False)  # otherwise it plans again for each shape
        torch.manual_seed(args.seed)
        self.say(f"device: {torch.cuda.get_device_name() if self.device.type == 'cuda' else 'cpu'}, torch {torch.__version__}")
        self.target = target_file.read(args.model)
        self.taps = [int(t) for t in args.taps.split(",")] if args.taps else usual_taps(self.target.n_layers)
        self.kinds = kinds_of(args)
        self.prompts, self.about = read_prompts(args.prompts)
        self.llama = self.load()
        self.say(f"{len(self.prompts)} prompts; target loaded")

    def say(self, text):
        line = f"{time.strftime('%H:%M:%S')} {time.monotonic() - self.begun:6.1f} s  {text}"
        print(line, flush=True)
        self.said.write(line + "\n")
        self.said.flush()

    def load(self):
        """Loads the target in float16 if it then chooses the same tokens as in float32, else in bfloat16."""
        import torch

        from headtrain.llama import Llama
        exact = Llama(self.args.model, self.target, self.taps, self.device)
        if self.device.type == "cpu":
            return exact.cast(torch.bfloat16)
        some = sorted((p["tokens"] for p in self.prompts[:4000] if not p["start"]), key=len)[-64:]
        size = min(len(p) for p in some)
        tokens = torch.stack([torch.from_numpy(p[:size]) for p in some]).to(self.device)
        want = exact.logits(exact.whole(tokens)[0]).argmax(-1)
        best = None
        for dtype in (torch.float16, torch.bfloat16):
            got = exact.cast(dtype)
            logits = got.logits(got.whole(tokens)[0])
            same = (logits.argmax(-1) == want).float().mean().item() if logits.isfinite().all() else 0.0
            self.say(f"{dtype}: chooses as float32 in {100 * same:.2f}% of {tokens.numel()} places")
            if same > 0.97:
                return got
            best = best or (got if same > 0.9 else None)
        return best or exact

    def writer(self, n, graphs=True):
        import torch

        from headtrain.llama import Writer
        longest = max(len(p["tokens"]) for p in self.prompts) + self.args.tokens + 1
        longest = min((longest + 63) // 64 * 64, self.target.n_ctx)
        t = self.target
        size = 2 * t.n_layers * t.n_kv_heads * t.head_dim * longest * self.llama.embedding.element_size()
        if self.device.type == "cuda":
            free = torch.cuda.mem_get_info()[0]
            n = max(16, min(n, int(0.6 * free / size) // 16 * 16))
        self.say(f"{n} places of {longest} tokens: {n * size / 2 ** 30:.1f} GiB")
        return Writer(self.llama, n, longest, self.target.ends, self.args.tokens, graphs and not self.args.no_graphs,
                      not self.args.no_kernel, self.say)

    def turns(self, writer, starts, most=128, until=None):
        """User turns that the target makes up: prompts with what comes after them."""
        starts = random.Random(self.args.seed).sample(starts, len(starts))
        import numpy as np
        writer.most, begun = most, time.monotonic()
        got = list(writer.write([s["tokens"] for s in starts], [s["temperature"] for s in starts], until))
        spent = time.monotonic() - begun
        whole = {}
        for i, answer, ended in got:
            if ended and 2 <= len(answer) < most - 1:
                tokens = np.concatenate((starts[i]["tokens"], answer))
                whole.setdefault(tokens.tobytes(), (starts[i]["group"], tokens))
        rng, made = random.Random(self.about["seed"]), []
        held = Held(self.about["held"]).which([tokens for _, tokens in whole.values()]) if whole else []
        for bad, (group, tokens) in zip(held, whole.values()):
            if not bad:
                made.append({"group": group, "tokens": np.concatenate((tokens, self.about["after"])), "test": False,
                             "temperature": 1.0 if rng.random() < self.about["warm"] else 0.0})
        n = sum(len(answer) for _, answer, _ in got)
        self.say(f"{len(made)} turns from {len(starts)} beginnings, {sum(held)} of them held out, {n} tokens, "
                 f"{n / max(spent, 1e-3):.0f} tokens/s")
        return made

    def in_order(self, prompts):
        """Tests, then all in eight parts alike, long ones first in each: the cache is read as far as the longest reaches."""
        rng = random.Random(self.args.seed)
        rest = [p for p in prompts if not p["test"]]
        rng.shuffle(rest)
        tests = [p for p in prompts if p["test"]]
        part = (len(rest) + 7) // 8
        parts = [rest[i:i + part] for i in range(0, len(rest), part)] if rest else []
        return tests + [p for x in parts for p in sorted(x, key=lambda p: -((len(p["tokens"]) + 63) // 64))]

    def answers(self, writer, prompts, until):
        """{number: ids}; most rows that memory has room for end it early."""
        import torch
        writer.most = self.args.tokens
        got, n, begun, said = {}, 0, time.monotonic(), time.monotonic()
        for i, answer, ended in writer.write([p["tokens"] for p in prompts], [p["temperature"] for p in prompts], until):
            got[i] = answer
            n += len(answer)
            if time.monotonic() - said > 15:
                said = time.monotonic()
                self.say(f"answers: {len(got)} of {len(prompts)}, {n} tokens, {n / (said - begun):.0f} tokens/s")
        spent = time.monotonic() - begun
        self.say(f"{len(got)} answers of {len(prompts)} prompts, {n} tokens in {spent:.1f} s, {n / spent:.0f} tokens/s, "
                 f"graphs {bool(writer.graphs)}, attention kernel {bool(writer.attend)}")
        if self.device.type == "cuda":
            self.say(f"{torch.cuda.max_memory_allocated() / 2 ** 30:.1f} GiB at most")
        return got

    def store(self, items):
        """Stores as many conversations as fit, and all tests."""
        import torch

        from headtrain.gpu import Store
        wide = len(self.taps) * self.target.n_embd
        free = torch.cuda.mem_get_info()[0] if self.device.type == "cuda" else 1 << 33
        most = int(self.args.rows * free / (wide * (1 + 2 / 32) + 110))
        items, n, kept = sorted(items, key=lambda c: not c.test), 0, []
        for c in items:
            n += len(c)
            if n > most and not c.test:
                self.say(f"memory for {most} rows: {len(kept)} of {len(items)} conversations")
                break
            kept.append(c)
        return Store(self.llama, kept, room=self.args.rows, say=self.say)

    def head(self, items):
        import torch

        from headtrain import resume
        from headtrain.features import count_tokens, draft_vocabulary
        from headtrain.head import Head
        from headtrain.widen import exchange
        t = self.target
        size = self.args.draft_vocab or (0 if self.args.start_from else 24576)
        uses = count_tokens((c.tokens[c.n_prompt:] for c in items if not c.test), t.n_vocab)
        ids, covered = draft_vocabulary(uses, size, t.ends)
        if self.args.start_from:
            shape, state = resume.read(self.args.start_from, self.taps)
            if size:
                before = uses[state["d2t"].numpy()].sum() / max(uses.sum(), 1)
                shape, state, fresh = exchange(shape, state, ids, uses, torch.tensor(t.output))
                self.say(f"draft vocabulary: {len(ids)}, {fresh} of them new, {100 * covered:.2f}% of the answers, "
                         f"{100 * before:.2f}% before")
            head = Head(shape, torch.tensor(t.embedding), state["d2t"])
            head.load_state_dict(state)
            return head
        self.say(f"draft vocabulary: {len(ids)} of {t.n_vocab} tokens, {100 * covered:.2f}% of the answers")
        shape = dict(n_embd=t.n_embd, n_target_embd=t.n_embd, n_taps=len(self.taps), n_heads=t.n_heads, n_kv_heads=t.n_heads,
                     head_dim=t.head_dim, n_ff=t.n_ff * 4 // 3, n_draft=len(ids), eps=t.eps, rope_theta=t.rope_theta)
        head = Head(shape, torch.tensor(t.embedding), torch.from_numpy(ids))
        head.start_from(torch.tensor(t.output), torch.tensor(t.output_norm), len(self.taps) - 1)
        return head

    def block_head(self, store, kind):
        """A new block drafter for the conversations of a store."""
        import torch

        from headtrain import block_run
        from headtrain.block import BlockHead
        from headtrain.features import count_tokens, draft_vocabulary
        t, trained = self.target, [c for c in store.items if not c.test]
        uses = count_tokens((c.tokens[c.n_prompt:] for c in trained), t.n_vocab)
        ids, _ = draft_vocabulary(uses, self.args.draft_vocab or 24576, t.ends)
        mask = block_run.spare_token(count_tokens((c.tokens for c in store.items), t.n_vocab), -1, t.n_vocab)
        shape = dict(n_embd=t.n_embd, n_target_embd=t.n_embd, n_taps=len(self.taps), n_layers=2, n_heads=t.n_heads,
                     n_kv_heads=t.n_heads, head_dim=t.head_dim, n_ff=t.n_ff, n_draft=len(ids), n_block=self.args.block,
                     n_markov=64 if kind == "dspark" else 0, mask=mask, eps=t.eps, rope_theta=t.rope_theta)
        head = BlockHead(shape, torch.tensor(t.embedding), torch.from_numpy(ids))
        head.start_from(torch.tensor(t.output), torch.tensor(t.output_norm), len(self.taps) - 1)
        rows = torch.arange(min(len(store.tokens), 4096), device=self.device)
        head.to(self.device).point(store.features(rows), store.tokens[rows])
        return head

    def run_of(self, kind, out, store, reported=None):
        from headtrain import block_gpu, gpu
        options = self.options(out, kind)
        if kind == "eagle3":
            return gpu.Run(options, self.target, self.head(store.items), store, say=self.say, reported=reported)
        return block_gpu.Run(options, self.target, self.block_head(store, kind), store, say=self.say, reported=reported)

    def options(self, out, kind="eagle3"):
        from headtrain import block_gpu
        from headtrain.gpu import Options
        a = self.args
        if kind != "eagle3":
            return block_gpu.Options(model=a.model, kind=kind, out=str(out), taps=self.taps, depths=a.block, anchors=a.anchors,
                                     dropout=a.dropout, lr=a.lr, lr_matrix=a.lr_matrix, batch_rows=a.batch, seed=a.seed,
                                     eval_every=a.eval_every)
        return Options(model=a.model, out=str(out), taps=self.taps, depths=a.depths, dropout=a.dropout, lr=a.lr,
                       lr_matrix=a.lr_matrix, batch_rows=a.batch, seed=a.seed, eval_every=a.eval_every)

    def rehearse(self):
        """Runs all steps on a tiny example, so that anything that cannot work here fails at once."""
        from headtrain import gpu
        (self.out / "rehearsal").mkdir(exist_ok=True)
        begun = time.monotonic()
        n = 96 if self.device.type == "cuda" else 12
        writer = self.writer(n * 2 // 3)
        rng = random.Random(0)
        some = rng.sample(self.prompts, min(n, len(self.prompts)))
        turns = self.turns(writer, [p for p in some if p["start"]], 24)
        some = [p for p in some if not p["start"]] + turns
        writer.most = 32
        got = {i: a for i, a, _ in writer.write([p["tokens"] for p in some], [p["temperature"] for p in some])}
        graphs = writer.graphs
        del writer
        items = gpu.conversations(some, got, self.device)
        for i, c in enumerate(items):
            c.test, c.greedy = i % 4 == 0, True
        store = gpu.Store(self.llama, items, eight_bits=True, say=self.say)
        for kind, _ in self.kinds:
            run = self.run_of(kind, self.out / "rehearsal", store)
            run.o.batch_rows, run.o.eval_most = min(2048, run.o.batch_rows), 4
            run.run(time.monotonic() + 2)
        self.say(f"rehearsed in {time.monotonic() - begun:.1f} s")
        return graphs

    def go(self, reported=None):
        import gc

        import torch

        from headtrain import checkpoint, gpu
        a = self.args
        graphs = self.rehearse()
        writer = self.writer(a.parallel, graphs)
        until = self.begun + 60 * a.minutes * a.write_share
        prompts = [p for p in self.prompts if not p["start"]]
        prompts += self.turns(writer, [p for p in self.prompts if p["start"]], until=(2 * time.monotonic() + until) / 3)
        prompts = self.in_order(prompts)
        got = self.answers(writer, prompts, until)
        del writer
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        items = gpu.conversations(prompts, got, self.device)
        del got, prompts
        store = self.store(items)
        del items
        until, run = self.begun + 60 * a.minutes - 4, None
        for i, (kind, share) in enumerate(self.kinds):
            out = self.out if len(self.kinds) == 1 else self.out / kind
            out.mkdir(parents=True, exist_ok=True)
            begun = time.monotonic()
            run = None  # its memory
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            run = self.run_of(kind, out, store, reported)
            run.run(begun + max(until - begun, 1) * share / sum(s for _, s in self.kinds[i:]))
            checkpoint.export(out / "checkpoint.pt", out / "checkpoint", self.target)
            self.say(f"{kind} is written")
        self.say("done")
        return run


def main():
    args = arguments()
    if args.step == "prompts":
        write_prompts(args)
        return
    if args.step == "taps":
        from headtrain import target
        if not Path(args.model).is_file():
            raise SystemExit(f"gpu_head: there is no file '{args.model}'")
        print(",".join(map(str, usual_taps(target.read(args.model).n_layers))))
        return
    for path in filter(None, (args.model, args.prompts, args.start_from)):
        if not Path(path).is_file():
            raise SystemExit(f"gpu_head: there is no file '{path}'")
    Job(args).go()


if __name__ == "__main__":
    main()
