"""Further encoders for check_towers.py: GLM-4V, GLM-OCR, Kimi-VL, Kimi-K2.5, PaddleOCR-VL, LightOnOCR, LLaVA, dots.ocr.

transformers 5.24 has all of them but Kimi-VL and dots.ocr: the first is run through K2.5's class, whose only difference is the
order of a head's rows in the file; the second is written out here as its authors publish it.
"""
import math

import torch
from PIL import Image
from torch import nn
from transformers.models.clip.configuration_clip import CLIPVisionConfig
from transformers.models.clip.modeling_clip import CLIPVisionModel
from transformers.models.glm4v.configuration_glm4v import Glm4vVisionConfig
from transformers.models.glm4v.image_processing_pil_glm4v import smart_resize as glm_resize
from transformers.models.glm4v.modeling_glm4v import Glm4vVisionModel
from transformers.models.glm_ocr.configuration_glm_ocr import GlmOcrVisionConfig
from transformers.models.glm_ocr.modeling_glm_ocr import GlmOcrVisionModel
from transformers.models.kimi_k25.configuration_kimi_k25 import Kimi_K25VisionConfig
from transformers.models.kimi_k25.image_processing_kimi_k25 import navit_resize
from transformers.models.kimi_k25.modeling_kimi_k25 import Kimi_K25VisionModel
from transformers.models.paddleocr_vl.configuration_paddleocr_vl import PaddleOCRVisionConfig
from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import smart_resize as paddle_resize
from transformers.models.paddleocr_vl.modeling_paddleocr_vl import PaddleOCRVisionModel


def linear(t, name, x):
    y = x @ t[name + ".weight"].T
    return y + t[name + ".bias"] if name + ".bias" in t else y


def norm(t, name, x, eps):
    return nn.functional.layer_norm(x, x.shape[-1:], t[name + ".weight"], t[name + ".bias"], eps)


def rms(t, name, x, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * t[name + ".weight"]


def make(c):
    """c: check_towers, for its helpers and sizes."""
    width, heads, ff, blocks, patch, out = c.WIDTH, c.HEADS, c.FF, c.BLOCKS, c.PATCH, c.OUT

    def glm(t, image, ocr):
        kind, config_kind = (GlmOcrVisionModel, GlmOcrVisionConfig) if ocr else (Glm4vVisionModel, Glm4vVisionConfig)
        config = config_kind(depth=blocks, hidden_size=width, num_heads=heads, patch_size=patch, image_size=24,
                             out_hidden_size=out, intermediate_size=ff if ocr else 52, spatial_merge_size=2,
                             temporal_patch_size=2, rms_norm_eps=1e-5, hidden_act="silu", attention_bias=ocr)
        model = kind(config)
        for b in model.blocks if not ocr else []: # published ones have the width of the text model there
            b.mlp.gate_proj, b.mlp.up_proj = nn.Linear(width, ff, bias=False), nn.Linear(width, ff, bias=False)
            b.mlp.down_proj = nn.Linear(ff, width, bias=False)
        model.merger = type(model.merger)(dim=out, context_dim=52, hidden_act="silu")
        v = {"patch_embed.proj.weight": c.both(t), "patch_embed.proj.bias": t["v.patch_embd.bias"],
             "downsample.weight": t["mm.patch_merger.weight"], "downsample.bias": t["mm.patch_merger.bias"]}
        if not ocr:
            v["embeddings.position_embedding.weight"] = t["v.position_embd.weight"]
        for i in range(blocks):
            names = {"norm1": "ln1", "norm2": "ln2", "attn.qkv": "attn_qkv", "attn.proj": "attn_out",
                     "attn.q_norm": "attn_q_norm", "attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
                     "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
            c.put(v, t, {f"blocks.{i}.{a}": f"v.blk.{i}.{b}" for a, b in names.items()})
        c.put(v, t, {"post_conv_layernorm": "v.norm_embd", "post_layernorm": "v.post_ln", "merger.proj": "mm.model.fc",
                     "merger.post_projection_norm": "mm.post_norm", "merger.gate_proj": "mm.gate", "merger.up_proj": "mm.up",
                     "merger.down_proj": "mm.down"})
        c.load(model, v, "glm")
        w, h = image.size
        unit = patch * 2
        h, w = glm_resize(2, h, w, 2, unit, 8 * 2 * unit * unit, 6144 * 2 * unit * unit)
        x = c.normalise(image.resize((w, h), Image.BICUBIC))
        return model(*c.blocks_of(x, 2, 2)).pooler_output[None]

    def kimi(t, image, halves, most):
        config = Kimi_K25VisionConfig(patch_size=patch, pos_emb_height=6, pos_emb_width=6, num_attention_heads=heads,
                                      num_hidden_layers=blocks, hidden_size=width, intermediate_size=ff)
        model = Kimi_K25VisionModel(config)
        d, half = width // heads, width // heads // 2
        order = torch.empty(d, dtype=torch.long) # of the file's rows of a head in this class's order
        for i in range(half):
            for part in range(2):
                order[i + part * half] = (i % 2 * half + i // 2 * 2 if halves else 2 * i) + part
        rows = (torch.arange(heads)[:, None] * d + order[None]).reshape(-1)
        v = {"patch_embed.proj.weight": t["v.patch_embd.weight"], "patch_embed.proj.bias": t["v.patch_embd.bias"],
             "patch_embed.pos_emb.position_embeddings": t["v.position_embd.weight"].reshape(6, 6, width)}
        for i in range(blocks):
            names = {"norm1": "ln1", "norm2": "ln2", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "attn.proj": "attn_out"}
            c.put(v, t, {f"layers.{i}.{a}": f"v.blk.{i}.{b}" for a, b in names.items()})
            for k in ("weight", "bias"):
                if halves:
                    parts = t[f"v.blk.{i}.attn_qkv.{k}"].chunk(3)
                else:
                    parts = [t[f"v.blk.{i}.attn_{x}.{k}"] for x in "qkv"]
                for x, part in zip("qkv", parts):
                    v[f"layers.{i}.attn.{x}_proj.{k}"] = part if x == "v" else part[rows]
        c.put(v, t, {"final_layernorm": "v.post_ln"})
        c.load(model, v, "kimi")
        w, h = image.size
        (h, w), (big_h, big_w) = navit_resize(h, w, patch, 2, most * 4, 512)
        canvas = Image.new("RGB", (big_w, big_h))
        canvas.paste(image.resize((w, h), Image.BICUBIC), (0, 0))
        down, across = big_h // patch, big_w // patch
        x = c.normalise(canvas)[0].reshape(3, down, patch, across, patch).permute(1, 3, 0, 2, 4).reshape(-1, 3, patch, patch)
        y = model(x, torch.tensor([[1, down, across]])).pooler_output.double()
        y = norm(t, "mm.input_norm", y, 1e-5).reshape(y.shape[0], -1)
        return linear(t, "mm.2", nn.functional.gelu(linear(t, "mm.1", y)))[None]

    def shuffle(x, down, across):
        x = x.reshape(down // 2, 2, across // 2, 2, width).transpose(1, 2)
        return x.reshape(down * across // 4, 4 * width)

    def paddleocr(t, image):
        config = PaddleOCRVisionConfig(image_size=24, spatial_merge_size=2, **c.TOWER)
        model = PaddleOCRVisionModel(config)
        c.load(model, c.siglip(t, "vision_model.", "post_layernorm"), "paddleocr")
        w, h = image.size
        h, w = paddle_resize(h, w, patch * 2, 9 * 64 + 3, 100 * 64 + 7)
        down, across = h // patch, w // patch
        x = c.normalise(image.resize((w, h), Image.BICUBIC))[0].reshape(3, down, patch, across, patch).permute(1, 3, 0, 2, 4)
        x = model(x.reshape(1, -1, 3, patch, patch), torch.tensor([[1, down, across]])).last_hidden_state
        y = shuffle(norm(t, "mm.input_norm", x.reshape(-1, width), 1e-5), down, across)
        return linear(t, "mm.2", nn.functional.gelu(linear(t, "mm.1", y)))[None]

    def llava(t, image):
        config = CLIPVisionConfig(hidden_size=width, intermediate_size=ff, num_hidden_layers=blocks, num_attention_heads=heads,
                                  image_size=32, patch_size=patch, hidden_act="quick_gelu", layer_norm_eps=1e-5)
        model = CLIPVisionModel(config)
        head = "vision_model." if any(k.startswith("vision_model.") for k in model.state_dict()) else ""
        v = {head + "embeddings.patch_embedding.weight": t["v.patch_embd.weight"],
             head + "embeddings.class_embedding": t["v.class_embd"],
             head + "embeddings.position_embedding.weight": t["v.position_embd.weight"],
             head + "post_layernorm.weight": torch.ones(width), head + "post_layernorm.bias": torch.zeros(width)}
        c.put(v, t, {head + "pre_layrnorm": "v.pre_ln"})
        names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
                 "self_attn.out_proj": "attn_out", "layer_norm1": "ln1", "layer_norm2": "ln2", "mlp.fc1": "ffn_up",
                 "mlp.fc2": "ffn_down"}
        for i in range(blocks):
            c.put(v, t, {f"{head}encoder.layers.{i}.{a}": f"v.blk.{i}.{b}" for a, b in names.items()})
        c.load(model, v, "clip")
        w, h = image.size
        side = max(w, h)
        square = Image.new("RGB", (side, side), (122, 116, 104)) # expand2square of LLaVA
        square.paste(image, ((side - w) // 2, (side - h) // 2))
        x = model(c.normalise(square.resize((32, 32), Image.BICUBIC)), output_hidden_states=True).hidden_states[-2][:, 1:]
        return linear(t, "mm.2", nn.functional.gelu(linear(t, "mm.0", x)))

    def dotsocr(t, image):
        w, h = image.size
        h, w = c.smart_resize(h, w, factor=2 * patch, min_pixels=4 * 64, max_pixels=900 * 64)
        x = c.normalise(image.resize((w, h), Image.BICUBIC))
        x = nn.functional.conv2d(x, t["v.patch_embd.weight"], t["v.patch_embd.bias"], stride=patch)[0].flatten(1).T
        down, across = h // patch, w // patch
        x = rms(t, "v.pre_ln", x, 1e-5)
        d = width // heads
        freq = 10000.0 ** (-torch.arange(0, d // 2, 2).double() / (d // 2))
        y, z = torch.meshgrid(torch.arange(down).double(), torch.arange(across).double(), indexing="ij")
        turn = torch.cat([y.reshape(-1, 1) * freq, z.reshape(-1, 1) * freq], -1)
        cos, sin = torch.cat([turn.cos()] * 2, -1), torch.cat([turn.sin()] * 2, -1)

        def turned(q):
            a, b = q[..., :d // 2], q[..., d // 2:]
            return q * cos + torch.cat([-b, a], -1) * sin
        for i in range(blocks):
            n = rms(t, f"v.blk.{i}.ln1", x, 1e-5)
            q, k, v = (linear(t, f"v.blk.{i}.attn_{p}", n).reshape(-1, heads, d).transpose(0, 1) for p in "qkv")
            a = torch.softmax(turned(q) @ turned(k).transpose(1, 2) / math.sqrt(d), -1) @ v
            x = x + linear(t, f"v.blk.{i}.attn_out", a.transpose(0, 1).reshape(-1, width))
            n = rms(t, f"v.blk.{i}.ln2", x, 1e-5)
            n = nn.functional.silu(linear(t, f"v.blk.{i}.ffn_gate", n)) * linear(t, f"v.blk.{i}.ffn_up", n)
            x = x + linear(t, f"v.blk.{i}.ffn_down", n)
        x = norm(t, "mm.input_norm", rms(t, "mm.post_norm", x, 1e-5), 1e-6)
        return linear(t, "mm.2", nn.functional.gelu(linear(t, "mm.0", shuffle(x, down, across))))[None]

    return {"glm4v": (lambda t, i: glm(t, i, False), [(64, 64), (24, 24), (200, 77), (5, 90)]),
            "glmocr": (lambda t, i: glm(t, i, True), [(64, 64), (72, 120), (7, 3)]),
            "kimivl": (lambda t, i: kimi(t, i, False, 1024), [(64, 64), (24, 24), (37, 101), (3, 200), (400, 300)]),
            "kimik25": (lambda t, i: kimi(t, i, True, 4096), [(64, 64), (24, 24), (37, 101), (3, 200), (400, 300)]),
            "paddleocr": (paddleocr, [(64, 64), (24, 32), (37, 101), (5, 90), (200, 300)]),
            "lightonocr": (lambda t, i: c.pixtral(t, i, 2), [(64, 64), (32, 48), (100, 37)]),
            "mlp": (llava, [(32, 32), (50, 41), (20, 99)]), "dotsocr": (dotsocr, [(32, 32), (24, 40), (61, 35), (300, 20)])}
