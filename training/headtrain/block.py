"""Block drafters: DFlash and DSpark (docs/heads.md), and their training batches.

Owns: the network, blocks of training, and where it starts. The target's features of every position before the newest token
(the anchor, at s) become one row each (fc, hidden_norm), and that row's keys and values in every layer. A block is the
anchor's token and masks, at s to s + B - 1; its rows see each other and all context before s. Row j foresees the token at
s + 1 + j, as DeepSpec trains it (`sample_from_anchor`). DSpark adds to row j's logits what the token before (at s + j) makes
likely, and foresees how likely the draft is accepted. Layers are Qwen3's: norms of queries and keys, rotation by halves.

Names are those of DeepSpec's checkpoints. Sources: z-lab/dflash, deepseek-ai/DeepSpec (both MIT; formulas, not code).
"""
import torch
import torch.nn.functional as F
from torch import nn

from .head import MLP, RMSNorm, drop, rotate, rotation, round_up
from .loss import draft_targets


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        n, d = s["n_embd"], s["head_dim"]
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(n, s["eps"]), RMSNorm(n, s["eps"])
        self.self_attn = nn.ModuleDict({
            "q_proj": nn.Linear(n, s["n_heads"] * d, bias=False), "k_proj": nn.Linear(n, s["n_kv_heads"] * d, bias=False),
            "v_proj": nn.Linear(n, s["n_kv_heads"] * d, bias=False), "o_proj": nn.Linear(s["n_heads"] * d, n, bias=False),
            "q_norm": RMSNorm(d, s["eps"]), "k_norm": RMSNorm(d, s["eps"])})
        self.mlp = MLP(s)


class BlockHead(nn.Module):
    """shape: n_embd, n_target_embd, n_taps, n_layers, n_heads, n_kv_heads, head_dim, n_ff, n_draft, n_block, n_markov (0:
    DFlash), mask (token id), eps, rope_theta.

    own_output: output rows are trained, else they are the target's and stay as they are.
    """

    def __init__(self, shape, embedding, d2t, own_output=True):
        super().__init__()
        s = self.shape = dict(shape)
        self.dropout = 0.0
        n, r = s["n_embd"], s["n_markov"]
        self.fc = nn.Linear(s["n_taps"] * s["n_target_embd"], n, bias=False)
        self.hidden_norm, self.norm = RMSNorm(n, s["eps"]), RMSNorm(n, s["eps"])
        self.layers = nn.ModuleList(Layer(s) for _ in range(s["n_layers"]))
        self.lm_head = nn.Linear(n, s["n_draft"], bias=False)
        self.lm_head.weight.requires_grad_(own_output)
        if r:
            self.markov_head = nn.ModuleDict({"markov_w1": nn.Embedding(len(embedding), r),
                                              "markov_w2": nn.Linear(r, s["n_draft"], bias=False)})
            self.confidence_head = nn.ModuleDict({"proj": nn.Linear(n + r, 1)})
        self.register_buffer("embedding", embedding, persistent=False)  # [n_vocab, n_embd], the target's, frozen
        self.register_buffer("d2t", d2t)                                # [n_draft] target ids, ascending
        t2d = torch.full((len(embedding),), -1, dtype=torch.long)
        t2d[d2t] = torch.arange(len(d2t))
        self.register_buffer("t2d", t2d, persistent=False)              # draft id, or -1

    def table_weights(self):
        """Matrices that are looked up or multiply into the vocabulary: for Adam, as the output rows are."""
        return [m.weight for m in self.markov_head.values()] if self.shape["n_markov"] else []

    # ---- Where it starts ----

    @torch.no_grad()
    def start_from(self, output, output_norm, last_tap):
        """Before training: the last tap passes through fc, and no layer adds much."""
        s, n = self.shape, self.shape["n_embd"]
        self.lm_head.weight.copy_(output[self.d2t])
        nn.init.normal_(self.fc.weight, std=0.1 * self.fc.in_features ** -0.5)
        if n == s["n_target_embd"]:
            self.fc.weight[:, last_tap * n:last_tap * n + n] += torch.eye(n)
        self.hidden_norm.weight.copy_(output_norm)
        self.norm.weight.fill_(0.5 * output_norm.pow(2).mean().sqrt())
        for layer in self.layers:
            a, mlp = layer.self_attn, layer.mlp
            for part in (a["q_proj"], a["k_proj"], a["v_proj"], mlp.gate_proj, mlp.up_proj):
                nn.init.normal_(part.weight, std=part.in_features ** -0.5)
            nn.init.normal_(a["o_proj"].weight, std=0.1 * n ** -0.5)
            nn.init.normal_(mlp.down_proj.weight, std=0.1 * s["n_ff"] ** -0.5)
        if s["n_markov"]:
            nn.init.normal_(self.markov_head["markov_w1"].weight, std=0.5)
            nn.init.zeros_(self.markov_head["markov_w2"].weight)
            nn.init.zeros_(self.confidence_head["proj"].weight)
            nn.init.zeros_(self.confidence_head["proj"].bias)

    @torch.no_grad()
    def point(self, features, tokens):
        """Makes pointers of heads that have keys of their own, layer by layer, from real rows: features [rows, taps, width] and
        tokens [rows]. A query is one constant, a key another times a number that is 1 on the rows to look at and -1 on others;
        norms of queries and keys leave the sign. Two thirds look at the newest context row, since rotation by several speeds
        makes near keys score higher, and copy a part of it; the others look at the anchor."""
        s, n, d, half = self.shape, self.shape["n_embd"], self.shape["head_dim"], self.shape["head_dim"] // 2
        if s["n_heads"] != s["n_kv_heads"]:
            return
        newest = s["n_heads"] * 2 // 3
        context = self.encode(features)
        anchor, mask = self.embedding[tokens], self.embedding[s["mask"]].expand(len(tokens), n)
        for i, layer in enumerate(self.layers):
            a = layer.self_attn
            rows = [context, layer.input_layernorm(anchor), layer.input_layernorm(mask)]
            for h in range(s["n_heads"]):
                here = slice(h * d, (h + 1) * d)
                key = torch.zeros(d, device=context.device)
                if h < newest:
                    fast = [k for k in range(half) if 0.03 < s["rope_theta"] ** -(k / half) < 0.5] or [half - 1]
                    key[fast] = 1.0
                    copied = slice((h * d) % n, (h * d) % n + d)
                    part = torch.eye(n, device=context.device)[:, copied]
                    if part.shape[1] == d:
                        a["v_proj"].weight[here] = part.T
                        a["o_proj"].weight[:, here] = part * (0.4 if i == 0 else 0.1)  # no more than the embedding
                else:
                    key[half - 1] = 1.0
                    nn.init.normal_(a["o_proj"].weight[:, here], std=0.3 * n ** -0.5)
                w = direction(rows, [1.0, -1.0, -1.0] if h < newest else [-1.0, 1.0, -1.0])
                a["k_proj"].weight[here] = torch.outer(key.to(w), w)
                q = direction(rows[1:], [1.0, 1.0])
                a["q_proj"].weight[here] = torch.outer(key.to(w), q)
            a["q_norm"].weight.fill_(2.0)
            a["k_norm"].weight.fill_(1.5)
            # what rows of blocks look like after this layer: the newest context row is another conversation's here
            seen = context.roll(1, 0) @ a["v_proj"].weight[:newest * d].T @ a["o_proj"].weight[:, :newest * d].T
            anchor, mask = anchor + seen, mask + seen

    # ---- Passes ----

    def rotation(self, positions):
        return rotation(positions, self.shape["head_dim"], self.shape["rope_theta"])

    def _drop(self):
        return self.dropout if self.training else 0.0

    def encode(self, features):
        """features [..., n_taps, n_target_embd] -> context rows [..., n_embd]"""
        return self.hidden_norm(self.fc(drop(features.flatten(-2), self._drop())))

    def _keys(self, layer, x, rotation):
        """x [rows, n_embd], rotation of these rows -> keys and values [rows, kv heads, d]"""
        s, a = self.shape, layer.self_attn
        k = a["k_norm"](a["k_proj"](x).view(-1, s["n_kv_heads"], s["head_dim"]))
        return rotate(k, *[r.to(k.dtype) for r in rotation]), a["v_proj"](x).view(-1, s["n_kv_heads"], s["head_dim"])

    def forward(self, batch):
        """Normed rows of all blocks [conversations * anchors * B, n_embd]."""
        s, d = self.shape, self.shape["head_dim"]
        per_kv, n_kv = s["n_heads"] // s["n_kv_heads"], s["n_kv_heads"]
        c, n_anchors, B, longest = batch.n, batch.n_anchors, s["n_block"], batch.longest
        context = self.encode(batch.features).view(c * longest, -1)
        at = torch.arange(longest, device=context.device).repeat(c)
        positions = (batch.anchors.unsqueeze(-1) + torch.arange(B, device=context.device)).flatten()
        turn_context, turn_block = self.rotation(at), self.rotation(positions)
        ids = torch.full((c, n_anchors, B), s["mask"], device=context.device)
        ids[..., 0] = batch.tokens.gather(1, batch.anchors)
        x = self.embedding[ids.flatten()].to(context.dtype)
        # [c, anchors, longest]: which context a block sees
        seen = torch.arange(longest, device=context.device) < batch.anchors.unsqueeze(-1)
        bias = torch.zeros(seen.shape, device=context.device).masked_fill_(~seen, float("-inf"))
        bias = bias.repeat_interleave(B, 1).repeat(1, per_kv, 1).unsqueeze(1)  # [c, 1, per_kv anchors B, longest]
        for layer in self.layers:
            k_c, v_c = self._keys(layer, context, turn_context)
            normed = layer.input_layernorm(x)
            k_b, v_b = self._keys(layer, normed, turn_block)
            a = layer.self_attn
            q = a["q_norm"](a["q_proj"](normed).view(-1, s["n_heads"], d))
            q = rotate(q, *[r.to(q.dtype) for r in turn_block]).view(c, n_anchors * B, n_kv, per_kv, d)
            q = q.permute(0, 2, 3, 1, 4).reshape(c, n_kv, per_kv * n_anchors * B, d)
            k_c, v_c = (t.view(c, longest, n_kv, d).transpose(1, 2) for t in (k_c, v_c))
            k_b, v_b = (t.view(c, n_anchors, B, n_kv, d).permute(0, 3, 1, 2, 4) for t in (k_b, v_b))
            far = (q @ k_c.transpose(-1, -2)).float() * d ** -0.5 + bias
            own = q.view(c, n_kv, per_kv, n_anchors, B, d)
            near = (own @ k_b.transpose(-1, -2).unsqueeze(2)).float() * d ** -0.5
            weights = torch.cat((far, near.reshape(c, n_kv, -1, B)), -1).softmax(-1).to(x.dtype)
            y = weights[..., :longest] @ v_c
            near = weights[..., longest:].reshape(c, n_kv, per_kv, n_anchors, B, B) @ v_b.unsqueeze(2)
            y = y + near.reshape(y.shape)
            y = y.view(c, n_kv, per_kv, n_anchors * B, d).permute(0, 3, 1, 2, 4).reshape(len(x), -1)
            x = x + a["o_proj"](drop(y, self._drop()))
            x = x + layer.mlp(layer.post_attention_layernorm(x), self._drop())
        return self.norm(x)

    def linked(self, hidden, before):
        """hidden [rows, n_embd], before: the token before the foreseen one [rows] -> what the output multiplies, wider by
        DSpark's rank."""
        if not self.shape["n_markov"]:
            return hidden
        return torch.cat((hidden, self.markov_head["markov_w1"].weight[before].to(hidden.dtype)), -1)

    def outputs(self, rows=None):
        """Output rows [n_draft or len(rows), width of linked]."""
        parts = [self.lm_head.weight] + ([self.markov_head["markov_w2"].weight] if self.shape["n_markov"] else [])
        parts = [p if rows is None else p.index_select(0, rows) for p in parts]
        return torch.cat(parts, 1)

    def confidence(self, linked):
        """Logit of how likely the draft of these rows is accepted."""
        return self.confidence_head["proj"](linked).squeeze(-1).float()


def direction(rows, wanted):
    """w with w.x near what is wanted of each kind of row."""
    x = torch.cat(rows).float()
    y = torch.cat([torch.full((len(r),), float(v), device=x.device) for r, v in zip(rows, wanted)])
    gram = x.T @ x
    return torch.linalg.solve(gram + 1e-3 * gram.diagonal().mean() * torch.eye(len(gram), device=x.device), x.T @ y)


class BlockBatch:
    """Conversations padded to the longest, and anchors in each; what blocks foresee, flat, row by row.

    most: anchors drawn at random of a conversation (0: all), of all those whose next token is in its answer.
    """

    def __init__(self, conversations, taps, n_block, most, device, dtype, grid=1):
        import numpy as np
        self.n = len(conversations)
        sizes = [len(c) for c in conversations]
        self.longest = round_up(max(sizes) - 1, min(grid, 32))  # the last token is never context
        starts = [torch.arange(min(c.n_prompt, n - 1), n - 1) for c, n in zip(conversations, sizes)]
        if most:
            starts = [t[torch.randperm(len(t))[:most].sort().values] if len(t) > most else t for t in starts]
        self.n_anchors = round_up(max(max(len(t) for t in starts), 1), min(grid, 8))
        self.n_chains = sum(len(t) for t in starts)
        width = conversations[0].features.shape[-1]
        features = np.zeros((self.n, self.longest, len(taps), width), dtype=np.float16)
        tokens = np.zeros((self.n, self.longest + 1), dtype=np.int64)
        for i, (c, n) in enumerate(zip(conversations, sizes)):
            features[i, :n - 1] = c.features[:-1, taps]
            tokens[i, :n] = c.tokens
        anchors, labels, likely, log_p = [], [], [], []
        step = torch.arange(n_block)
        for c, n, t in zip(conversations, sizes, starts):
            t = F.pad(t, (0, self.n_anchors - len(t)), value=-1)
            place = t.clamp(min=0).unsqueeze(-1) + step                       # of the token before the foreseen one
            valid = (t.unsqueeze(-1) >= 0) & (place < n - 1)
            place = place.clamp(max=n - 2).flatten() if n > 1 else place.flatten() * 0
            ids = torch.from_numpy(np.array(c.tokens, dtype=np.int64))
            anchors.append(t.clamp(min=0))
            labels.append(torch.stack((ids[place], ids[(place + 1).clamp(max=n - 1)], valid.flatten().long())))
            likely.append(torch.from_numpy(np.asarray(c.likely)[place.numpy()]).long())
            log_p.append(torch.from_numpy(np.asarray(c.log_p)[place.numpy()]))
        self.features = torch.from_numpy(features).to(device=device, dtype=dtype)
        self.tokens = torch.from_numpy(tokens).to(device)
        self.anchors = torch.stack(anchors).to(device)                        # [n, n_anchors]
        self.before, self.next, valid = torch.cat(labels, 1).to(device)       # flat rows [n n_anchors B]
        self.valid = valid.bool()
        self.likely, self.log_p = torch.cat(likely).to(device), torch.cat(log_p).to(device)
        self.depth = step.to(device).repeat(self.n * self.n_anchors)


def targets(head, batch, rows):
    """Of flat rows: draft id of the true next token (-1: cannot be drafted), and the target's distribution as far as it is
    known (loss.draft_targets)."""
    ids, p = draft_targets(head, batch.likely[rows], batch.log_p[rows])
    return head.t2d[batch.next[rows]], ids, p


@torch.no_grad()
def chain_lengths(head, batch):
    """[n, n_anchors] accepted greedy drafts of each block, the true token before each draft: as far as a chain is accepted, it
    is the chain's own."""
    hidden = head(batch)
    output, hits = head.outputs(), []
    for at in range(0, len(hidden), 2048):
        linked = head.linked(hidden[at:at + 2048], batch.before[at:at + 2048])
        hits.append(head.d2t[(linked @ output.to(linked.dtype).T).argmax(-1)] == batch.next[at:at + 2048])
    hit = (torch.cat(hits) & batch.valid).view(batch.n, batch.n_anchors, -1)
    return hit.long().cumprod(-1).sum(-1)
