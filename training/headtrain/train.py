"""The training loop: on a GPU, or on a CPU by one process per core that average their gradients.

Owns: batches, schedule, optimizer, checkpoints (resumable), the log (CSV) of loss and acceptance. The length of a run
is given in minutes or in passes over the data, whichever comes first; the learning rate follows its progress, so that a
run on a busy machine ends well all the same.
"""
import contextlib
import csv
import json
import math
import os
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist

from . import evaluate, pointing, resume, target as target_file
from .features import Corpus, common_prefix, count_tokens, draft_vocabulary
from .head import KINDS, Batch, round_up, unroll
from .muon import Muon
from .loss import SoftCrossEntropy, Tail, closeness, draft_targets
from .widen import widen


@dataclass
class Options:
    model: str = ""
    kind: str = "eagle3"      # of head.KINDS or block_run.KINDS
    features: list = field(default_factory=list)
    answers: list = field(default_factory=list)  # JSON lines with groups and temperatures of the conversations
    out: str = ""             # folder of checkpoints and log
    start: str = ""           # a written head to begin with (resume.py), where there is no checkpoint yet
    taps: list = field(default_factory=list)     # of those in the features file; empty: all
    n_draft: int = 8192
    n_ff: int = 2048
    n_kv_heads: int = 0       # 0: as many as query heads, so that a token reaches the output through enough values
    depths: int = 5
    stay: float = 0.5         # share of the run with two depths unrolled, which is cheaper
    grow: float = 0.8         # share of the run after which all depths are
    decay: float = 0.8        # weight of a depth relative to the one before
    shares: list = field(default_factory=list)   # share of the chains that goes on at each depth; empty: all
    dropout: float = 0.1
    prompts: float = 1.0      # share of the rows of the users' turns that begin chains, too
    n_common: int = 0         # draft ids that the cross-entropy always has rows of; 0: all
    n_rare: int = 4096        # of the others, rows drawn for each step
    ce_share: float = 1.0     # share of the rows beyond the first depth whose cross-entropy is computed
    layers: int = 2           # of a block drafter; its block has `depths` rows
    markov: int = 64          # DSpark: rank of what the token before adds to the logits
    mask: int = -1            # block drafters: the token that masks stand for; -1: one that the data does not use
    own_output: bool = True   # block drafters: output rows of their own, else the target's
    anchors: int = 64         # blocks drawn of a conversation at a visit; 0: all
    block_decay: float = 4.0  # a row's weight is exp(-depth / this)
    ce: float = 0.1           # DSpark: weight of the cross-entropy
    l1: float = 0.9           # and of the distance to the target's distribution
    close: float = 0.2        # weight of closeness to the target's rows at the start, falling to 0 at the end
    lr: float = 1e-3
    lr_output: float = 0.3    # of the output rows, relative
    lr_matrix: float = 0.01   # of the layer's matrices, by Muon
    weight_decay: float = 0.01
    batch_rows: int = 1024    # chains per step and worker
    grid: int = 64            # numbers of rows are multiples of this (head.Batch)
    minutes: float = 0.0
    epochs: float = 4.0
    hold_out: float = 0.02
    seed: int = 1
    workers: int = 0          # 0: a process per core on a CPU, one on a GPU
    eval_every: float = 5.0   # minutes
    eval_most: int = 60       # conversations
    threads: int = 0          # of a process; 0: one, or a thread per core if there is one process only


def batches(corpus, chosen, rows, rng):
    """Lists of indices of about `rows` chains, conversations of similar length together, in random order."""
    order = list(chosen)
    made = []
    for at in range(0, len(order), 256):
        part = sorted(order[at:at + 256], key=lambda i: corpus.size(i)[0])
        batch, n = [], 0
        for i in part:
            batch.append(i)
            n += corpus.size(i)[0] - corpus.size(i)[1]
            if n >= rows:
                made.append(batch)
                batch, n = [], 0
        if batch:
            made.append(batch)
    rng.shuffle(made)
    return made


def is_held(name, share, seed):
    """By id, so that more data later does not move a conversation to the other side."""
    return random.Random(f"{seed}/{name}").random() < share


def describe(paths):
    """id -> (group, temperature, ids of the answer), from the files of answers."""
    known = {}
    for path in paths:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            o = json.loads(line)
            known[o["id"]] = (o.get("group", "other"), float(o.get("temperature", 0.0)), o["tokens"][o["n_prompt"]:])
    return known


def shares_of(speeds):
    """The share of a step's rows that each worker takes, from rows per second: cores that other programs use are slower, and
    a step waits for the slowest worker. Speeds count as a third of their mean at least and thrice at most; 0: not measured
    yet."""
    if not all(speeds):
        return [1 / len(speeds)] * len(speeds)
    mean = sum(speeds) / len(speeds)
    clamped = [min(max(s, mean / 3), mean * 3) for s in speeds]
    return [s / sum(clamped) for s in clamped]


def schedule(x):
    """The share of the highest learning rate at a progress x: rises over the first 3% of the run, then falls along a cosine to
    2%."""
    if x < 0.03:
        return max(x / 0.03, 0.02)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos((x - 0.03) / 0.97 * math.pi))


def optimizers(head, o, device):
    """(parameters, their gradients as one vector with two places more, Adam, Muon). Norms come first, then the output rows."""
    tables = getattr(head, "table_weights", list)() + [head.lm_head.weight]
    plain = [p for n, p in head.named_parameters() if p.dim() == 1 or len(p) == 1]
    output = [p for p in tables if p.requires_grad]
    rest = [p for n, p in head.named_parameters() if p.dim() > 1 and len(p) > 1 and all(p is not t for t in tables)]
    parameters = plain + output + rest
    flat = torch.zeros(sum(p.numel() for p in parameters) + 2, device=device)  # and rows, progress
    at = 0
    for p in parameters:
        p.grad = flat[at:at + p.numel()].view_as(p)
        at += p.numel()
    groups = [{"params": part, "top": top} for part, top in ((plain, o.lr), (output, o.lr * o.lr_output)) if part]
    adam = torch.optim.AdamW(groups, lr=o.lr, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    return parameters, flat, adam, Muon([{"params": rest, "top": o.lr_matrix}], lr=o.lr_matrix, weight_decay=o.weight_decay)


class Run:
    def __init__(self, options, rank=0, world=1):
        o = self.o = options
        self.rank, self.world = rank, world
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.autocast = lambda: torch.autocast(self.device.type, torch.bfloat16)
        self.target = target_file.read(o.model)
        self.corpus = Corpus(o.features)
        self.taps = o.taps or self.corpus.taps
        missing = [t for t in self.taps if t not in self.corpus.taps]
        if missing:
            raise SystemExit(f"taps {missing} are not in the features, which have {self.corpus.taps}")
        self.columns = [self.corpus.taps.index(t) for t in self.taps]
        last = self.target.n_layers
        self.last = self.corpus.taps.index(last) if last in self.corpus.taps else None
        self.known = describe(o.answers)
        self.visits = {}  # id of a conversation -> how often it was trained on
        self.step, self.seen, self.spent, self.progress = 0, 0, 0.0, 0.0
        self.sums = {}
        self.busy = [0, 0.0]  # rows, seconds of this worker since the last portion
        self.build()

    def build(self):
        o, t = self.o, self.target
        torch.manual_seed(o.seed)
        saved = self.find_checkpoint()
        if saved and saved.get("kind", "eagle3") != o.kind:
            raise SystemExit(
                f"{o.out}/checkpoint.pt is of kind {saved.get('kind', 'eagle3')}, not {o.kind}; another --work would "
                "begin anew")
        if saved:
            if o.n_draft > len(saved["head"]["d2t"]):
                self.widen(saved)
            shape, d2t = saved["shape"], saved["head"]["d2t"]
        elif o.start:
            shape, state = resume.read(o.start, self.taps)
            d2t = state["d2t"]
        else:
            ids, covered = draft_vocabulary(self.uses(), o.n_draft, self.target.ends)
            self.say(f"draft vocabulary: {len(ids)} of {t.n_vocab} tokens, {100 * covered:.2f}% of the answers")
            d2t = torch.from_numpy(ids)
            shape = self.make_shape(d2t)
        head = self.make_head(shape, torch.tensor(t.embedding), d2t)
        if o.start and not saved:
            head.load_state_dict(state)
        elif not saved:
            head.start_from(torch.tensor(t.output), torch.tensor(t.output_norm),
                            max(range(len(self.taps)), key=lambda i: self.taps[i]))
        self.head = head.to(self.device)
        if not saved and not o.start:
            self.point()
        self.output_norm = torch.tensor(t.output_norm).to(self.device)
        self.tail = None
        if 0 < o.n_common and o.n_common + o.n_rare < len(d2t):
            self.tail = Tail(torch.from_numpy(self.uses()).to(self.device)[self.head.d2t], o.n_common, o.n_rare)
        self.parameters, self.flat, self.optimizer, self.muon = optimizers(head, o, self.device)
        if saved:
            self.head.load_state_dict(saved["head"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.muon.load_state_dict(saved["muon"])
            for group, top in zip(self.optimizer.param_groups, (o.lr, o.lr * o.lr_output)):
                group["top"] = top
            self.muon.param_groups[0]["top"] = o.lr_matrix
            self.step, self.seen, self.spent, self.progress = (saved[k] for k in ("step", "seen", "spent", "progress"))
            self.visits = saved["visits"]
            self.say(f"going on at step {self.step}, {self.spent / 60:.1f} minutes in")

    def make_shape(self, d2t):
        o, t = self.o, self.target
        return dict(n_embd=t.n_embd, n_target_embd=t.n_embd, n_taps=len(self.taps), n_heads=t.n_heads,
                    n_kv_heads=o.n_kv_heads or t.n_heads,
                    head_dim=t.head_dim, n_ff=o.n_ff, n_draft=len(d2t), eps=t.eps, rope_theta=t.rope_theta)

    def make_head(self, shape, embedding, d2t):
        return KINDS[self.o.kind](shape, embedding, d2t)

    def widen(self, saved):
        """Adds draft ids that the checkpoint lacks."""
        uses, before = self.uses(), len(saved["head"]["d2t"])
        which = sum(1 for name, x in saved["head"].items() if x.dim() == 1 and name != "d2t")  # norms come first (build)
        ids, covered = draft_vocabulary(uses, self.o.n_draft, self.target.ends)
        added = widen(saved, ids, uses, torch.tensor(self.target.output), which)
        self.say(f"draft vocabulary: {before} and {added} more of {self.target.n_vocab} tokens; "
                 f"those most used are {100 * covered:.2f}% of the answers")

    def uses(self, whole=False):
        """[n_vocab] how often the answers that are trained on use each token; whole: how often prompts and answers do."""
        if whole:
            return count_tokens((self.corpus[i].tokens for i in range(len(self.corpus))), self.target.n_vocab)
        return count_tokens((tokens for name, (_, _, tokens) in self.known.items() if not is_held(name, self.o.hold_out,
                                                                                                  self.o.seed)),
                            self.target.n_vocab)

    def point(self):
        """Some attention heads look at their own row and the ones before from the start."""
        s = self.head.shape
        if s["n_heads"] != s["n_kv_heads"]:
            return
        few = [i for i in range(len(self.corpus)) if self.corpus.size(i)[0] - self.corpus.size(i)[1] >= 2][:20]
        batch = Batch([self.corpus[i] for i in few], self.columns, 0, self.device, torch.float32)
        w, spread = pointing.constant(self.head, batch)
        pointing.point(self.head, w, pointing.usual(s["n_heads"]))
        self.say(f"attention heads that start as pointers: {pointing.usual(s['n_heads'])}; "
                 f"their constant varies by {100 * max(spread):.1f}%")

    def say(self, text):
        if self.rank == 0:
            print(time.strftime("%H:%M:%S"), text, flush=True)

    # ---- Checkpoints ----

    def find_checkpoint(self):
        path = Path(self.o.out) / "checkpoint.pt"
        return torch.load(path, map_location="cpu", weights_only=True) if path.exists() else None

    def save(self):
        if self.rank:
            return
        path = Path(self.o.out) / "checkpoint.pt"
        state = {"head": self.head.state_dict(), "optimizer": self.optimizer.state_dict(), "muon": self.muon.state_dict(),
                 "kind": self.o.kind, "shape": self.head.shape, "taps": self.taps,
                 "step": self.step, "seen": self.seen, "spent": self.spent, "progress": self.progress, "visits": self.visits,
                 "options": asdict(self.o)}
        torch.save(state, path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)

    # ---- Steps ----

    def learning_rate(self):
        return schedule(self.progress)

    def how_far(self):
        by_time = self.spent / 60 / self.o.minutes if self.o.minutes else 0.0
        return min(max(by_time, self.seen / self.n_rows / self.o.epochs), 1.0)

    def loss(self, batch):
        o = self.o
        depths = o.depths
        if self.progress < o.grow:
            depths = min(o.depths, 2 + int((o.depths - 1) * max(self.progress - o.stay, 0) / (o.grow - o.stay)))
        total, weights = 0.0, sum(o.decay ** d for d in range(depths))
        parts = []  # per depth: hidden rows, ids, probabilities, weights of rows
        for depth, (rows, hidden) in enumerate(unroll(self.head, batch, depths, o.shares or None)):
            weight = o.decay ** depth / weights
            part, h = rows, hidden
            if depth and o.ce_share < 1:
                wanted = max(1, int(o.ce_share * len(rows)))
                pick = torch.randperm(len(rows), device=rows.device)[:min(round_up(wanted, o.grid), len(rows))]
                part, h = rows[pick], hidden[pick]
            ids, p = draft_targets(self.head, batch.likely[part], batch.log_p[part])
            parts.append((h, ids, p, p.new_full((len(part),), weight / len(part))))
            scale = o.close * (1 - self.progress)
            if scale > 0 and self.last is not None and self.target.n_embd == self.head.shape["n_embd"]:
                ahead = batch.ahead[rows].float()
                ahead = ahead * torch.rsqrt(ahead.pow(2).mean(-1, keepdim=True) + self.target.eps) * self.output_norm
                near = closeness(hidden, ahead)
                self.add(f"close_{depth + 1}", near.item())
                total = total + weight * scale * near
        return total + self.entropy(parts)

    def entropy(self, parts):
        """Computes the cross-entropy of all depths together: one product with the output rows, and one for their gradient."""
        hidden, ids, p, weight = (torch.cat(x) for x in zip(*parts))
        output, counts = self.head.lm_head.weight, None
        if self.tail:
            rows, counts, ids, p = self.tail.rows(ids, p)
            output = output.index_select(0, rows)
        ce, losses = SoftCrossEntropy.apply(hidden, output, ids, p, weight, counts)
        for depth, part in enumerate(losses.split([len(x[0]) for x in parts])):
            self.add(f"loss_{depth + 1}", part.mean().item())
        return ce

    def add(self, name, value):
        s = self.sums.setdefault(name, [0.0, 0])
        s[0] += value
        s[1] += 1

    def batch_of(self, chosen):
        o = self.o
        return Batch([self.corpus[i] for i in chosen], self.columns, self.last if self.last is not None else 0, self.device,
                     torch.float32, self.common if o.prompts else None, o.prompts, o.grid)

    def chains_of(self, n_tokens, n_prompt):
        """Returns the number of chains that are trained per visit of a conversation."""
        return n_tokens - n_prompt + int(self.o.prompts * max(n_prompt - self.common, 0))

    def take(self, chosen):
        begin = time.monotonic()
        batch = self.batch_of(chosen)
        self.flat.zero_()
        with self.autocast():
            loss = self.loss(batch)
        loss.backward()
        now = time.monotonic()
        self.spent += now - self.clock
        self.clock = now
        self.busy = [self.busy[0] + batch.n_chains, self.busy[1] + now - begin]
        self.flat *= batch.n_chains  # a mean over all workers' rows
        self.flat[-2] = batch.n_chains
        if self.rank == 0:
            self.flat[-1] = self.how_far()
        if self.world > 1:
            dist.all_reduce(self.flat)
        n, self.progress = int(self.flat[-2].item()), min(self.flat[-1].item(), 1.0)
        self.seen += n
        self.flat[-2:] = 0
        self.flat /= n
        norm = self.flat.norm()
        self.flat *= (1.0 / norm.clamp(min=1.0))
        self.add("gradient", norm.item())
        rate = self.learning_rate()
        for optimizer in (self.optimizer, self.muon):
            for group in optimizer.param_groups:
                group["lr"] = rate * group["top"]
            optimizer.step()
        self.step += 1

    @torch.no_grad()
    def measure(self):
        return evaluate.acceptance(self.head, self.corpus, self.greedy, self.columns, self.o.depths, self.device,
                                   self.autocast)

    def report(self):
        """Held-out acceptance and the mean losses since the last report: one line, one row of the log."""
        mean = {k: v[0] / max(v[1], 1) for k, v in self.sums.items()}
        self.sums = {}
        got = self.measure().get("all", {"first": 0.0, "per_round": [0.0] * self.o.depths})
        for d in range(self.o.depths):
            mean.setdefault(f"loss_{d + 1}", float("nan"))
            mean.setdefault(f"close_{d + 1}", float("nan"))
        row = {"minutes": self.spent / 60, "step": self.step, "chains": self.seen, "passes": self.seen / self.n_rows,
               "first": got["first"],
               **{f"accepted_{d + 1}": a for d, a in enumerate(got["per_round"])}, **dict(sorted(mean.items()))}
        path = Path(self.o.out) / "log.csv"
        names = list(row) if not path.exists() else path.read_text().splitlines()[0].split(",")
        with open(path, "a", newline="") as f:
            writer = csv.DictWriter(f, names, extrasaction="ignore")
            if f.tell() == 0:
                writer.writeheader()
            writer.writerow({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()})
        losses = " ".join(f"{mean.get(f'loss_{d + 1}', float('nan')):.3f}" for d in range(self.o.depths))
        accepted = " ".join(f"{a:.3f}" for a in got["per_round"])
        self.say(f"{self.spent / 60:.1f} min, {100 * self.progress:.0f}%, step {self.step}, "
                 f"{self.seen / max(self.spent, 1):.0f} chains/s, loss {losses}, first {got['first']:.3f}, "
                 f"accepted per round {accepted}")

    def sort_out(self):
        """Reads new records, assigns them to training or held-out, and counts the chains for training."""
        self.corpus.scan()
        if not len(self.corpus):
            raise SystemExit("the features hold no conversation")
        some = range(0, len(self.corpus), max(1, len(self.corpus) // 100))
        self.common = common_prefix([self.corpus[i].tokens for i in some])  # what the template puts before the user's turn
        sized = [(i, *self.corpus.size(i)) for i in range(len(self.corpus))]
        sized = [(i, n - n_prompt, name) for i, n, n_prompt, name in sized if n - n_prompt >= 2]
        self.training = [(i, name) for i, _, name in sized if not is_held(name, self.o.hold_out, self.o.seed)]
        self.held = [i for i, _, name in sized if is_held(name, self.o.hold_out, self.o.seed)]
        self.greedy = [i for i in self.held if self.known.get(self.corpus.size(i)[2], ("", 0.0))[1] == 0.0][:self.o.eval_most]
        self.n_rows = sum(self.chains_of(*self.corpus.size(i)[:2]) for i, _ in self.training)
        if not self.training:
            raise SystemExit("the features hold nothing to train on")

    def portion(self):
        """The next batches of all workers: of the conversations that were seen least. Worker 0 decides for all."""
        plan, speeds = [None], [self.busy[0] / self.busy[1] if self.busy[1] else 0.0]
        if self.world > 1:
            every = [None] * self.world
            dist.all_gather_object(every, speeds[0])
            speeds = every
        self.busy = [0, 0.0]
        if self.rank == 0:
            rng = random.Random(f"{self.o.seed}/{self.step}")
            self.sort_out()
            order = sorted(self.training, key=lambda x: (self.visits.get(x[1], 0), rng.random()))
            chosen, rows = [], 0
            for i, name in order:
                chosen.append(i)
                self.visits[name] = self.visits.get(name, 0) + 1
                rows += self.corpus.size(i)[0] - self.corpus.size(i)[1]
                if rows >= 24 * self.world * self.o.batch_rows:
                    break
            rng.shuffle(chosen)
            made, at, total = [], 0, 0.0
            for share in shares_of(speeds):
                total += share
                end = round(total * len(chosen))
                made.append(batches(self.corpus, chosen[at:end], share * self.world * self.o.batch_rows, rng))
                at = end
            most = max(made, key=len)
            made = [m or most for m in made]  # fewer conversations than workers
            plan[0] = [[[self.corpus.size(i)[2] for i in m[n % len(m)]] for n in range(len(most))] for m in made]
        if self.world > 1:
            dist.broadcast_object_list(plan, 0)
            if self.rank:
                self.sort_out()
        place = {self.corpus.size(i)[2]: i for i, _ in self.training}
        return [[place[name] for name in batch] for batch in plan[0][self.rank]]

    def run(self):
        o = self.o
        self.sort_out()
        if self.world > 1:
            for p in self.head.parameters():
                dist.broadcast(p.data, 0)
        self.say(f"{len(self.training)} conversations, {self.n_rows} chains; {len(self.held)} held out, {len(self.greedy)} of "
                 f"them greedy and measured; "
                 f"{sum(p.numel() for p in self.parameters) / 1e6:.1f} M weights; {self.world} worker(s) on {self.device.type}")
        self.progress = self.how_far()  # the limits may be others than before
        self.head.dropout = o.dropout
        self.head.train()
        self.clock = time.monotonic()
        last_report = self.spent
        while self.progress < 1:
            for chosen in self.portion():
                self.take(chosen)
                due = torch.tensor([1.0 if self.spent - last_report > 60 * o.eval_every or self.progress >= 1 else 0.0])
                if self.world > 1:
                    dist.broadcast(due, 0)
                if due.item():
                    last_report = self.spent
                    if self.rank == 0:
                        self.report()
                        self.save()
                    if self.world > 1:
                        dist.barrier()
                    self.clock = time.monotonic()
                if self.progress >= 1:
                    break


def runner(options):
    from . import block_run
    return block_run.BlockRun if options.kind in block_run.KINDS else Run


def _worker(rank, world, options, port):
    if options.threads <= 1 and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(options.threads or 1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    with contextlib.suppress(KeyboardInterrupt):
        runner(options)(options, rank, world).run()
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()
        sys.stdout.flush()
        os._exit(0)  # all is written; the threads of gloo can end a process by abort while it is taken down


def train(options):
    Path(options.out).mkdir(parents=True, exist_ok=True)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    world = options.workers or (1 if torch.cuda.is_available() else cores)
    if world == 1:
        torch.set_num_threads(options.threads or cores)
        runner(options)(options).run()
        return
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(_worker, (world, options, port), nprocs=world)
