"""Further encoders for check_towers.py: MiniCPM-V 2.5 to 4.5, LLaVA 1.6 and Granite Vision.

transformers 5.24 has MiniCPM-V 4.6 alone: its sizes are those of the earlier ones (with other multiples), so its processor
says into which slices a picture is cut; blocks run through SigLIP's class; the resampler is written out here as its authors
publish it. Granite Vision is LLaVA 1.6 with SigLIP, of which several blocks are read.
"""
import math
import types

import torch
from PIL import Image
from torch import nn
from transformers.models.clip.configuration_clip import CLIPVisionConfig
from transformers.models.clip.modeling_clip import CLIPVisionModel
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.llava_next.modeling_llava_next import LlavaNextModel
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

from towers_more import linear, norm


def sincos(width, at):
    freq = 10000.0 ** (-torch.arange(width // 2).double() / (width // 2))
    turn = at.double()[:, None] * freq
    return torch.cat([turn.sin(), turn.cos()], -1)


def make(c):
    """c: check_towers, for its helpers and sizes."""
    width, patch = c.WIDTH, c.PATCH

    def resample(t, x, down, across):
        out = t["resampler.proj.weight"].shape[0]
        heads = out // 128
        v = norm(t, "resampler.ln_kv", x @ t["resampler.kv.weight"].T, 1e-6)
        column, line = torch.arange(across).repeat(down), torch.arange(down).repeat_interleave(across)
        k = v + torch.cat([sincos(out // 2, column), sincos(out // 2, line)], -1)
        q = norm(t, "resampler.ln_q", t["resampler.query"], 1e-6)
        q, k, v = (linear(t, "resampler.attn." + n, z).reshape(-1, heads, 128).transpose(0, 1)
                   for n, z in (("q", q), ("k", k), ("v", v)))
        a = (torch.softmax(q @ k.transpose(1, 2) / math.sqrt(128), -1) @ v).transpose(0, 1).reshape(-1, out)
        return norm(t, "resampler.ln_post", linear(t, "resampler.attn.out", a), 1e-6) @ t["resampler.proj.weight"].T

    def minicpmv(t, image):
        model = SiglipVisionModel(SiglipVisionConfig(image_size=40, vision_use_head=False, **c.TOWER))
        head = "vision_model." if any(k.startswith("vision_model.") for k in model.state_dict()) else ""
        c.load(model, c.siglip(t, head, "post_layernorm"), "siglip")
        inner = model.vision_model if head else model
        sizes = MiniCPMV4_6ImageProcessorPil()
        w, h = image.size
        grid = sizes.get_sliced_grid((h, w), 9, 32)
        # its sides are multiples of four patches, here of one
        best = sizes.find_best_resize((h, w), 32, patch // 4, "16x", allow_upscale=grid is None)
        views = [image.resize((best[1], best[0]), Image.BICUBIC)]
        if grid:
            high, wide = sizes.get_refine_size((h, w), grid, 32, patch // 4, "16x", allow_upscale=True)
            big, a, b = image.resize((wide, high), Image.BICUBIC), wide // grid[1], high // grid[0]
            views += [big.crop((x, y, x + a, y + b)) for y in range(0, high, b) for x in range(0, wide, a)]
        rows, table = [], t["v.position_embd.weight"]
        side = int(math.sqrt(table.shape[0]))
        for view in views:
            across, down = view.size[0] // patch, view.size[1] // patch
            x = nn.functional.conv2d(c.normalise(view), t["v.patch_embd.weight"], t["v.patch_embd.bias"], stride=patch)
            x = x[0].flatten(1).T
            places = torch.tensor([side * y // down * side + side * z // across for y in range(down) for z in range(across)])
            x = inner.encoder(inputs_embeds=(x + table[places])[None]).last_hidden_state
            x = inner.post_layernorm(x)[0]
            rows.append(resample(t, x, down, across))
        return torch.cat(rows)[None]

    def clip(t):
        config = CLIPVisionConfig(hidden_size=width, intermediate_size=c.FF, num_hidden_layers=c.BLOCKS, image_size=32,
                                  num_attention_heads=c.HEADS, patch_size=patch, hidden_act="quick_gelu", layer_norm_eps=1e-5)
        model = CLIPVisionModel(config)
        head = "vision_model." if any(k.startswith("vision_model.") for k in model.state_dict()) else ""
        v = {head + "embeddings.patch_embedding.weight": t["v.patch_embd.weight"],
             head + "embeddings.class_embedding": t["v.class_embd"],
             head + "embeddings.position_embedding.weight": t["v.position_embd.weight"],
             head + "post_layernorm.weight": torch.ones(width), head + "post_layernorm.bias": torch.zeros(width)}
        c.put(v, t, {head + "pre_layrnorm": "v.pre_ln"})
        for i in range(c.BLOCKS):
            c.put(v, t, {f"{head}encoder.layers.{i}.{a}": f"v.blk.{i}.{b}" for a, b in c.CLIP.items()})
        return c.load(model, v, "clip")

    def siglip(t):
        model = SiglipVisionModel(SiglipVisionConfig(image_size=32, vision_use_head=False, **c.TOWER))
        head = "vision_model." if any(k.startswith("vision_model.") for k in model.state_dict()) else ""
        t = dict(t, **{"v.post_ln.weight": torch.ones(width), "v.post_ln.bias": torch.zeros(width)})
        return c.load(model, c.siglip(t, head, "post_layernorm"), "siglip")

    def llava(t, image, cls, layers):
        grids = [(32, 64), (64, 32), (64, 64), (96, 32), (32, 96)] # width and height
        own = LlavaNextImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32},
                                         image_grid_pinpoints=[[h, w] for w, h in grids], image_mean=list(map(float, c.MEAN)),
                                         image_std=list(map(float, c.STD)))
        x = own(image, return_tensors="np")["pixel_values"][0]
        states = (clip if cls else siglip)(t)(torch.from_numpy(x).double(), output_hidden_states=True).hidden_states
        x = torch.cat([states[k] for k in layers], -1)[:, int(cls):]
        y = linear(t, "mm.2", nn.functional.gelu(linear(t, "mm.0", x)))
        config = types.SimpleNamespace(image_grid_pinpoints=[[h, w] for w, h in grids],
                                       vision_config=types.SimpleNamespace(image_size=32, patch_size=patch))
        rows, _ = LlavaNextModel.pack_image_features(types.SimpleNamespace(config=config), [y],
                                                     torch.tensor([[image.size[1], image.size[0]]]),
                                                     "default" if cls else "full", t["model.image_newline"])
        return rows[0][None]

    sizes = [(64, 64), (32, 32), (50, 41), (20, 99), (99, 20), (100, 70), (300, 200), (7, 300)]
    return {"llava16": (lambda t, i: llava(t, i, True, [-2]), sizes),
            "granitevision": (lambda t, i: llava(t, i, False, [0, 1, 3]), sizes),
            "minicpmv:128": (minicpmv, [(32, 32), (20, 24), (50, 41), (100, 70), (33, 200), (300, 300)]),
            "minicpmv25:256": (minicpmv, [(32, 32), (90, 40)])}
