#!/usr/bin/env python3
"""Vision encoders of Hugging Face folders, converted: every tensor must be the one that the folder was made of.

    check_mmproj.py AERIE MKARCH

mkarch's random mmproj file of each type is taken apart into a folder with the names, shapes and orders of the published classes
(written down here once more, from transformers), and 'aerie convert --mmproj' must make the same tensors and keys of it. Then
folders are damaged: each must be refused with a sentence, and leave no file. Needs Python alone.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import folders

AERIE, MKARCH = sys.argv[1:3]
P, W, HEADS, OUT = 4, 48, 2, 64  # mkmmproj's


def read_gguf(path):
    """Keys, and tensors as {name: (shape with the slowest dimension first, bytes)}."""
    keys, tensors = folders.read_gguf(path)
    return keys, {name: (shape, values.tobytes()) for name, (shape, values) in tensors.items()}


def write_folder(folder, config, tensors, colours=(0, 0)):
    """colours: least and most pixels; (): no file of the picture processor."""
    os.makedirs(folder, exist_ok=True)
    folders.write_safetensors(os.path.join(folder, "model.safetensors"),
                              {name: (shape, data, "F32") for name, (shape, data) in tensors.items()})
    files = {"config.json": config, "tokenizer_config.json": {"added_tokens_decoder": {"1": {"content": "[IMG_BREAK]"}}}}
    if colours:
        files["preprocessor_config.json"] = {"min_pixels": colours[0], "max_pixels": colours[1],"image_mean": [0.5, 0.45, 0.4],
                                             "image_std": [0.5, 0.25, 0.3], "size": {"longest_edge": 96}}
    for name, value in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            json.dump(value, f)


def floats(t):
    return list(struct.unpack(f"<{len(t[1]) // 4}f", t[1]))


def packed(shape, values):
    return list(shape), struct.pack(f"<{len(values)}f", *values)


def pixels_last(t, shape=None):
    """Rows of [3][p][p] as [p][p][3]."""
    x, n = floats(t), 3 * (P if len(t[0]) == 4 else 3 * P) ** 2
    area = n // 3
    out = [x[r * n + c * area + i] for r in range(len(x) // n) for i in range(area) for c in range(3)]
    return packed(shape or t[0], out)


def halves(t):
    """Rows (2i, 2i + 1) of each head as i, i + half."""
    rows, columns, d = t[0][0], t[0][1], t[0][0] // HEADS
    order = [h * d + i for h in range(HEADS) for i in list(range(0, d, 2)) + list(range(1, d, 2))]
    return [rows, columns], b"".join(t[1][4 * columns * r:4 * columns * (r + 1)] for r in order)


def joined(t, i, part):
    parts = [t[f"v.blk.{i}.attn_{x}.{part}"] for x in "qkv"]
    return [3 * parts[0][0][0]] + parts[0][0][1:], b"".join(p[1] for p in parts)


def frames(t):
    a, b, out, n = floats(t["v.patch_embd.weight"]), floats(t["v.patch_embd.weight.1"]), [], P * P
    for k in range(0, len(a), n):
        out += a[k:k + n] + b[k:k + n]
    return packed([W, 3, 2, P, P], out)


def copy(out, t, pairs, there="", here=""):
    for a, b in pairs.items():
        for part in (".weight", ".bias"):
            if f"{here}{b}{part}" in t:
                out[f"{there}{a}{part}"] = t[f"{here}{b}{part}"]


SIGLIP = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
          "self_attn.out_proj": "attn_out", "layer_norm1": "ln1", "layer_norm2": "ln2", "mlp.fc1": "ffn_up",
          "mlp.fc2": "ffn_down"}
QWEN = {"attn.proj": "attn_out", "norm1": "ln1", "norm2": "ln2"}


def siglip(t, head, kernel, more):
    out = {head + "embeddings.patch_embedding.weight": kernel(t["v.patch_embd.weight"]),
           head + "embeddings.patch_embedding.bias": t["v.patch_embd.bias"],
           head + "embeddings.position_embedding.weight": t["v.position_embd.weight"]}
    copy(out, t, {head + "post_layernorm": "v.post_ln", **more})
    for i in range(3):
        copy(out, t, SIGLIP, f"{head}encoder.layers.{i}.", f"v.blk.{i}.")
    return out


def gemma3(t):
    out = siglip(t, "vision_tower.vision_model.", lambda k: k, {})
    out["multi_modal_projector.mm_input_projection_weight"] = t["mm.input_projection.weight"]
    # no number is lost where 1 is subtracted of these, which lie between 0.5 and 2; the others are moved there
    norm = [x if 0.5 <= x <= 2 else 1.25 for x in floats(t["mm.soft_emb_norm.weight"])]
    t["mm.soft_emb_norm.weight"] = packed([W], norm)
    out["multi_modal_projector.mm_soft_emb_norm.weight"] = packed([W], [x - 1 for x in norm])
    out["vision_tower.vision_model.head.probe"] = packed([1, 1, 4], [0.0] * 4)
    return out


def internvl(t, own):
    names = {"ln1": "norm1", "ln2": "norm2", "attn_out": "attn.proj", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"} if own else {
        "ln1": "layernorm_before", "ln2": "layernorm_after", "attn_out": "attention.projection_layer", "ffn_up": "mlp.fc1",
        "ffn_down": "mlp.fc2", "attn_q": "attention.q_proj", "attn_k": "attention.k_proj", "attn_v": "attention.v_proj"}
    head = "vision_model." if own else "model.vision_tower."
    block, mlp = ("encoder.layers", "mlp1.") if own else ("encoder.layer", "model.multi_modal_projector.")
    cls, kernel, places = (("class_embedding", "patch_embedding", "position_embedding") if own else
                           ("cls_token", "patch_embeddings.projection", "position_embeddings"))
    out = {f"{head}embeddings.{cls}": ([1, 1, W], t["v.class_embd"][1]),
           f"{head}embeddings.{places}": ([1] + t["v.position_embd.weight"][0], t["v.position_embd.weight"][1])}
    copy(out, t, {f"{head}embeddings.{kernel}": "v.patch_embd"})
    copy(out, t, {mlp + x: f"mm.model.mlp.{n}" for x, n in zip(("0", "1", "3") if own else
                                                                ("layer_norm", "linear_1", "linear_2"), (0, 1, 3))})
    for i in range(3):
        copy(out, t, {b: a for a, b in names.items()}, f"{head}{block}.{i}.", f"v.blk.{i}.")
        for k in (1, 2):
            out[f"{head}{block}.{i}.{'ls' if own else 'lambda_'}{k}"] = t[f"v.blk.{i}.ls{k}.weight"]
        for part in ("weight", "bias") if own else ():
            out[f"{head}{block}.{i}.attn.qkv.{part}"] = joined(t, i, part)
    return out


def pixtral(t):
    out = {"vision_tower.patch_conv.weight": t["v.patch_embd.weight"], "language_model.model.embed_tokens.weight":
           ([2, OUT], bytes(4 * OUT) + t["v.token_embd.img_break"][1])}
    copy(out, t, {"vision_tower.ln_pre": "v.pre_ln", "multi_modal_projector.norm": "mm.input_norm",
                  "multi_modal_projector.patch_merger.merging_layer": "mm.patch_merger",
                  "multi_modal_projector.linear_1": "mm.1", "multi_modal_projector.linear_2": "mm.2"})
    for i in range(3):
        to, at = f"vision_tower.transformer.layers.{i}.", f"v.blk.{i}."
        copy(out, t, {"attention.v_proj": "attn_v", "attention.o_proj": "attn_out", "attention_norm": "ln1", "ffn_norm": "ln2",
                      "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up",
                      "feed_forward.down_proj": "ffn_down"}, to, at)
        for x in "qk":
            out[f"{to}attention.{x}_proj.weight"] = halves(t[f"{at}attn_{x}.weight"])
    return out


def qwen(t, three):
    head = "model.visual." if three else "visual."
    out = {head + "patch_embed.proj.weight": frames(t)}
    copy(out, t, {head + a: b for a, b in ({"merger.norm": "v.post_ln", "merger.linear_fc1": "mm.0",
                                            "merger.linear_fc2": "mm.2"}
                                           if three else {"merger.ln_q": "v.post_ln", "merger.mlp.0": "mm.0",
                                                          "merger.mlp.2": "mm.2"}).items()})
    if three:
        out[head + "patch_embed.proj.bias"] = t["v.patch_embd.bias"]
        out[head + "pos_embed.weight"] = t["v.position_embd.weight"]
    gated = "v.blk.0.ffn_gate.weight" in t
    mlp = {"mlp.linear_fc1": "ffn_up", "mlp.linear_fc2": "ffn_down"} if three else {
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"} if gated else {
        "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
    for i in range(3):
        to = f"{head}blocks.{i}."
        copy(out, t, {**QWEN, **mlp, **({"attn.qkv": "attn_qkv"} if three else {})}, to, f"v.blk.{i}.")
        for part in () if three else ("weight", "bias"):
            out[f"{to}attn.qkv.{part}"] = joined(t, i, part)
    for k, i in enumerate((0, 2)):
        copy(out, t, {"norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2"}, f"{head}deepstack_merger_list.{k}.",
             f"v.deepstack.{i}.")
    return out


def gemma4v(t):
    head = "model.vision_tower."
    out = {head + "patch_embedder.input_proj.weight": pixels_last(t["v.patch_embd.weight"], [W, 3 * P * P]),
           head + "patch_embedder.position_embedding_table": t["v.position_embd.weight"], head + "std_bias": t["v.std_bias"],
           head + "std_scale": t["v.std_scale"],
           "model.embed_vision.embedding_projection.weight": t["mm.input_projection.weight"]}
    products = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
                "self_attn.o_proj": "attn_out", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
                "mlp.down_proj": "ffn_down"}
    for i in range(3):
        to, at = f"{head}encoder.layers.{i}.", f"v.blk.{i}."
        copy(out, t, {a + ".linear": b for a, b in products.items()}, to, at)
        copy(out, t, {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "input_layernorm": "ln1",
                      "post_attention_layernorm": "attn_post_norm", "pre_feedforward_layernorm": "ln2",
                      "post_feedforward_layernorm": "ffn_post_norm"}, to, at)
        for a, b in products.items():
            for part in ("input_min", "input_max", "output_min", "output_max"):
                out[f"{to}{a}.{part}"] = ([], t[f"{at}{b}.{part}"][1])
    return out


def gemma4uv(t):
    x, n = floats(t["v.position_embd.weight"]), 120
    table = [v for i in range(n) for axis in range(2) for v in x[(axis * n + i) * W:(axis * n + i + 1) * W]]
    out = {"model.vision_embedder.pos_embedding": packed([n, 2, W], table),
           "model.vision_embedder.patch_dense.bias": t["v.patch_embd.bias"],
           "model.embed_vision.embedding_projection.weight": t["mm.input_projection.weight"],
           "model.vision_embedder.patch_dense.weight": pixels_last(t["v.patch_embd.weight"]),
           "model.vision_embedder.patch_ln1.weight": pixels_last(t["v.patch_norm.1.weight"]),
           "model.vision_embedder.patch_ln1.bias": pixels_last(t["v.patch_norm.1.bias"])}
    copy(out, t, {"model.vision_embedder.patch_ln2": "v.patch_norm.2", "model.vision_embedder.pos_norm": "v.patch_norm.3"})
    return out


def renamed(t, head, blocks, outer, inner):
    out = {}
    copy(out, t, outer)
    for i in range(3):
        copy(out, t, inner, f"{head}{blocks}.{i}.", f"v.blk.{i}.")
    return out


def glm(t):
    head = "model.visual."
    out = renamed(t, head, "blocks", {
        head + "post_conv_layernorm": "v.norm_embd", head + "post_layernorm": "v.post_ln", head + "downsample":
        "mm.patch_merger", head + "merger.proj": "mm.model.fc", head + "merger.post_projection_norm": "mm.post_norm",
        head + "merger.gate_proj": "mm.gate", head + "merger.up_proj": "mm.up", head + "merger.down_proj": "mm.down",
        head + "embeddings.position_embedding": "v.position_embd"}, {
            **QWEN, "attn.qkv": "attn_qkv", "attn.q_norm": "attn_q_norm", "attn.k_norm": "attn_k_norm",
            "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"})
    out[head + "patch_embed.proj.weight"] = frames(t)
    out[head + "patch_embed.proj.bias"] = t["v.patch_embd.bias"]
    return out


def quarters(t, name):
    """Rows [2][d / 4][2] of each head of queries and keys as [d / 4][2][2]."""
    shape, data = t[name]
    d, size = W // HEADS, len(data) // shape[0]
    order = [h * d + half * d // 2 + pair * 2 + part for h in range(2 * HEADS) for pair in range(d // 4) for half in range(2)
             for part in range(2)] + list(range(2 * W, 3 * W))
    return shape, b"".join(data[r * size:(r + 1) * size] for r in order)


def kimi(t, k25):
    head, to = "vision_tower.", "mm_projector." if k25 else "multi_modal_projector."
    out = renamed(t, head + "encoder.", "blocks", {
        head + "patch_embed.proj": "v.patch_embd", head + "encoder.final_layernorm": "v.post_ln", to + "pre_norm":
        "mm.input_norm", to + ("proj.0" if k25 else "linear_1"): "mm.1", to + ("proj.2" if k25 else "linear_2"): "mm.2"}, {
            "norm0": "ln1", "norm1": "ln2", "wo": "attn_out", "mlp.fc0": "ffn_up", "mlp.fc1": "ffn_down"})
    out[head + "patch_embed.pos_emb.weight"] = [6, 6, W], t["v.position_embd.weight"][1]
    if k25:
        out[head + "patch_embed.pos_emb.time_weight"] = packed([4, 1, W], [0.5] * (4 * W))
    for i in range(3):
        for part in ("weight", "bias"):
            out[f"{head}encoder.blocks.{i}.wqkv.{part}"] = (quarters(t, f"v.blk.{i}.attn_qkv.{part}") if k25
                                                            else joined(t, i, part))
    return out


def dots(t):
    head = "vision_tower."
    out = renamed(t, head, "blocks", {
        head + "patch_embed.patchifier.proj": "v.patch_embd", head + "patch_embed.patchifier.norm": "v.pre_ln",
        head + "post_trunk_norm": "mm.post_norm", head + "merger.ln_q": "mm.input_norm", head + "merger.mlp.0": "mm.0",
        head + "merger.mlp.2": "mm.2"}, {**QWEN, "mlp.fc1": "ffn_gate", "mlp.fc2": "ffn_down", "mlp.fc3": "ffn_up"})
    for i in range(3):
        out[f"{head}blocks.{i}.attn.qkv.weight"] = joined(t, i, "weight")
    return out


def paddle(t):
    out = siglip(t, "visual.vision_model.", lambda k: k, {"mlp_AR.pre_norm": "mm.input_norm", "mlp_AR.linear_1": "mm.1",
                                                          "mlp_AR.linear_2": "mm.2"})
    out["visual.vision_model.head.probe"] = packed([1, 1, 4], [0.0] * 4)
    out["visual.vision_model.packing_position_embedding.weight"] = packed([4, 4], [0.0] * 16)
    return out


def lighton(t):
    t["v.token_embd.img_break"] = [OUT], bytes(4 * OUT)
    out = {k.replace("vision_tower.", "model.vision_encoder.").replace("multi_modal_projector.", "model.vision_projection."): v
           for k, v in pixtral(t).items() if "embed_tokens" not in k}
    del t["v.token_embd.img_break"]
    return out


def llava(t, n_blocks):
    """The last block is not read, so it is not in the new file."""
    head = "vision_tower.vision_model."
    out = renamed(t, head + "encoder.", "layers", {
        head + "embeddings.patch_embedding": "v.patch_embd", head + "embeddings.position_embedding": "v.position_embd",
        head + "pre_layrnorm": "v.pre_ln", "multi_modal_projector.linear_1": "mm.0",
        "multi_modal_projector.linear_2": "mm.2"}, SIGLIP)
    out[head + "post_layernorm.weight"] = packed([W], [1.0] * W)
    if "v.class_embd" in t:
        out[head + "embeddings.class_embedding"] = t["v.class_embd"]
    if "model.image_newline" in t:
        out["image_newline"] = t["model.image_newline"]
    for name in [k for k in t if k.startswith("v.blk.") and int(k.split(".")[2]) >= n_blocks]:
        del t[name]
    return out


GRIDS = {"image_grid_pinpoints": [[64, 32], [32, 64], [64, 64], [32, 96], [96, 32]]} # height and width
CLIP = {**{"num_attention_heads": 2}, "model_type": "clip_vision_model"}
HEADED = {"num_attention_heads": HEADS}
CASES = {
    "gemma3": (gemma3, "Gemma3ForConditionalGeneration", HEADED, {"mm_tokens_per_image": 16}),
    "idefics3": (lambda t: siglip(t, "model.vision_model.", lambda k: k, {
        "model.connector.modality_projection.proj": "mm.model.fc"}),
                 "SmolVLMForConditionalGeneration", HEADED, {"scale_factor": 2}),
    "lfm2": (lambda t: siglip(t, "model.vision_tower.vision_model.", lambda k: pixels_last(k, [W, 3 * P * P]), {
        "model.multi_modal_projector.layer_norm": "mm.input_norm", "model.multi_modal_projector.linear_1": "mm.1",
        "model.multi_modal_projector.linear_2": "mm.2"}), "Lfm2VlForConditionalGeneration", HEADED, {"downsample_factor": 2}),
    "internvl": (lambda t: internvl(t, True), "InternVLChatModel", HEADED, {"downsample_ratio": 0.5}),
    "internvl ": (lambda t: internvl(t, False), "InternVLForConditionalGeneration", HEADED, {}),
    "pixtral": (pixtral, "LlavaForConditionalGeneration", dict(HEADED, model_type="pixtral", image_size=64), {}),
    "pixtral-merge": (pixtral, "Mistral3ForConditionalGeneration", dict(HEADED, image_size=64), {"spatial_merge_size": 2}),
    "qwen2vl": (lambda t: qwen(t, False), "Qwen2VLForConditionalGeneration", {"num_heads": HEADS}, {}),
    "qwen2.5vl": (lambda t: qwen(t, False), "Qwen2_5_VLForConditionalGeneration",
                  {"num_heads": HEADS, "window_size": 16, "fullatt_block_indexes": [1]}, {}),
    "qwen3vl": (lambda t: qwen(t, True), "Qwen3VLForConditionalGeneration",
                {"num_heads": HEADS, "deepstack_visual_indexes": [0, 2]}, {}),
    "glm4v": (glm, "Glm4vForConditionalGeneration", {"num_heads": HEADS}, {}),
    "glmocr": (glm, "GlmOcrForConditionalGeneration", {"num_heads": HEADS}, {}),
    "kimivl": (lambda t: kimi(t, False), "KimiVLForConditionalGeneration", HEADED, {}),
    "kimik25": (lambda t: kimi(t, True), "KimiK25ForConditionalGeneration", {"vt_num_attention_heads": HEADS,
                                                                            "merge_kernel_size": [2, 2]}, {}),
    "paddleocr": (paddle, "PaddleOCRVLForConditionalGeneration", HEADED, {}),
    "dotsocr": (dots, "DotsOCRForCausalLM", HEADED, {}),
    "lightonocr": (lighton, "LightOnOCRForConditionalGeneration", dict(HEADED, image_size=64), {"spatial_merge_size": 2}),
    "mlp": (lambda t: llava(t, 2), "LlavaForConditionalGeneration", CLIP, {}),
    "llava16": (lambda t: llava(t, 2), "LlavaNextForConditionalGeneration", CLIP, {"vision_feature_layer": -2, **GRIDS}),
    "granitevision": (lambda t: llava(t, 3), "LlavaNextForConditionalGeneration",
                      dict(HEADED, model_type="siglip_vision_model"),
                      {"vision_feature_layer": [-4, -3, -1], "vision_feature_select_strategy": "full", **GRIDS}),
    "gemma4v": (gemma4v, "Gemma4ForConditionalGeneration", HEADED, {}),
    "gemma4uv": (gemma4uv, "Gemma4UnifiedForConditionalGeneration", {}, {}),
}
# keys that mkarch's files have otherwise: sizes that such encoders do not use, a type's usual value, and a longest side
OPTIONAL = (".bias", "ls1", "ls2", "lambda_1", "lambda_2", "std_bias", "layer_norm.weight", "post_layernorm.weight")
FREE = {"clip.vision.image_size", "clip.projector_type", "clip.vision.projector_type", "clip.vision.image_mean",
        "clip.vision.image_std"}
LIMITS = {"paddleocr": (9 * 64 + 3, 100 * 64 + 7), "dotsocr": (4 * 64, 900 * 64)}


def convert(folder, out, *more):
    return subprocess.run([AERIE, "convert", folder, "--mmproj", out, "--outtype", "f32", *more], capture_output=True,
                          text=True)


def compare(name, folder, out, t, keys):
    r = convert(folder, out)
    assert r.returncode == 0, f"{name}: {r.stderr}"
    got_keys, got = read_gguf(out)
    assert got.keys() == t.keys(), f"{name}: {sorted(got.keys() ^ t.keys())}"
    for tensor, (shape, data) in t.items():
        assert got[tensor][0] == shape and got[tensor][1] == data, f"{name}: {tensor} {shape} became {got[tensor][0]}"
    for key, value in keys.items():
        if key not in FREE:
            assert got_keys.get(key) == value, f"{name}: {key} is {got_keys.get(key)}, not {value}"
    kind = got_keys.get("clip.projector_type") or got_keys.get("clip.vision.projector_type")
    assert kind == keys["clip.projector_type"], f"{name}: {kind}"
    for c, x in enumerate((0.5, 0.45, 0.4)):
        assert abs(got_keys["clip.vision.image_mean"][c] - x) < 1e-6, name


def damage(name, folder, scratch, config, tensors):
    """Each must be refused with one sentence."""
    vision = config["vision_config"]
    cases = [("class", dict(config, architectures=["NoSuchModel"]), tensors, True),
             ("no classes", {k: v for k, v in config.items() if k != "architectures"}, tensors, True),
             ("no vision_config", {k: v for k, v in config.items() if k != "vision_config"}, tensors, True),
             ("no text width", {k: v for k, v in config.items() if k != "text_config"}, tensors, True),
             ("heads", dict(config, vision_config=dict(vision, num_attention_heads=7, num_heads=7, vt_num_attention_heads=7)),
              tensors, True),
             ("activation", dict(config, vision_config=dict(vision, hidden_act="relu", hidden_activation="relu")), tensors,
              True),
             ("inner layer", dict(config, vision_feature_layer=-7), tensors, True),
             ("no layer", dict(config, vision_feature_layer=[]), tensors, True),
             ("unknown tensor", config, dict(tensors, **{"vision_tower.extra.weight": packed([4], [0.0] * 4)}), True),
             ("infinite", config, {k: (s, struct.pack("<f", float("inf")) + d[4:]) if len(d) > 8 else (s, d)
                                   for k, (s, d) in tensors.items()}, True)]
    if not name.startswith("gemma4"):
        cases.append(("no colours", config, tensors, False))
    rng = random.Random(name)
    unread = ("head.probe", "packing_position", "time_weight") + (
        ("encoder.layers.2.", "vision_model.post_layernorm") if name in ("mlp", "llava16", "granitevision") else ())
    read = [k for k in sorted(tensors) if not any(part in k for part in unread)]
    for k in rng.sample(read, 4):
        if not k.endswith(("_min", "_max")):
            cases.append((f"without {k}", config, {x: v for x, v in tensors.items() if x != k}, True))
            s, d = tensors[k]
            cut = [s[0] - 1] + s[1:], d[:len(d) // s[0] * (s[0] - 1)]
            cases.append((f"{k} shorter", config, dict(tensors, **{k: cut}), True))
    for what, bad_config, bad_tensors, colours in cases:
        if name == "gemma4uv" and what in ("heads", "activation"):
            continue
        if name in ("kimivl", "kimik25", "dotsocr") and what == "activation": # they do not say it
            continue
        where = os.path.join(scratch, "bad")
        for f in os.listdir(where) if os.path.isdir(where) else []:
            os.remove(os.path.join(where, f))
        write_folder(where, bad_config, bad_tensors, (0, 0) if colours else ())
        out = os.path.join(scratch, "bad.gguf")
        r = convert(where, out)
        if r.returncode == 0 and what.startswith("without ") and what.endswith(OPTIONAL):
            os.remove(out)
            continue
        assert r.returncode in (2, 3), f"{name}, {what}: status {r.returncode}: {r.stderr}"
        assert r.stderr.startswith("aerie: ") and not os.path.exists(out), f"{name}, {what}: {r.stderr}"


def main():
    with tempfile.TemporaryDirectory() as scratch:
        for name, (take_apart, of_class, vision, more) in CASES.items():
            source, folder = os.path.join(scratch, "source.gguf"), os.path.join(scratch, name.strip() + of_class)
            subprocess.run([MKARCH, f"mmproj-{name.strip()}:{OUT}", source], check=True)
            keys, t = read_gguf(source)
            config = {"architectures": [of_class], "text_config": {"hidden_size": OUT}, "vision_config": vision, **more}
            tensors = take_apart(t)
            write_folder(folder, config, tensors, LIMITS.get(name, (0, 0)))
            if "clip.vision.feature_layer" in keys:
                keys["clip.vision.block_count"] = keys["clip.vision.feature_layer"][-1]
            compare(name, folder, os.path.join(scratch, "out.gguf"), t, keys)
            damage(name.strip(), folder, scratch, config, tensors)
            r = convert(folder, os.path.join(folder, "model.safetensors"))
            assert r.returncode == 2 and "being read" in r.stderr, r.stderr
            print(f"{name.strip()} ({of_class}): {len(t)} tensors")
        r = subprocess.run([AERIE, "convert", folder, "-o", "x.gguf", "--mmproj", "x.gguf"], capture_output=True, text=True)
        assert r.returncode == 2 and "same file" in r.stderr, r.stderr


main()
