#!/usr/bin/env python3
"""Folders as transformers saves models that see, converted: what the vision encoder makes of pictures, against the models.

    tests/vision/check_converted.py BUILD/aerie BUILD/tests/tower_rows [NAME...] [--keep FOLDER]

Each family's whole class gets a tiny random configuration and is saved as a folder with a small tokenizer. 'aerie convert'
writes text model and mmproj file from it (F32). Rows of pictures must equal the published class's own (check_towers.py has the
processors' sizes), and the program must answer with both files. Needs torch, transformers, safetensors and Pillow.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers as hf
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import check_towers as towers
from check_towers import FF, BLOCKS, HEADS, OUT, PATCH, WIDTH, normalise

SIZES = {"hidden_size": WIDTH, "intermediate_size": FF, "num_hidden_layers": BLOCKS, "num_attention_heads": HEADS}
MARKERS = ["<|end|>", "[IMG_BREAK]", "[IMG_END]", "[IMG]", "<start_of_image>", "<end_of_image>", "<|image>", "<image|>",
           "<|image|>", "<fake_token_around_image>", "<global-img>", "<img>", "</img>", "<|image_start|>", "<|image_end|>",
           "<|img_thumbnail|>", "<image>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
N_VOCAB = 256 + len(MARKERS)
TEXT = {"hidden_size": OUT, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": N_VOCAB, "max_position_embeddings": 4096, "bos_token_id": None, "eos_token_id": 256, "pad_token_id": None}
SECTIONS = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
SIGLIP = dict(SIZES, image_size=32, patch_size=PATCH, vision_use_head=False)
QWEN = {"depth": BLOCKS, "hidden_size": WIDTH, "intermediate_size": FF, "num_heads": HEADS, "patch_size": PATCH,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": OUT}
PIXTRAL = dict(SIZES, model_type="pixtral", patch_size=PATCH, image_size=64, head_dim=WIDTH // HEADS, hidden_act="silu")


def text(kind, **more):
    return dict(TEXT, model_type=kind, **more)


def pixels_of(image, unit, least):
    return towers.blocks_of(normalise(towers.smart(image, unit, least, 4096)), 2, 2)


def rows_of(x):
    return getattr(x, "pooler_output", x)


def gemma3(model, image):
    return rows_of(model.model.get_image_features(normalise(image.resize((32, 32), Image.BILINEAR))))


def idefics3(model, image):
    rows = []
    for part in towers.tiles(image, 32, 96):
        x = model.model.vision_model(normalise(part), patch_attention_mask=torch.ones(1, 8, 8, dtype=torch.bool))
        rows.append(model.model.connector(x.last_hidden_state))
    return torch.cat(rows, 1)


def internvl(model, image):
    parts = towers.cut(image, 32, *towers.grid(image, 32, 1, 12), Image.BICUBIC)
    if len(parts) > 1:
        parts.append(image.resize((32, 32), Image.BICUBIC))
    return torch.cat([rows_of(model.model.get_image_features(normalise(part))) for part in parts], 1)


def lfm2(model, image):
    sizes = towers.Lfm2VlImageProcessor()
    w, h = sizes.smart_resize(image.size[1], image.size[0], 2, 64, 256, PATCH)
    image = image.resize((w, h), Image.BILINEAR)
    x = towers.last_first(normalise(image))[None]
    shape = torch.tensor([[h // PATCH, w // PATCH]])
    out = rows_of(model.model.get_image_features(x, shape, torch.ones(1, x.shape[1], dtype=torch.int32)))
    return torch.cat(list(out), 0)


def pixtral(model, image, merge):
    w, h = image.size
    ratio = max(w, h) / 64
    if ratio > 1:
        w, h = int(w / ratio), int(h / ratio)
    unit = PATCH * merge
    w, h = -(-max(w, 1) // unit) * unit, -(-max(h, 1) // unit) * unit
    x = normalise(image.resize((w, h), Image.BICUBIC))
    out = rows_of(model.model.get_image_features(x, image_sizes=torch.tensor([[h, w]])))
    y = (out[0] if isinstance(out, (list, tuple)) or out.dim() == 3 else out).reshape(h // unit, w // unit, OUT)
    line = model.get_input_embeddings().weight[256 + MARKERS.index("[IMG_BREAK]")].reshape(1, OUT)
    return torch.cat([part for i in range(len(y)) for part in (y[i], line)][:-1])


def qwen2(model, image):
    return rows_of(model.model.visual(*pixels_of(image, 8, 8)))


def qwen3(model, image):
    out = model.model.visual(*pixels_of(image, 8, 64))
    return torch.cat([out.pooler_output] + list(out.deepstack_features or []), -1)


def gemma4(model, image):
    image, places = towers.budget(image, PATCH, 3)
    x = torch.from_numpy(np.asarray(image, np.float64) / 255).permute(2, 0, 1)[None]
    return rows_of(model.model.get_image_features(towers.last_first(x)[None], places))


def gemma4u(model, image):
    image, _ = towers.budget(image, PATCH, 3)
    side, (w, h) = 3 * PATCH, image.size
    x = normalise(image)[0].reshape(3, h // side, side, w // side, side).permute(1, 3, 2, 4, 0).reshape(1, -1, side * side * 3)
    y, z = torch.meshgrid(torch.arange(h // side), torch.arange(w // side), indexing="ij")
    return rows_of(model.model.get_image_features(x, torch.stack([z, y], -1).reshape(1, -1, 2)))


def families():
    v = dict(SIGLIP, model_type="siglip_vision_model")
    yield "gemma3", gemma3, [(32, 32), (50, 41)], lambda: hf.Gemma3ForConditionalGeneration(hf.Gemma3Config(
        text_config=text("gemma3_text", head_dim=16), vision_config=v, mm_tokens_per_image=16))
    yield "idefics3", idefics3, [(96, 96), (40, 70)], lambda: hf.Idefics3ForConditionalGeneration(hf.Idefics3Config(
        text_config=text("llama"), vision_config=dict(SIZES, image_size=32, patch_size=PATCH), scale_factor=2))
    yield "smolvlm", idefics3, [(96, 96), (64, 32)], lambda: hf.SmolVLMForConditionalGeneration(hf.SmolVLMConfig(
        text_config=text("llama"), vision_config=dict(SIZES, image_size=32, patch_size=PATCH), scale_factor=2))
    yield "internvl", internvl, [(32, 32), (100, 70)], lambda: hf.InternVLForConditionalGeneration(hf.InternVLConfig(
        text_config=text("qwen2"), downsample_ratio=0.5,
        vision_config=dict(SIZES, image_size=[32, 32], patch_size=[PATCH, PATCH], attention_bias=True, layer_norm_eps=1e-6)))
    yield "lfm2", lfm2, [(96, 64), (70, 50)], lambda: hf.Lfm2VlForConditionalGeneration(hf.Lfm2VlConfig(
        text_config=text("lfm2", layer_types=["conv", "full_attention"]), downsample_factor=2, projector_hidden_size=40,
        vision_config=dict(SIZES, model_type="siglip2_vision_model", patch_size=PATCH, num_patches=36, vision_use_head=False)))
    yield "pixtral", lambda m, i: pixtral(m, i, 1), [(64, 64), (32, 48)], lambda: hf.LlavaForConditionalGeneration(
        hf.LlavaConfig(text_config=text("mistral", head_dim=16), vision_config=PIXTRAL, vision_feature_layer=-1,
                       vision_feature_select_strategy="full", image_seq_length=1))
    yield "mistral3", lambda m, i: pixtral(m, i, 2), [(64, 64), (100, 37)], lambda: hf.Mistral3ForConditionalGeneration(
        hf.Mistral3Config(text_config=text("mistral", head_dim=16), vision_config=PIXTRAL, spatial_merge_size=2))
    yield "qwen2vl", qwen2, [(32, 32), (24, 40)], lambda: hf.Qwen2VLForConditionalGeneration(hf.Qwen2VLConfig(
        text_config=text("qwen2_vl_text", rope_parameters=SECTIONS), vision_config={
            "depth": BLOCKS, "embed_dim": WIDTH, "hidden_size": OUT, "mlp_ratio": 2, "num_heads": HEADS, "patch_size": PATCH}))
    yield "qwen2.5vl", qwen2, [(32, 32), (72, 56)], lambda: hf.Qwen2_5_VLForConditionalGeneration(hf.Qwen2_5_VLConfig(
        text_config=text("qwen2_5_vl_text", rope_parameters=SECTIONS),
        vision_config=dict(QWEN, window_size=4 * PATCH, fullatt_block_indexes=[1])))
    yield "qwen3vl", qwen3, [(64, 64), (96, 48)], lambda: hf.Qwen3VLForConditionalGeneration(hf.Qwen3VLConfig(
        text_config=text("qwen3_vl_text", head_dim=16, rope_parameters=SECTIONS),
        vision_config=dict(QWEN, num_position_embeddings=36, deepstack_visual_indexes=[0, 2])))
    yield "gemma4v", gemma4, [(192, 192), (100, 37)], lambda: hf.Gemma4ForConditionalGeneration(hf.Gemma4Config(
        text_config=text("gemma4_text", head_dim=16, global_head_dim=16, hidden_size_per_layer_input=0, num_kv_shared_layers=0,
                         layer_types=["sliding_attention", "full_attention"]),
        vision_config=dict(SIZES, num_key_value_heads=HEADS, head_dim=WIDTH // HEADS, patch_size=PATCH, pooling_kernel_size=3,
                           position_embedding_size=120, standardize=True, use_clipped_linears=True), audio_config=None))
    yield "gemma4uv", gemma4u, [(192, 192), (100, 37)], lambda: hf.Gemma4UnifiedForConditionalGeneration(hf.Gemma4UnifiedConfig(
        text_config=text("gemma4_unified_text", head_dim=16, global_head_dim=16, hidden_size_per_layer_input=0,
                         num_kv_shared_layers=0, layer_types=["sliding_attention", "full_attention"]),
        vision_config={"patch_size": PATCH, "pooling_kernel_size": 3, "model_patch_size": 3 * PATCH, "mm_embed_dim": WIDTH,
                       "mm_posemb_size": 120, "output_proj_dims": WIDTH}, audio_config=None))


def fill(model):
    """Weights that make every part count."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in list(model.named_parameters()) + list(model.named_buffers()):
            if name.endswith(("_min", "_max")):
                p.fill_(-1.0 if name.endswith("_min") else 1.25)
            elif p.is_floating_point() and "inv_freq" not in name and "embed_scale" not in name:
                x = torch.randn(p.shape, generator=generator)
                norm = p.dim() == 1 and name.endswith(("weight", "scale", "lambda_1", "lambda_2", "scalar"))
                p.copy_(0.2 * x + norm if p.dim() < 2 else 0.5 * x if "pos" in name else 0.17 * x)


def save_rest(folder):
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in MARKERS])
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"eos_token": "<|end|>", "chat_template": "{{ messages[0].content }}"}, f)
    with open(os.path.join(folder, "preprocessor_config.json"), "w", encoding="utf-8") as f:
        json.dump({"image_mean": towers.MEAN.tolist(), "image_std": towers.STD.tolist(), "size": {"longest_edge": 96}}, f)


def rows_here(tool, path, folder, pixels):
    h, w, _ = pixels.shape
    source, out = os.path.join(folder, "in"), os.path.join(folder, "out")
    pixels.tofile(source)
    subprocess.run([tool, path, str(w), str(h), source, out], check=True, stdout=subprocess.DEVNULL)
    return torch.from_numpy(np.fromfile(out, np.float32)).double()


def check(aerie, tool, folder, name, run, sizes, make):
    hf.set_seed(1)
    model = make().eval()
    fill(model)
    model.save_pretrained(folder)
    save_rest(folder)
    model = model.double()
    files = os.path.join(folder, "model.gguf"), os.path.join(folder, "mmproj.gguf")
    subprocess.run([aerie, "convert", folder, "-o", files[0], "--mmproj", files[1], "--outtype", "f32", "-q"], check=True)
    bad, rng = 0, np.random.default_rng(5)
    for k, (w, h) in enumerate(sizes):
        pixels = rng.integers(0, 256, (h, w, 3), dtype=np.uint8)
        got = rows_here(tool, files[1], folder, pixels)
        with torch.no_grad():
            want = run(model, Image.fromarray(pixels))
        want = torch.cat(list(want)) if isinstance(want, (list, tuple)) else want
        want = want.reshape(-1, want.shape[-1])
        if got.numel() != want.numel():
            sys.exit(f"{name} {w} x {h}: {got.numel()} numbers, expected {tuple(want.shape)}")
        error = float(((got.reshape(want.shape) - want) ** 2).sum() / (want ** 2).sum())
        ok = error < (1e-3 if k else 1e-4 if name == "gemma4v" else 1e-6)
        bad += not ok
        print(f"{name:10} {w:3} x {h:3}: {want.shape[0]:4} rows, error {error:.2e}{'' if ok else '  TOO LARGE'}", flush=True)
    picture = os.path.join(folder, "picture.png")
    Image.fromarray(pixels).save(picture)
    subprocess.run([aerie, "run", "-m", files[0], "--mmproj", files[1], "--image", picture, "-p", "hello", "-n", "3",
                    "-c", "4096", "-q"], check=True, stdout=subprocess.DEVNULL)
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("aerie")
    p.add_argument("tool")
    p.add_argument("names", nargs="*")
    p.add_argument("--keep")
    o = p.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, run, sizes, make in families():
            if not o.names or name in o.names:
                folder = os.path.join(o.keep or scratch, name)
                os.makedirs(folder, exist_ok=True)
                bad += check(o.aerie, o.tool, folder, name, run, sizes, make)
    return 1 if bad else 0


sys.exit(main())
