#!/usr/bin/env python3
"""Compares vision encoders with transformers: random ones of each type (mkarch mmproj-TYPE), on random pictures.

    tests/vision/check_towers.py BUILD/tests/mkarch BUILD/tests/tower_rows

Needs torch, transformers, gguf and Pillow. The published classes get the file's tensors; pictures go through Pillow's resize as
the published processors do it. Pillow 13 resizes some pictures along columns first, which changes single levels, so what is
resized has a wider tolerance. Prints the normalised squared error of the rows; keys and values are f16 here.
"""
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from gguf import GGUFReader
from PIL import Image
from transformers.models.gemma3.configuration_gemma3 import Gemma3Config
from transformers.models.gemma3.modeling_gemma3 import Gemma3MultiModalProjector
from transformers.models.idefics3.configuration_idefics3 import Idefics3Config, Idefics3VisionConfig
from transformers.models.idefics3.modeling_idefics3 import Idefics3Connector, Idefics3VisionTransformer
from transformers.models.mistral3.configuration_mistral3 import Mistral3Config
from transformers.models.mistral3.modeling_mistral3 import Mistral3MultiModalProjector
from transformers.models.pixtral.configuration_pixtral import PixtralVisionConfig
from transformers.models.pixtral.modeling_pixtral import PixtralVisionModel
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

WIDTH, HEADS, FF, BLOCKS, PATCH, OUT = 48, 2, 84, 3, 4, 64
MEAN, STD = np.array([0.5, 0.45, 0.4], np.float32), np.array([0.5, 0.25, 0.3], np.float32)
TOWER = dict(hidden_size=WIDTH, intermediate_size=FF, num_hidden_layers=BLOCKS, num_attention_heads=HEADS, patch_size=PATCH,
             num_channels=3, hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6, attention_dropout=0.0)


def tensors(path):
    return {t.name: torch.from_numpy(np.array(t.data, np.float32).reshape([int(x) for x in reversed(t.shape)])).double()
            for t in GGUFReader(path).tensors}


def load(module, values, what):
    own = module.state_dict()
    missing = [k for k in own if k not in values and not k.endswith(("position_ids", "inv_freq"))]
    assert not missing, f"{what}: {missing}"
    for k in values:
        assert k in own and own[k].shape == values[k].shape, f"{what}: {k}"
    module.load_state_dict({k: v for k, v in values.items()}, strict=False)
    return module.double().eval()


def siglip(t, head, post):
    """SigLIP's names: prefix of embeddings and layers."""
    v = {head + "embeddings.patch_embedding.weight": t["v.patch_embd.weight"],
         head + "embeddings.patch_embedding.bias": t["v.patch_embd.bias"],
         head + "embeddings.position_embedding.weight": t["v.position_embd.weight"]}
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_out": "self_attn.out_proj", "ln1": "layer_norm1", "ln2": "layer_norm2", "ffn_up": "mlp.fc1",
             "ffn_down": "mlp.fc2"}
    for i in range(BLOCKS):
        for a, b in names.items():
            for k in ("weight", "bias"):
                v[f"{head}encoder.layers.{i}.{b}.{k}"] = t[f"v.blk.{i}.{a}.{k}"]
    for k in ("weight", "bias"):
        v[f"{head}{post}.{k}"] = t[f"v.post_ln.{k}"]
    return v


def normalise(image):
    x = (np.asarray(image, np.float64) / 255 - MEAN.astype(np.float64)) / STD.astype(np.float64)
    return torch.from_numpy(x.astype(np.float32)).double().permute(2, 0, 1)[None]


def gemma3(t, image):
    config = SiglipVisionConfig(image_size=32, vision_use_head=False, **TOWER)
    model = SiglipVisionModel(config)
    head = "vision_model." if any(k.startswith("vision_model.") for k in model.state_dict()) else ""
    load(model, siglip(t, head, "post_layernorm"), "siglip")
    whole = Gemma3Config(text_config={"hidden_size": OUT, "num_hidden_layers": 1}, vision_config=config.to_dict(),
                         mm_tokens_per_image=16)
    projector = Gemma3MultiModalProjector(whole)
    load(projector, {"mm_input_projection_weight": t["mm.input_projection.weight"],
                     "mm_soft_emb_norm.weight": t["mm.soft_emb_norm.weight"] - 1}, "projector")
    x = model(normalise(image.resize((32, 32), Image.BILINEAR))).last_hidden_state
    return projector(x)


def tiles(image, s, longest):
    w0, h0 = image.size
    ratio = w0 / h0
    if w0 >= h0:
        w, h = longest, int(longest / ratio)
        h += h % 2
    else:
        h, w = longest, int(longest * ratio)
        w += w % 2
    image = image.resize((max(w, 1), max(h, 1)), Image.LANCZOS)
    w, h = image.size
    ratio = w / h
    if w >= h:
        w = math.ceil(w / s) * s
        h = math.ceil(int(w / ratio) / s) * s
    else:
        h = math.ceil(h / s) * s
        w = math.ceil(int(h * ratio) / s) * s
    image = image.resize((max(w, s), max(h, s)), Image.LANCZOS)
    w, h = image.size
    if w <= s and h <= s:
        return [image]
    parts = [image.crop((x, y, x + s, y + s)) for y in range(0, h, s) for x in range(0, w, s)]
    return parts + [image.resize((s, s), Image.LANCZOS)]


def idefics3(t, image):
    config = Idefics3VisionConfig(image_size=32, **TOWER)
    model = Idefics3VisionTransformer(config)
    load(model, siglip(t, "", "post_layernorm"), "idefics3")
    whole = Idefics3Config(text_config={"model_type": "llama", "hidden_size": OUT, "num_hidden_layers": 1},
                           vision_config=config.to_dict(), scale_factor=2)
    connector = Idefics3Connector(whole)
    load(connector, {"modality_projection.proj.weight": t["mm.model.fc.weight"]}, "connector")
    return torch.cat([connector(model(normalise(part), patch_attention_mask=torch.ones(1, 8, 8, dtype=torch.bool))
                                .last_hidden_state) for part in tiles(image, 32, 96)], 1)


def unturn(w):
    """Pairs (2i, 2i+1) of each head back to halves."""
    return w.reshape(HEADS, WIDTH // HEADS // 2, 2, -1).transpose(1, 2).reshape(w.shape)


def pixtral(t, image, merge):
    config = PixtralVisionConfig(hidden_size=WIDTH, intermediate_size=FF, num_hidden_layers=BLOCKS, num_attention_heads=HEADS,
                                 patch_size=PATCH, image_size=64, hidden_act="silu", num_channels=3)
    config.rope_parameters = getattr(config, "rope_parameters", None) or {"rope_type": "default", "rope_theta": 10000.0}
    model = PixtralVisionModel(config)
    v = {"patch_conv.weight": t["v.patch_embd.weight"], "ln_pre.weight": t["v.pre_ln.weight"]}
    names = {"attn_q": "attention.q_proj", "attn_k": "attention.k_proj", "attn_v": "attention.v_proj",
             "attn_out": "attention.o_proj", "ln1": "attention_norm", "ln2": "ffn_norm", "ffn_up": "feed_forward.up_proj",
             "ffn_gate": "feed_forward.gate_proj", "ffn_down": "feed_forward.down_proj"}
    for i in range(BLOCKS):
        for a, b in names.items():
            w = t[f"v.blk.{i}.{a}.weight"]
            v[f"transformer.layers.{i}.{b}.weight"] = unturn(w) if a in ("attn_q", "attn_k") else w
    load(model, v, "pixtral")
    w, h = image.size
    ratio = max(w, h) / 64
    if ratio > 1:
        w, h = math.floor(w / ratio), math.floor(h / ratio)
    unit = PATCH * merge
    w, h = math.ceil(max(w, 1) / unit) * unit, math.ceil(max(h, 1) / unit) * unit
    x = normalise(image.resize((w, h), Image.BICUBIC))
    x = model(x, image_sizes=torch.tensor([[h, w]])).last_hidden_state[0]
    if merge == 1:
        y = x @ t["mm.1.weight"].T + t["mm.1.bias"]
        y = torch.nn.functional.gelu(y) @ t["mm.2.weight"].T + t["mm.2.bias"]
    else:
        whole = Mistral3Config(text_config={"model_type": "mistral", "hidden_size": OUT, "rms_norm_eps": 1e-5},
                               vision_config=config.to_dict(), spatial_merge_size=merge, multimodal_projector_bias=True)
        projector = Mistral3MultiModalProjector(whole)
        load(projector, {"norm.weight": t["mm.input_norm.weight"],
                         "patch_merger.merging_layer.weight": t["mm.patch_merger.weight"],
                         "linear_1.weight": t["mm.1.weight"], "linear_1.bias": t["mm.1.bias"],
                         "linear_2.weight": t["mm.2.weight"], "linear_2.bias": t["mm.2.bias"]}, "projector")
        y = projector(x, torch.tensor([[h, w]]))
    across, down = w // unit, h // unit
    rows = []
    for i in range(down): # a break after each line but the last
        rows.append(y[i * across:(i + 1) * across])
        if i + 1 < down:
            rows.append(t["v.token_embd.img_break"][None])
    return torch.cat(rows)[None]


TYPES = {"gemma3": (gemma3, [(32, 32), (50, 41)]), "idefics3": (idefics3, [(96, 96), (64, 32), (40, 70), (20, 20)]),
         "pixtral": (lambda t, i: pixtral(t, i, 1), [(64, 64), (32, 48), (100, 37)]),
         "pixtral-merge": (lambda t, i: pixtral(t, i, 2), [(64, 64), (32, 48), (100, 37)])}


def main():
    mkarch, tool = sys.argv[1:3]
    bad = 0
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as folder:
        for name, (run, sizes) in TYPES.items():
            path = os.path.join(folder, name + ".gguf")
            subprocess.run([mkarch, f"mmproj-{name}:{OUT}", path], check=True)
            t = tensors(path)
            for k, (w, h) in enumerate(sizes):
                pixels = rng.integers(0, 256, (h, w, 3), dtype=np.uint8)
                with open(os.path.join(folder, "in"), "wb") as f:
                    f.write(pixels.tobytes())
                out = os.path.join(folder, "out")
                subprocess.run([tool, path, str(w), str(h), os.path.join(folder, "in"), out], check=True,
                               stdout=subprocess.DEVNULL)
                got = torch.from_numpy(np.fromfile(out, np.float32)).double().reshape(-1, OUT)
                with torch.no_grad():
                    want = run(t, Image.fromarray(pixels)).reshape(-1, OUT)
                assert got.shape == want.shape, f"{name} {w} x {h}: {got.shape[0]} rows, expected {want.shape[0]}"
                error = float(((got - want) ** 2).sum() / (want ** 2).sum())
                ok = error < (1e-6 if k == 0 else 1e-3)
                bad += not ok
                print(f"{name:14} {w:3} x {h:3}: {got.shape[0]:4} rows, error {error:.2e}{'' if ok else '  TOO LARGE'}")
    return 1 if bad else 0


sys.exit(main())
