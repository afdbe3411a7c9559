#!/usr/bin/env python3
"""Trains a small vision encoder and its projector for a text model: an mmproj file of type idefics3 that sees drawn pictures.

    train_eye.py -m model.gguf -o eye.gguf                        train, then answer held-out pictures with aerie
    train_eye.py -m model.gguf -o eye.gguf --steps 0,0            only the latter

A picture has a coloured shape in one quarter and a digit in another. First the encoder learns to write a caption into its
rows, as the embeddings of the caption's tokens, which needs no text model (--steps, the first number). Then the rows are
trained through the text model, which stays as it is, so that it answers questions (the second number). Combinations of
colour, shape and digit with an even sum of their numbers modulo 5 (0, 2, 4) are trained, the others are held out. The check
asks the program, with the file that was written: what it reports is what a user gets. The state lies in OUT.state: the same
command goes on where it was cut.

Needs torch, transformers, gguf, numpy and Pillow. A GPU is not used.
"""
import argparse
import base64
import io
import json
import os
import random
import subprocess
import sys
import time
import urllib.request

import numpy as np
import torch
from gguf import GGUFReader, GGUFWriter, dequantize
from PIL import Image, ImageDraw, ImageFont
from torch import nn
from torch.nn import functional as F

SIDE, PATCH, MERGE, WIDTH, HEADS, FF, BLOCKS = 64, 8, 2, 96, 3, 192, 3
N_ROWS = (SIDE // PATCH // MERGE) ** 2
COLOURS = {"red": (220, 30, 30), "green": (20, 150, 40), "blue": (30, 60, 220), "yellow": (240, 210, 20),
           "black": (15, 15, 15), "purple": (140, 30, 170)}
SHAPES = ["circle", "square", "triangle", "cross", "star"]
PLACES = ["top left", "top right", "bottom left", "bottom right"]
CAPTION = [" {colour}", " {shape}", " {place}", ".", " Digit", " {digit}", " {other}", "."]  # tokens end where parts do
QUESTIONS = [("Which shape is in the picture?", "shape"), ("What colour is the shape?", "colour"),
             ("Which digit is in the picture?", "digit"), ("Where is the shape?", "place"), ("Where is the digit?", "other")]
BEGIN, END = "<fake_token_around_image><global-img>", "<fake_token_around_image>"


# ---- Pictures --------------------------------------------------------------------------------------------------

def is_held_out(colour, shape, digit):
    return (list(COLOURS).index(colour) + SHAPES.index(shape) + digit) % 5 in (1, 3)


def choose(rng, held_out):
    while True:
        colour, shape, digit = rng.choice(list(COLOURS)), rng.choice(SHAPES), rng.randrange(10)
        if is_held_out(colour, shape, digit) == held_out:
            break
    place, other = rng.sample(PLACES, 2)
    return {"colour": colour, "shape": shape, "digit": str(digit), "place": place, "other": other}


def points(shape, x, y, r, turn):
    if shape == "star":
        return [(x + (r if k % 2 == 0 else 0.42 * r) * np.sin(turn + k * np.pi / 5),
                 y - (r if k % 2 == 0 else 0.42 * r) * np.cos(turn + k * np.pi / 5)) for k in range(10)]
    n = 3 if shape == "triangle" else 4
    start = turn + (np.pi / 4 if shape == "square" else 0)
    return [(x + r * np.sin(start + 2 * np.pi * k / n), y - r * np.cos(start + 2 * np.pi * k / n)) for k in range(n)]


def draw(rng, facts):
    """Draws at twice the size and halves it, so that edges are smooth."""
    scale = 2
    paper = tuple(rng.randrange(190, 256) for _ in range(3))
    image = Image.new("RGB", (SIDE * scale, SIDE * scale), paper)
    pen = ImageDraw.Draw(image)

    def centre(place):
        half = SIDE / 2
        low, high = half / 2 - 2, half / 2 + 2
        x, y = rng.uniform(low, high), rng.uniform(low, high)
        return (x + half * place.endswith("right")) * scale, (y + half * place.startswith("bottom")) * scale
    r = rng.uniform(9, 14)
    x, y = centre(facts["place"])
    ink = tuple(max(0, min(255, c + rng.randrange(-15, 16))) for c in COLOURS[facts["colour"]])
    turn, r2 = rng.uniform(-0.25, 0.25), r * scale
    if facts["shape"] == "circle":
        pen.ellipse([x - r2, y - r2, x + r2, y + r2], fill=ink)
    elif facts["shape"] == "cross":
        for angle in (turn, turn + np.pi / 2):
            dx, dy = r2 * np.sin(angle), r2 * np.cos(angle)
            pen.line([x - dx, y - dy, x + dx, y + dy], fill=ink, width=int(0.5 * r2))
    else:
        pen.polygon(points(facts["shape"], x, y, r2, turn), fill=ink)
    size = rng.randrange(24, 30)
    x, y = centre(facts["other"])
    grey = rng.randrange(0, 110)
    pen.text((x, y), facts["digit"], fill=(grey, grey, grey), font=ImageFont.load_default(size * scale), anchor="mm")
    return image.resize((SIDE, SIDE), Image.LANCZOS)


def batch(rng, n, held_out=False):
    facts = [choose(rng, held_out) for _ in range(n)]
    pixels = np.stack([np.asarray(draw(rng, f)) for f in facts])
    return facts, torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1).permute(0, 3, 1, 2)


# ---- Encoder ---------------------------------------------------------------------------------------------------

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH, 1e-6), nn.LayerNorm(WIDTH, 1e-6)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, FF), nn.Linear(FF, WIDTH)

    def forward(self, x):
        b, n, _ = x.shape
        y = self.ln1(x)
        q, k, v = (f(y).view(b, n, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, WIDTH))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Eye(nn.Module):
    """SigLIP's encoder and Idefics 3's connector: MERGE x MERGE patches make a row."""

    def __init__(self, n_out):
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.places = nn.Parameter(0.02 * torch.randn((SIDE // PATCH) ** 2, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.post = nn.LayerNorm(WIDTH, 1e-6)
        self.fc = nn.Linear(WIDTH * MERGE ** 2, n_out, bias=False)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x)
        n = SIDE // PATCH // MERGE
        x = self.post(x).view(-1, n, MERGE, n, MERGE, WIDTH).permute(0, 1, 3, 2, 4, 5)
        return self.fc(x.reshape(-1, n * n, MERGE * MERGE * WIDTH))


def write(eye, path, n_out):
    w = GGUFWriter(path, "clip")
    w.add_type("mmproj")
    w.add_name("eye for drawn shapes and digits")
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.projector_type", "idefics3")
    w.add_bool("clip.use_gelu", True)
    for key, value in (("image_size", SIDE), ("preproc_image_size", SIDE), ("patch_size", PATCH), ("embedding_length", WIDTH),
                       ("feed_forward_length", FF), ("block_count", BLOCKS), ("projection_dim", n_out),
                       ("attention.head_count", HEADS), ("projector.scale_factor", MERGE)):
        w.add_uint32("clip.vision." + key, value)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    w.add_array("clip.vision.image_mean", [0.5] * 3)
    w.add_array("clip.vision.image_std", [0.5] * 3)

    def put(name, tensor):
        w.add_tensor(name, tensor.detach().float().contiguous().numpy())

    def pair(name, module):
        put(name + ".weight", module.weight)
        put(name + ".bias", module.bias)
    pair("v.patch_embd", eye.patch)
    put("v.position_embd.weight", eye.places)
    for i, block in enumerate(eye.blocks):
        for name, module in (("ln1", block.ln1), ("ln2", block.ln2), ("attn_q", block.q), ("attn_k", block.k),
                             ("attn_v", block.v), ("attn_out", block.out), ("ffn_up", block.up), ("ffn_down", block.down)):
            pair(f"v.blk.{i}.{name}", module)
    pair("v.post_ln", eye.post)
    put("mm.model.fc.weight", eye.fc.weight)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- The text model --------------------------------------------------------------------------------------------

def load_text_model(path):
    """A GGUF file of the architecture llama as transformers' class, its weights unpacked."""
    from transformers import LlamaConfig, LlamaForCausalLM
    file = GGUFReader(path)

    def key(name, default=None):
        field = file.get_field("llama." + name)
        return default if field is None else field.contents()
    if file.get_field("general.architecture").contents() != "llama":
        sys.exit(f"{path}: a model of the architecture llama is needed")
    tensors = {t.name: torch.from_numpy(dequantize(t.data, t.tensor_type).astype(np.float32)) for t in file.tensors}
    n_heads, n_layers = key("attention.head_count"), key("block_count")
    n_kv, n_vocab = key("attention.head_count_kv", n_heads), len(tensors["token_embd.weight"])
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=n_vocab, hidden_size=key("embedding_length"), intermediate_size=key("feed_forward_length"),
        num_hidden_layers=n_layers, num_attention_heads=n_heads, num_key_value_heads=n_kv,
        max_position_embeddings=key("context_length"), rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        rope_theta=key("rope.freq_base", 10000.0), tie_word_embeddings="output.weight" not in tensors))

    def halves(w, n):  # pairs (2i, 2i + 1) of each head, as the file has them, to halves
        return w.reshape(n, w.shape[0] // n // 2, 2, -1).transpose(1, 2).reshape(w.shape)
    v = {"model.embed_tokens.weight": tensors["token_embd.weight"], "model.norm.weight": tensors["output_norm.weight"],
         "lm_head.weight": tensors.get("output.weight", tensors["token_embd.weight"])}
    for i in range(n_layers):
        for a, b in (("attn_q", "self_attn.q_proj"), ("attn_k", "self_attn.k_proj"), ("attn_v", "self_attn.v_proj"),
                     ("attn_output", "self_attn.o_proj"), ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"),
                     ("ffn_down", "mlp.down_proj"), ("attn_norm", "input_layernorm"),
                     ("ffn_norm", "post_attention_layernorm")):
            w = tensors[f"blk.{i}.{a}.weight"]
            w = halves(w, n_heads) if a == "attn_q" else halves(w, n_kv) if a == "attn_k" else w
            v[f"model.layers.{i}.{b}.weight"] = w
    model.load_state_dict(v)
    return model.eval().requires_grad_(False)


# ---- Training --------------------------------------------------------------------------------------------------

class Words:
    """Tokenizes texts with the program, each text only once."""

    def __init__(self, aerie, model):
        self.command, self.known = [aerie, "tokenize", "-m", model, "--no-bos", "-p"], {}

    def __call__(self, text):
        if text not in self.known:
            out = subprocess.run(self.command + [text], capture_output=True, text=True, check=True).stdout
            self.known[text] = [int(x) for x in out.split()]
        return self.known[text]


def rate(done, warm=0.05):
    """Returns the fraction of the learning rate at a fraction of the steps."""
    return done / warm if done < warm else 0.5 * (1 + np.cos(np.pi * (done - warm) / (1 - warm)))


def save(path, state):
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def train(eye, path, what, n_steps, n, top_rate, loss_of, seconds=60):
    """Steps of n pictures. The state is saved to `path` now and then, so that a run that was cut goes on where it was."""
    optimiser = torch.optim.AdamW(eye.parameters(), lr=top_rate, betas=(0.9, 0.98), weight_decay=0.01)
    rng, first, mean = random.Random(what), 0, None
    if os.path.exists(path):
        state = torch.load(path, weights_only=False)
        eye.load_state_dict(state["eye"])
        if state["what"] == what:
            optimiser.load_state_dict(state["optimiser"])
            rng.setstate(state["rng"])
            first, mean = state["step"], state["mean"]
    said = time.time()
    for step in range(first, n_steps):
        for group in optimiser.param_groups:
            group["lr"] = top_rate * rate((step + 1) / (n_steps + 1))
        facts, pixels = batch(rng, n)
        loss = loss_of(eye(pixels), facts)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(eye.parameters(), 1.0)
        optimiser.step()
        mean = loss.item() if mean is None else 0.97 * mean + 0.03 * loss.item()
        if time.time() - said >= seconds or step + 1 == n_steps:
            said = time.time()
            print(f"{what}: step {step + 1} of {n_steps}, loss {mean:.4f}", flush=True)
            save(path, {"what": what, "eye": eye.state_dict(), "optimiser": optimiser.state_dict(), "rng": rng.getstate(),
                        "step": step + 1, "mean": mean})


class Captions:
    """The targets for the rows of a picture: the embeddings of its caption's tokens, followed by line ends."""

    def __init__(self, words, embedding):
        self.words, self.pad = words, words("\n")[0]
        vocabulary = {self.pad}
        for key, values in (("colour", COLOURS), ("shape", SHAPES), ("digit", range(10)), ("place", PLACES), ("other", PLACES)):
            for part in CAPTION:
                if key in part or "{" not in part:
                    for value in values:
                        vocabulary.update(words(part.format(**{key: value})))
        self.vocabulary = torch.tensor(sorted(vocabulary))
        self.embedding = embedding[self.vocabulary].float()
        self.size = self.embedding.pow(2).sum(1).mean()

    def ids(self, facts):
        """Numbers within the vocabulary [n][N_ROWS]."""
        ids = [[t for part in CAPTION for t in self.words(part.format(**f))] for f in facts]
        return torch.searchsorted(self.vocabulary, torch.tensor([i + [self.pad] * (N_ROWS - len(i)) for i in ids]))

    def nearest(self, rows):
        """Squared distances [n][N_ROWS][vocabulary] in parts of a token's mean square."""
        e = self.embedding
        return ((rows.pow(2).sum(-1, keepdim=True) - 2 * rows @ e.T) + e.pow(2).sum(-1)) / self.size

    def loss(self, rows, facts, near=1.0):
        """Combines which token is nearest to a row with the distance to the right one. Digits are close together: without the
        first part the second hardly tells them apart."""
        ids, d = self.ids(facts), self.nearest(rows)
        kind = F.cross_entropy((-20 * d).flatten(0, 1), ids.flatten())
        return kind + near * d.gather(2, ids[:, :, None]).mean()


class Answers:
    """Cross entropy of the answers to all questions about a picture. What comes before the picture is run once; the
    questions see the picture and not each other."""

    def __init__(self, words, lm, prefix_text, captions):
        self.lm, self.captions, self.embedding = lm, captions, lm.get_input_embeddings().weight
        with torch.no_grad():
            first = lm.model(torch.tensor([words(prefix_text + BEGIN)]), use_cache=True).past_key_values
        self.stored = [(layer.keys, layer.values) for layer in first.layers]
        self.words = words

    def __call__(self, rows, facts):
        from transformers import DynamicCache
        n_before, turns = self.stored[0][0].shape[2], []
        for f in facts:
            turns.append([(self.words(END + question + "<|im_end|>\n<|im_start|>assistant\n"),
                           self.words(f[key] + "<|im_end|>")) for question, key in QUESTIONS])
        n = max(sum(len(a) + len(b) for a, b in t) for t in turns)
        ids = torch.zeros(len(facts), n, dtype=torch.long)
        places = torch.zeros(len(facts), N_ROWS + n, dtype=torch.long)
        places[:, :N_ROWS] = n_before + torch.arange(N_ROWS)
        part = torch.full((len(facts), N_ROWS + n), -1)  # the question that a position belongs to; -1: padding
        part[:, :N_ROWS] = 0
        asked, wanted = [], []
        for i, turn in enumerate(turns):
            at = 0
            for k, (text, answer) in enumerate(turn):
                m = len(text) + len(answer)
                ids[i, at:at + m] = torch.tensor(text + answer)
                part[i, N_ROWS + at:N_ROWS + at + m] = k + 1
                places[i, N_ROWS + at:N_ROWS + at + m] = n_before + N_ROWS + torch.arange(m)
                asked += [(i, N_ROWS + at + len(text) - 1 + j) for j in range(len(answer))]
                wanted += answer
                at += m
        order = torch.arange(N_ROWS + n)
        sees = ((part[:, :, None] == part[:, None, :]) | (part[:, None, :] == 0)) & (order[:, None] >= order[None, :])
        sees = torch.cat([torch.ones(len(facts), N_ROWS + n, n_before, dtype=torch.bool), sees], 2)
        mask = torch.zeros(sees.shape, dtype=self.embedding.dtype).masked_fill(~sees, torch.finfo(self.embedding.dtype).min)
        cache = DynamicCache()
        for i, (k, v) in enumerate(self.stored):
            cache.update(k.expand(len(facts), -1, -1, -1), v.expand(len(facts), -1, -1, -1), i)
        hidden = self.lm.model(inputs_embeds=torch.cat([rows.to(self.embedding.dtype), self.embedding[ids]], 1),
                               attention_mask=mask[:, None], position_ids=places, past_key_values=cache,
                               use_cache=True).last_hidden_state
        at = torch.tensor(asked)
        logits = self.lm.lm_head(hidden[at[:, 0], at[:, 1]]).float()
        return F.cross_entropy(logits, torch.tensor(wanted)) + self.captions.loss(rows, facts, 0.1)


# ---- Check -----------------------------------------------------------------------------------------------------

def check(o, n):
    """Asks a server about n held-out pictures; returns how many answers of each question are right."""
    port = 20000 + os.getpid() % 20000
    server = subprocess.Popen([o.aerie, "serve", "-m", o.model, "--mmproj", o.out, "--port", str(port), "-np", "2"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    right, wrong = {key: 0 for _, key in QUESTIONS}, []
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).read()
                break
            except OSError:
                time.sleep(0.1)
        rng = random.Random(9)
        for i in range(n):
            facts = choose(rng, True)
            data = io.BytesIO()
            draw(rng, facts).save(data, "PNG")
            url = "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
            for question, key in QUESTIONS:
                body = {"temperature": 0, "max_tokens": 8, "messages": [{"role": "user", "content": [
                    {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]}]}
                request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(),
                                                 {"Content-Type": "application/json"})
                answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"].strip()
                right[key] += answer == facts[key]
                if answer != facts[key] and len(wrong) < 5:
                    wrong.append((question, facts[key], answer))
    finally:
        server.terminate()
        server.wait()
    for question, key in QUESTIONS:
        print(f"{question} {right[key]} of {n} right")
    for question, want, got in wrong:
        print(f"    {question} {want!r} was answered {got!r}")
    return right


def report(eye, captions):
    facts, pixels = batch(random.Random(5), 300, True)
    with torch.no_grad():
        right = (captions.nearest(eye(pixels)).argmin(-1) == captions.ids(facts)).float().mean(0)
    print("tokens of held-out captions that their rows are nearest to:", " ".join(f"{100 * float(x):.0f} %" for x in right),
          flush=True)


def train_all(o, n_steps):
    torch.manual_seed(1)
    torch.set_num_threads(o.threads)
    lm = load_text_model(o.model).to(torch.bfloat16 if o.bf16 else torch.float32)
    words, eye, state = Words(o.aerie, o.model), Eye(lm.config.hidden_size), o.out + ".state"
    captions = Captions(words, lm.get_input_embeddings().weight)
    if not captions_done(state):
        train(eye, state, "captions", n_steps[0], 64, 1.5e-3, captions.loss)
        report(eye, captions)
    text = subprocess.run([o.aerie, "template", "-m", o.model, "--messages", "-"], input='[{"role":"user","content":"@@"}]',
                          capture_output=True, text=True, check=True).stdout
    train(eye, state, "answers", n_steps[1], 2, 1e-3, Answers(words, lm, text.split("@@")[0], captions))
    write(eye, o.out, lm.config.hidden_size)


def captions_done(state):
    return os.path.exists(state) and torch.load(state, weights_only=False)["what"] == "answers"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-m", "--model", required=True, help="text model (GGUF) of a Llama shape with a ChatML template")
    p.add_argument("-o", "--out", required=True, help="mmproj file to write")
    p.add_argument("--aerie", default="build/aerie", help="the program")
    p.add_argument("--steps", default="1400,500", help="for captions (64 pictures), for answers (2, 5 questions each)")
    p.add_argument("--bf16", action="store_true", help="run the text model in bfloat16: half the time on some CPUs")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--check", type=int, default=100, metavar="N", help="ask about N held-out pictures")
    o = p.parse_args()
    n_steps = [int(x) for x in o.steps.split(",")]
    if len(n_steps) != 2 or min(n_steps) < 0:
        p.error("--steps takes two numbers, as in 1400,500")
    if n_steps != [0, 0]:
        train_all(o, n_steps)
    if o.check:
        check(o, o.check)
    return 0


if __name__ == "__main__":
    sys.exit(main())
