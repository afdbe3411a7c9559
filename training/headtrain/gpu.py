"""Training on one GPU whose memory holds all rows: features, likeliest tokens and batches never leave it.

Owns: the store of rows, batches of conversations of similar length in which every row from the common beginning on starts a
chain (`unroll_dense`), and the loop, which waits for nothing but the clock. Network, loss, optimizers and schedule are those of
head.py, loss.py and train.py. README.md says how a run goes ("On a GPU").
"""
import csv
import random
import time
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from . import evaluate
from .block_loss import BlockLoss
from .features import common_prefix
from .head import round_up
from .llama import cut_loops
from .loss import SoftCrossEntropy, draft_targets
from .train import is_held, optimizers, schedule


@dataclass
class Options:
    model: str = ""
    kind: str = "eagle3"
    out: str = ""             # folder of checkpoints and log
    taps: list = field(default_factory=list)
    depths: int = 5
    decay: float = 0.8        # weight of a depth relative to the one before
    dropout: float = 0.0
    prompts: float = 0.5      # share of the rows of the users' turns that begin chains that count
    ce_share: float = 0.5     # share of the rows beyond the first depth whose cross-entropy is computed
    lr: float = 1.5e-3
    lr_output: float = 0.3    # of the output rows, relative
    lr_matrix: float = 0.01   # of the layer's matrices, by Muon
    weight_decay: float = 0.01
    batch_rows: int = 8192    # chains per step, those of padding and of prompts included
    mean: float = 0.05        # the averaged head looks back over this share of the run
    hold_out: float = 0.01
    seed: int = 1
    eval_every: float = 1.0   # minutes
    eval_most: int = 40       # conversations of a group that are measured


@dataclass
class Conversation:
    group: str
    tokens: np.ndarray   # i32 [n]
    n_prompt: int
    greedy: bool
    test: bool           # never trained on

    def __len__(self):
        return len(self.tokens)

    def name(self):
        return f"{self.group}-{zlib.crc32(self.tokens[:self.n_prompt].tobytes()):08x}"


def conversations(prompts, answers, device, least=2):
    """prompts: dicts with tokens, group, temperature, test; answers: {number: ids}. Answers that repeat themselves are cut."""
    numbers = [i for i, a in answers.items() if len(a) >= least]
    if not numbers:
        raise SystemExit("the target wrote no answer")
    longest = max(len(answers[i]) for i in numbers)
    made = []
    for at in range(0, len(numbers), 16384):
        here = numbers[at:at + 16384]
        padded = np.tile(-1 - np.arange(longest, dtype=np.int32), (len(here), 1))
        for row, i in zip(padded, here):
            row[:len(answers[i])] = answers[i]
        for i, keep in zip(here, cut_loops(padded, device)):
            p = prompts[i]
            tokens = np.concatenate((np.asarray(p["tokens"], dtype=np.int32), answers[i][:keep].astype(np.int32)))
            made.append(Conversation(p["group"], tokens, len(p["tokens"]), p["temperature"] == 0, p.get("test", False)))
    return made


class Store:
    """Rows of all conversations on the device, in order of length: what a features file holds, and no file.

    The common beginning of all conversations is kept once, in float16; later rows in eight bits (a scale for 32) where float16
    would not fit: their rounding is a third of the distance between two devices' rows.
    """
    GROUP = 32

    def __init__(self, llama, items, n_likely=16, eight_bits=None, room=0.5, say=print):
        target, device = llama.target, llama.device
        self.device, self.n_embd, self.n_taps = device, target.n_embd, len(llama.taps)
        self.items = sorted(items, key=len)
        self.common = min(common_prefix([c.tokens for c in self.items]), min(c.n_prompt for c in self.items) - 1)
        self.size = np.array([len(c) for c in self.items])
        self.start = np.concatenate(([0], (self.size - self.common).cumsum()))
        n, wide = int(self.start[-1]), self.n_taps * self.n_embd
        if eight_bits is None:
            free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 1 << 33
            eight_bits = wide % self.GROUP == 0 and n * wide * 2 > room * free
        self.eight_bits = eight_bits
        self.rows = torch.zeros(n, wide, dtype=torch.int8 if eight_bits else torch.float16, device=device)
        self.scales = torch.zeros(n, wide // self.GROUP, dtype=torch.float16, device=device) if eight_bits else None
        self.likely = torch.zeros(n, n_likely, dtype=torch.int32, device=device)
        self.log_p = torch.zeros(n, n_likely, dtype=torch.float16, device=device)
        self.tokens = torch.from_numpy(np.concatenate([c.tokens[self.common:] for c in self.items])).to(device).long()
        self.prefix_tokens = torch.from_numpy(self.items[0].tokens[:self.common]).to(device).long()
        self.prefix = torch.zeros(0, self.n_taps, self.n_embd, device=device)  # [common, taps, n_embd]
        if self.common:
            self.prefix = llama.whole(self.prefix_tokens.unsqueeze(0))[1][0].float()
        self.fill(llama, say)

    def fill(self, llama, say, tokens=16384, rows=4096):
        """One pass of the target over every conversation."""
        at, begun, said = 0, time.monotonic(), time.monotonic()
        while at < len(self.items):
            end = at + 1
            while end < len(self.items) and round_up(self.size[end], 16) * (end + 1 - at) <= tokens:
                end += 1
            part, longest = self.items[at:end], round_up(int(self.size[end - 1]), 16)
            padded = np.zeros((len(part), longest), dtype=np.int64)
            for row, c in zip(padded, part):
                row[:len(c)] = c.tokens
            x, taps = llama.whole(torch.from_numpy(padded).to(self.device))
            used = np.arange(longest)[None] < self.size[at:end, None]
            used[:, :self.common] = False
            used = torch.from_numpy(np.flatnonzero(used)).to(self.device)
            here = slice(int(self.start[at]), int(self.start[end]))
            self.put(here, taps.flatten(0, 1).flatten(1)[used])
            x = x.flatten(0, 1)[used]
            for i in range(0, len(x), rows):
                to = slice(here.start + i, min(here.start + i + rows, here.stop))
                self.likely[to], self.log_p[to] = likeliest(llama.logits(x[i:i + rows]), self.likely.shape[1])
            at = end
            if time.monotonic() - said > 15:
                said = time.monotonic()
                say(f"features: {here.stop} of {len(self.tokens)} rows")
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        spent = time.monotonic() - begun
        say(f"features of {len(self.items)} conversations, {len(self.tokens)} rows in {'8' if self.eight_bits else '16'} bits: "
            f"{spent:.1f} s, {len(self.tokens) / max(spent, 1e-3):.0f} rows/s")

    def put(self, here, x):
        if not self.eight_bits:
            self.rows[here] = x
            return
        groups = x.float().unflatten(1, (-1, self.GROUP))
        scales = (groups.abs().amax(-1) / 127).clamp(min=1e-5).half()
        self.scales[here] = scales
        self.rows[here] = (groups / scales.float().unsqueeze(-1)).round().clamp(-127, 127).flatten(1).to(torch.int8)

    def features(self, index):
        """[any shape] rows -> f32 [..., taps, n_embd]"""
        flat = index.reshape(-1)
        x = self.rows.index_select(0, flat)
        if self.eight_bits:
            x = x.unflatten(1, (-1, self.GROUP)) * self.scales.index_select(0, flat).float().unsqueeze(-1)
        return x.float().reshape(*index.shape, self.n_taps, self.n_embd)


def likeliest(logits, k, group=64):
    """The k likeliest ids of each row and their log-probabilities, by way of the groups of ids whose best are best."""
    total = logits.logsumexp(-1, keepdim=True)
    n = logits.shape[1]
    if n % group or n // group < k:
        value, ids = logits.topk(k)
    else:
        best = logits.unflatten(1, (-1, group)).amax(-1).topk(k, sorted=False).indices
        ids = (best.unsqueeze(-1) * group + torch.arange(group, device=logits.device)).flatten(1)
        value, at = logits.gather(1, ids).topk(k)
        ids = ids.gather(1, at)
    return ids.int(), (value - total).half()


class Batch:
    """Conversations of similar length. A slot is a row that begins a chain: slot s is row `first` + s, the last of the common
    rows or one after it.

    features [n, rows, taps, n_embd] of rows 0 to `rows` - 1, tokens [n, rows + depths] of the positions after them.
    """

    def __init__(self, store, chosen, depths):
        self.store, device = store, store.device
        self.size, self.begin = store.size[chosen], store.start[chosen]
        self.n_prompt = np.array([store.items[i].n_prompt for i in chosen])
        self.n, self.rows = len(chosen), round_up(int(self.size.max()) - 1, 16)
        self.first = max(store.common - 1, 0)
        self.slots = self.rows - self.first
        begin = torch.from_numpy(self.begin)
        begin = (begin.pin_memory() if device.type == "cuda" else begin).to(device, non_blocking=True).unsqueeze(1)
        last = len(store.tokens) - 1
        later = (begin + torch.arange(self.rows + depths - store.common, device=device)).clamp(max=last)
        common = store.common
        self.features = torch.cat((store.prefix.expand(self.n, -1, -1, -1), store.features(later[:, :self.rows - common])), 1)
        self.tokens = torch.cat((store.prefix_tokens.expand(self.n, -1), store.tokens[later]), 1)
        self.tokens = F.pad(self.tokens[:, 1:], (0, 1))  # of row P: token P + 1

    def counted(self, depth, rng, share, prompts):
        """(slots, rows of the store that say what is foreseen there): at depth `depth` from 0, a share of those whose chain is
        still inside its conversation."""
        row = np.arange(self.slots)[None] + self.first
        good = row + depth <= self.size[:, None] - 2
        answer = row >= self.n_prompt[:, None] - 1
        wanted = np.where(answer, share, share * prompts)
        good &= rng.random(good.shape, dtype=np.float32) < wanted
        slots = np.flatnonzero(good)
        if len(slots) > 512:  # few different numbers of rows, so that memory can be reused
            slots = np.delete(slots, rng.choice(len(slots), len(slots) % 256, replace=False))
        which = slots // self.slots
        return slots, self.begin[which] + slots % self.slots + self.first + depth + 1 - self.store.common


def unroll_dense(head, batch, depths):
    """Yields the normed outputs [n * slots, n_embd] of each depth: head.unroll where all slots begin chains and all go on."""
    s, n, slots, rows = head.shape, batch.n, batch.slots, batch.rows
    n_kv, per_kv, d = s["n_kv_heads"], s["n_heads"] // s["n_kv_heads"], s["head_dim"]
    device = batch.tokens.device
    cos, sin = head.rotation(torch.arange(rows + depths, device=device))
    turn = lambda first, count: [x[first:first + count].expand(n, -1, -1).flatten(0, 1) for x in (cos, sin)]
    c, x = head.mix(batch.tokens[:, :rows].flatten(), head.fuse(batch.features.flatten(0, 1)))
    keys, values = head.keys(c, turn(0, rows))
    keys, values = (y.reshape(n, rows, n_kv, d).transpose(1, 2).contiguous() for y in (keys, values))
    c, x = (y.reshape(n, rows, -1)[:, batch.first:].flatten(0, 1) for y in (c, x))
    future = torch.arange(rows, device=device) > torch.arange(slots, device=device).unsqueeze(1) + batch.first
    mask = torch.zeros(slots, rows, device=device).masked_fill_(future, float("-inf"))
    own_k, own_v = [], []
    for depth in range(depths):
        here = turn(batch.first + depth, slots)
        if depth:
            c, x = head.mix(batch.tokens[:, batch.first + depth:batch.first + depth + slots].flatten(), hidden)
            k, v = head.keys(c, here)
            own_k.append(k)
            own_v.append(v)
        q = head.queries(c, here).reshape(-1, n_kv, per_kv, d) * d ** -0.5
        wide = q.reshape(n, slots, n_kv, per_kv, d).permute(0, 2, 3, 1, 4).reshape(n, n_kv, per_kv * slots, d)
        scores = (wide @ keys.transpose(2, 3)).reshape(n, n_kv, per_kv, slots, rows) + mask
        if own_k:
            extra = torch.stack([(q * k.unsqueeze(2)).float().sum(-1) for k in own_k], -1)
            scores = torch.cat((scores, extra.reshape(n, slots, n_kv, per_kv, -1).permute(0, 2, 3, 1, 4)), -1)
        weights = scores.softmax(-1).to(keys.dtype)
        attended = weights[..., :rows].reshape(n, n_kv, per_kv * slots, rows) @ values
        attended = attended.reshape(n, n_kv, per_kv, slots, d).permute(0, 3, 1, 2, 4).reshape(-1, n_kv, per_kv, d)
        if own_v:
            own = weights[..., rows:].permute(0, 3, 1, 2, 4).reshape(-1, n_kv, per_kv, len(own_v))
            for j, v in enumerate(own_v):
                attended = attended + own[..., j].unsqueeze(-1) * v.unsqueeze(2)
        hidden = head.finish(x, attended.reshape(n * slots, -1))
        yield hidden


class Run:
    """The loop over a store. say: where lines go; reported(run, groups): called after each held-out measurement."""

    def __init__(self, options, target, head, store, say=print, reported=None):
        o = self.o = options
        self.target, self.store, self.say, self.reported = target, store, say, reported
        self.device = store.device
        self.head = head.to(self.device)
        self.parameters, self.flat, self.adam, self.muon = optimizers(self.head, o, self.device)
        self.mean = [p.detach().clone() for p in self.parameters]
        self.step = self.seen = 0
        self.progress, self.spent = 0.0, 0.0
        self.best, self.best_state = -1.0, None
        self.losses, self.n_losses = torch.zeros(o.depths, device=self.device), 0
        self.autocast = lambda: torch.autocast(self.device.type, torch.bfloat16)
        self.rng = np.random.default_rng(o.seed)
        self.sort_out()
        self.queue = []

    def sort_out(self):
        """Divides the conversations into those for training and, by group, those for measuring."""
        o, self.training, held = self.o, [], {}
        for i, c in enumerate(self.store.items):
            if len(c) - c.n_prompt < 2:
                continue
            if c.test or is_held(c.name(), o.hold_out, o.seed):
                if c.greedy:
                    held.setdefault(c.group, []).append(i)
            else:
                self.training.append(i)
        self.held = {g: random.Random(o.seed).sample(x, min(len(x), o.eval_most)) for g, x in sorted(held.items())}
        if not self.training:
            raise SystemExit("no conversation is left to train on")
        self.training = np.array(self.training)
        sizes = self.store.size[self.training]
        self.n_rows = int((sizes - self.store.common).sum())
        n_answers = sum(len(self.store.items[i]) - self.store.items[i].n_prompt for i in self.training)
        self.say(f"{len(self.training)} conversations, {n_answers} tokens of answers, {self.n_rows} chains; "
                 f"held out and measured: {', '.join(f'{g} {len(x)}' for g, x in self.held.items())}")

    def shuffle(self):
        """Batches of one pass: conversations of like length, about `batch_rows` slots each, in random order."""
        sizes = self.store.size[self.training] * (1 + 0.04 * self.rng.random(len(self.training)))
        order, made, at = self.training[np.argsort(sizes, kind="stable")], [], 0
        first = max(self.store.common - 1, 0)
        while at < len(order):
            longest, end = 0, at
            while end < len(order):
                longest = max(longest, int(self.store.size[order[end]]))
                if end > at and (round_up(longest - 1, 16) - first) * (end + 1 - at) > self.o.batch_rows:
                    break
                end += 1
            made.append(order[at:end])
            at = end
        self.rng.shuffle(made)
        return made

    def loss(self, batch):
        o = self.o
        weights = sum(o.decay ** d for d in range(o.depths))
        parts = []
        for depth, hidden in enumerate(unroll_dense(self.head, batch, o.depths)):
            slots, rows = batch.counted(depth, self.rng, o.ce_share if depth else 1.0, o.prompts)
            if not len(slots):
                break
            both = torch.from_numpy(np.stack((slots, rows)))
            slots, rows = (both.pin_memory() if self.device.type == "cuda" else both).to(self.device, non_blocking=True)
            ids, p = draft_targets(self.head, self.store.likely[rows].long(), self.store.log_p[rows].float())
            weight = o.decay ** depth / weights / len(slots)
            parts.append((hidden.index_select(0, slots), ids, p, p.new_full((len(slots),), weight)))
        hidden, ids, p, weight = (torch.cat(x) for x in zip(*parts))
        ce, losses = SoftCrossEntropy.apply(hidden, self.head.lm_head.weight, ids, p, weight)
        for depth, part in enumerate(losses.split([len(x[0]) for x in parts])):
            self.losses[depth] += part.mean()
        self.n_losses += 1
        return ce

    def batch_of(self, chosen):
        return Batch(self.store, chosen, self.o.depths)

    def seen_of(self, batch):
        """Returns the number of chains in a batch."""
        return int((batch.size - 1 - batch.first).sum())

    def take(self, chosen):
        batch = self.batch_of(chosen)
        self.flat.zero_()
        with self.autocast():
            loss = self.loss(batch)
        loss.backward()
        self.flat *= 1.0 / self.flat.norm().clamp(min=1.0)
        rate = schedule(self.progress)
        for optimizer in (self.adam, self.muon):
            for group in optimizer.param_groups:
                group["lr"] = rate * group["top"]
            optimizer.step()
        self.step += 1
        self.seen += self.seen_of(batch)

    def average(self, steps):
        """Updates the mean of the weights, which fades over `steps` steps."""
        torch._foreach_lerp_(self.mean, [p.detach() for p in self.parameters], min(1.0, 1.0 / max(steps, 1.0)))

    @torch.no_grad()
    def measure(self):
        """{group: Walks.result()} of the held-out conversations."""
        walks = evaluate.Walks(self.o.depths)
        self.head.eval()
        for group, chosen in self.held.items():
            chosen = sorted(chosen)
            for at in range(0, len(chosen), 16):
                here = np.array(chosen[at:at + 16])
                batch = Batch(self.store, here, self.o.depths)
                length = torch.zeros(batch.n * batch.slots, dtype=torch.long, device=self.device)
                with self.autocast():
                    for depth, hidden in enumerate(unroll_dense(self.head, batch, self.o.depths)):
                        drafted = torch.cat([self.head.lm_head(h).argmax(-1) for h in hidden.split(8192)])
                        drafted = self.head.d2t[drafted].reshape(batch.n, batch.slots)
                        row = torch.arange(batch.slots, device=self.device) + batch.first + depth
                        true = F.pad(batch.tokens, (0, 1))[:, row + 1]  # token P + 2 of row P
                        good = row + 2 < torch.from_numpy(batch.size).to(self.device).unsqueeze(1)
                        hit = ((drafted == true) & good).flatten() & (length == depth)
                        length += hit
                length = length.reshape(batch.n, batch.slots).cpu().numpy()
                for row, size, n_prompt in zip(length, batch.size, batch.n_prompt):
                    chain = row[n_prompt - 1 - batch.first:size - 1 - batch.first].tolist()
                    walks.add("all", chain)
                    walks.add(group, chain)
        self.head.train()
        return walks.result()

    def swap(self):
        for p, m in zip(self.parameters, self.mean):
            old = p.detach().clone()
            p.data.copy_(m)
            m.copy_(old)

    def report(self):
        """Measures the head and its mean; the better of the two, if it is the best so far, is kept and written."""
        o, groups = self.o, {}
        lines = []
        for which in ("last", "mean"):
            if which == "mean":
                self.swap()
            got = self.measure()
            if not got:
                got = {"all": {"first": 0.0, "per_round": [0.0] * o.depths, "at_depth": [0.0] * o.depths, "rounds": 0}}
            score = float(np.mean([g["per_round"][-1] for name, g in got.items() if name != "all" or len(got) == 1]))
            lines.append((which, score, got))
            if score > self.best:
                self.best = score
                self.best_state = {k: v.detach().clone() for k, v in self.head.state_dict().items()}
                groups = got
            if which == "mean":
                self.swap()
        loss = (self.losses / max(self.n_losses, 1)).tolist()
        self.losses.zero_()
        self.n_losses = 0
        memory = f", {torch.cuda.max_memory_allocated() / 2 ** 30:.0f} GiB" if self.device.type == "cuda" else ""
        self.say(f"{self.spent / 60:.2f} min, {100 * self.progress:.0f}%, step {self.step}, {self.seen} chains, "
                 f"{self.seen / max(self.spent, 1e-3):.0f} chains/s, {self.seen / max(self.n_rows, 1):.2f} passes, loss "
                 f"{' '.join(f'{x:.3f}' for x in loss)}{memory}")
        for which, score, got in lines:
            self.say(f"  {which}: {score:.3f} on average; " + ", ".join(
                f"{name} {g['first']:.3f} {g['per_round'][-1]:.3f}" for name, g in got.items()))
        path = Path(o.out) / "log.csv"
        with open(path, "a", newline="") as f:
            row = {"minutes": round(self.spent / 60, 3), "step": self.step, "chains": self.seen,
                   **{f"loss_{d + 1}": round(x, 4) for d, x in enumerate(loss)}}
            for which, score, got in lines:
                row.update({f"{which}_score": round(score, 4), f"{which}_first": round(got["all"]["first"], 4),
                            f"{which}_per_round": round(got["all"]["per_round"][-1], 4)})
            writer = csv.DictWriter(f, list(row))
            if f.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
        if groups and o.out:
            torch.save(self.checkpoint(), Path(o.out) / "checkpoint.new")
            (Path(o.out) / "checkpoint.new").replace(Path(o.out) / "checkpoint.pt")
        if self.reported:
            self.reported(self, {which: got for which, _, got in lines}, bool(groups))

    def checkpoint(self):
        """As train.py writes it, less the optimizers: what checkpoint.export and average.py read."""
        return {"head": {k: v.cpu() for k, v in self.best_state.items()}, "kind": self.o.kind, "shape": self.head.shape,
                "taps": list(self.o.taps), "step": self.step, "seen": self.seen, "spent": self.spent, "progress": self.progress,
                "visits": {}, "options": asdict(self.o)}

    def run(self, until, first_report=True):
        """Trains until the clock (time.monotonic) says `until`, the last measurement included."""
        o = self.o
        if self.device.type == "cuda":
            SoftCrossEntropy.CHUNK = BlockLoss.CHUNK = 4096
        self.head.dropout = o.dropout
        self.head.train()
        begun, took = time.monotonic(), 1.0
        if first_report:
            self.report()
            took = time.monotonic() - begun
        begun = last = time.monotonic()
        length = max(until - begun - took, 1e-3)
        marks = []
        while self.progress < 1:
            if not self.queue:
                self.queue = self.shuffle()
            chosen = self.queue.pop()
            try:
                self.take(chosen)
            except torch.cuda.OutOfMemoryError:
                if o.batch_rows < 1024:
                    raise
                o.batch_rows //= 2
                self.queue = []
                self.say(f"out of memory: steps of {o.batch_rows} chains from here on")
                torch.cuda.empty_cache()
                continue
            if self.device.type == "cuda":  # the clock must include the device's work
                marks.append(torch.cuda.Event())
                marks[-1].record()
                if len(marks) > 4:
                    marks.pop(0).synchronize()
            now = time.monotonic()
            self.spent = now - begun
            self.progress = min(self.spent / length, 1.0)
            self.average(self.step / max(self.progress, 1e-3) * o.mean if self.step > 20 else 1)
            if now - last > 60 * o.eval_every and self.progress < 1 - 20 / (60 + length):
                self.report()
                last = time.monotonic()
        self.report()
