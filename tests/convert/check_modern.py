#!/usr/bin/env python3
"""ModernBERT's folders, converted: encoders, rerankers, and the decision models Laya and Julia (docs/decisions.md).

    check_modern.py AERIE MKARCH [NAME...] [--keep FOLDER] [--mutants N]

mkarch's random models are taken apart into folders with the published names and settings, old and new, written down here once
more; 'aerie convert' must make the same tensors and keys of them. Then files and settings are damaged: each folder is refused
with a sentence and leaves no file, or makes a file that loads. Needs Python alone.
"""
import argparse
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from array import array

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from folders import read_gguf, shaped, tokenizer, write_folder, write_safetensors  # noqa: E402

LAYER = {"attn_norm": "attn_norm", "ffn_norm": "mlp_norm", "attn_qkv": "attn.Wqkv", "attn_output": "attn.Wo",
         "ffn_up": "mlp.Wi", "ffn_down": "mlp.Wo"}
BLOCK = {"attn_norm": "norm1", "ffn_norm": "norm2", "attn_output": "self_attn.out_proj", "ffn_up": "linear1",
         "ffn_down": "linear2"}
WHOLE = {"token_embd": "embeddings.tok_embeddings", "token_embd_norm": "embeddings.norm", "output_norm": "final_norm"}
JUDGE = {"cls": "head.dense", "cls.norm": "head.norm", "cls.output": "classifier"}
DECIDE = {"cls": "scorer.1", "cls.norm": "scorer.0", "cls.output": "scorer.3", "token_types": "type_emb"}
MARKS = ["[UNK]", "[CLS]", "[SEP]"]


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def vocabulary():
    """Byte-level BPE with the tokens around a text, as ModernBERT has them."""
    t = tokenizer()
    first = t["added_tokens"][0]["id"]
    t["added_tokens"] = [{**t["added_tokens"][0], "id": first + i, "content": x, "lstrip": x == "[MASK]"}
                         for i, x in enumerate([*MARKS, "[MASK]"])]
    t["post_processor"] = {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}}], "pair": [], "special_tokens": {}}
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    ids = {f"tokenizer.ggml.{k}_token_id": first + i for i, k in enumerate(("unknown", "cls", "seperator", "mask"))}
    ids["tokenizer.ggml.bos_token_id"], ids["tokenizer.ggml.eos_token_id"] = first + 1, first + 2
    return {"tokenizer.json": json.dumps(t), "tokenizer_config.json": json.dumps(names)}, ids


def take_apart(keys, tensors, whole, prefix):
    n_head, out = keys.get("decision.block_count", 0), {}
    n = keys["block_count"] - n_head
    for name, t in tensors.items():
        base, _, end = name.rpartition(".")
        if name.startswith("blk."):
            _, i, part = base.split(".")
            if int(i) < n:
                out[f"{prefix}layers.{i}.{LAYER[part]}.{end}"] = t
            elif part == "attn_qkv":
                out[f"head.layers.{int(i) - n}.self_attn.in_proj_{end}"] = t
            else:
                out[f"head.layers.{int(i) - n}.{BLOCK[part]}.{end}"] = t
        elif base in WHOLE:
            out[f"{prefix}{WHOLE[base]}.{end}"] = t
        else:
            out[f"{whole[base]}.{end}"] = shaped(t, 1, len(t[1])) if name == "cls.output.weight" else t
    return out


def config_of(keys, of_class, new):
    """new: as transformers 5 saves it, else as the makers published it."""
    n = keys["block_count"] - keys.get("decision.block_count", 0)
    pattern = keys.get("attention.sliding_window_pattern", 3)
    ff = keys["feed_forward_length"]
    config = {"architectures": [of_class], "model_type": "modernbert", "hidden_size": keys["embedding_length"],
              "num_hidden_layers": n, "num_attention_heads": keys["attention.head_count"],
              "intermediate_size": ff[0] if isinstance(ff, list) else ff, "max_position_embeddings": keys["context_length"],
              "norm_eps": 1e-5, "hidden_activation": keys.get("hidden_activation", "gelu"), "vocab_size": 264,
              "local_attention": keys["attention.sliding_window"], "norm_bias": False, "attention_bias": False}
    base, local = keys["rope.freq_base"], keys.get("rope.freq_base_swa", keys["rope.freq_base"])
    if new or isinstance(pattern, list):
        windowed = pattern if isinstance(pattern, list) else [i % pattern != 0 for i in range(n)]
        config.update(layer_types=["sliding_attention" if w else "full_attention" for w in windowed], rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": base},
            "sliding_attention": {"rope_type": "default", "rope_theta": local}})
    else:
        config.update(global_attn_every_n_layers=pattern, global_rope_theta=base, local_rope_theta=local)
    return config


class Case:
    """A folder and what must come of it."""

    def __init__(self, args, name, scratch, new):
        source = os.path.join(scratch, name + ".gguf")
        subprocess.run([args.mkarch, "--decoded", name, source], check=True)
        all_keys, self.tensors = read_gguf(source)
        self.keys = {k.removeprefix("modern-bert."): v for k, v in all_keys.items() if k.startswith("modern-bert.")}
        self.name, self.new, self.settings = name, new, None
        self.decides, self.ranks = "decision.type" in self.keys, self.keys.get("pooling_type") == 4
        of_class = "ModernBert" + ("ForSequenceClassification" if self.ranks else "ForMaskedLM" if new else "Model")
        prefix = "encoder." if self.decides else "" if of_class == "ModernBertModel" else "model."
        self.published = take_apart(self.keys, self.tensors, DECIDE if self.decides else JUDGE, prefix)
        self.config = config_of(self.keys, of_class, new)
        self.files, self.ids = vocabulary()
        more = {"classifier_pooling": "mean", "id2label": {"0": "LABEL_0"}} if self.ranks else {}
        self.config.update(more)
        if self.decides:
            self.settings = {"head_layers": self.keys["decision.block_count"], "temperature": [1.5, 0.5, 2.0],
                             "temperature_by_options": {"choice:3-5": 0.75, "choice:11+": 1.25, "score:6-10": 3},
                             "head_max_len": 40}
            if new:
                self.settings["architecture"] = "JuliaDecisionModel"
            del self.config["architectures"]
            self.published["act_head.weight"] = self.published["temperature"] = [3], array("f", [1] * 3)
        elif not self.ranks and new:  # of the training on masked tokens
            for part in ("head.dense.weight", "head.norm.weight", "decoder.bias"):
                self.published[part] = [64], array("f", [1] * 64)
        if not self.ranks and not self.decides:
            self.files["1_Pooling/config.json"] = json.dumps({"pooling_mode": "cls"} if new else
                                                             {"pooling_mode_mean_tokens": True})

    def settings_file(self):
        return "julia_config.json" if self.new else "rl_agent_config.json"

    def write(self, folder, config=None, tensors=None, settings=None, files=None):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        config, files = self.config if config is None else config, self.files if files is None else files
        for at in ("encoder", "tokenizer", "1_Pooling"):
            os.makedirs(os.path.join(folder, at))
        if not self.decides:
            write_folder(folder, config, self.published if tensors is None else tensors, files)
            return
        write_safetensors(os.path.join(folder, "model.safetensors"), self.published if tensors is None else tensors)
        texts = {"encoder/config.json": json.dumps(config), **{"tokenizer/" + k: v for k, v in files.items()},
                 self.settings_file(): json.dumps(self.settings if settings is None else settings)}
        for name, text in texts.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)


def convert(args, folder, out, *more):
    return subprocess.run([args.aerie, "convert", folder, "-o", out, "-q", *more], capture_output=True, text=True)


def windows(pattern, case):
    """A flag for each layer of the encoder."""
    n = case.keys["block_count"] - case.keys.get("decision.block_count", 0)
    return pattern[:n] if isinstance(pattern, list) else [i % pattern != 0 for i in range(n)]


def check_keys(case, got):
    want = {"modern-bert." + k: v for k, v in case.keys.items()
            if k != "pooling_type" and not k.startswith("decision.temperature")}
    want.update(case.ids)
    want.update({"general.architecture": "modern-bert", "modern-bert.attention.causal": False,
                 "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True,
                 "tokenizer.ggml.add_sep_token": True, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"})
    want.setdefault("modern-bert.rope.freq_base_swa", want["modern-bert.rope.freq_base"])
    want.setdefault("modern-bert.hidden_activation", "gelu")
    pattern = "modern-bert.attention.sliding_window_pattern"
    assert windows(got.pop(pattern), case) == windows(want.pop(pattern, 3), case)
    if case.decides:
        kinds = {"choice": 1.5, "score": 0.5, "noul": 2.0, "choice.3_5": 0.75, "choice.11": 1.25, "score.6_10": 3.0}
        want.update({f"modern-bert.decision.temperature.{k}": v for k, v in kinds.items()})
        want.update({"modern-bert.decision.max_head_tokens": 40, "tokenizer.ggml.token_type_count": 3})
        want["modern-bert.feed_forward_length"] = want["modern-bert.feed_forward_length"]
        template = got["tokenizer.chat_template.systemone"]
        assert template.startswith("[CLS]{{ type }} question: {{ instructions if instructions is string else"), template
        assert template.endswith("{% endfor %}[SEP]{{ state if state is string else state | tojson }}[SEP]"), template
        assert ("yes, the statement holds" in template) != case.new and "{% for o in options %}[MASK] " in template
        assert "tokenizer.chat_template" not in got
    else:
        want["modern-bert.pooling_type"] = 4 if case.ranks else 2 if case.new else 1
        assert not [k for k in got if "decision" in k or "token_type_count" in k]
    if case.ranks:
        want["modern-bert.classifier.pooling_type"] = 1
    for key in ("modern-bert.name",):
        want.pop(key, None)
    for key, value in want.items():
        value = f32(value) if isinstance(value, float) else value
        assert got.get(key) == value, f"{case.name}: {key}: {value} became {got.get(key)}"


def check_whole(args, case, folder, out):
    case.write(folder)
    run = convert(args, folder, out, "--outtype", "f32")
    assert run.returncode == 0, f"{case.name}: {run.stderr}"
    keys, got = read_gguf(out)
    assert got.keys() == case.tensors.keys(), f"{case.name}: {sorted(got.keys() ^ case.tensors.keys())}"
    for name, (shape, x) in case.tensors.items():
        shape = [1, *shape] if name == "cls.output.weight" and len(shape) == 1 else shape
        assert got[name][0] == shape and got[name][1] == x, f"{case.name}: {name}: {shape} became {got[name][0]}"
    check_keys(case, keys)
    run = convert(args, folder, out, "--outtype", "bf16")
    assert run.returncode == 0, f"{case.name}: {run.stderr}"
    for name, (shape, _, kind) in read_gguf(out, raw=True)[1].items():
        small = len(shape) == 1 or name == "token_types.weight"
        assert kind == (0 if small else 30), f"{case.name}: {name} is of type {kind}"
    os.remove(out)


def refused(args, case, folder, out, *parts):
    run = convert(args, folder, out)
    text = run.stderr
    ok = run.returncode in (2, 3) and text.startswith("aerie: ") and text.count("\n") == 1 and not os.path.exists(out)
    assert ok and all(p in text for p in parts), f"{case.name}: {parts}: status {run.returncode}: {text}"


def without(values, name):
    return {k: v for k, v in values.items() if k != name}


def check_settings(args, case, folder, out):
    """Settings of config.json that a file cannot express, and damaged ones."""
    rows = [("hidden_activation", "relu", "gelu and silu"), ("hidden_activation", 3, "gelu and silu"),
            ("local_attention", 0, "local_attention"), ("local_attention", -1, "local_attention"),
            ("local_attention", 1 << 40, "local_attention"), ("local_attention", "16", "local_attention"),
            ("layer_types", ["full_attention"], "layer_types"), ("layer_types", "all", "layer_types"),
            ("layer_types", ["chunked_attention"] * 9, "layer_types"), ("num_hidden_layers", 0, "num_hidden_layers"),
            ("num_attention_heads", 5, ""), ("hidden_size", 32, ""), ("intermediate_size", 95, "mlp.Wi.weight"),
            ("intermediate_size", 0, "intermediate_size"), ("norm_eps", -1, "norm_eps"), ("norm_eps", "1e-5", "norm_eps"),
            ("max_position_embeddings", 0, "max_position_embeddings")]
    if "rope_parameters" in case.config:
        rows += [("rope_parameters", {"sliding_attention": {"rope_type": "yarn", "factor": 2.0}}, "sliding_attention"),
                 ("rope_parameters", {"sliding_attention": {"rope_theta": -1}}, "rope")]
    else:
        rows += [("global_attn_every_n_layers", 0, "global_attn_every_n_layers"), ("local_rope_theta", 0, "local_rope_theta"),
                 ("global_attn_every_n_layers", 2.5, "global_attn_every_n_layers"), ("global_rope_theta", "x", "rope_theta")]
    if case.ranks:
        rows += [("classifier_pooling", "max", "cls and mean"), ("classifier_activation", "tanh", "gelu")]
    for key, value, part in rows:
        if key == "layer_types" and isinstance(value, str):
            value = {"all": value}
        case.write(folder, config={**case.config, key: value})
        refused(args, case, folder, out, part)
    for key in ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"):
        case.write(folder, config=without(case.config, key))
        refused(args, case, folder, out, key, "missing")


def check_tensors(args, case, folder, out, rng):
    names = sorted(n for n in case.published if not n.startswith(("act_head", "temperature", "decoder")) and
                   (case.ranks or case.decides or not n.startswith("head.")))
    for name in rng.sample(names, 5):
        shape, x = case.published[name]
        if name != "classifier.weight":
            case.write(folder, tensors=without(case.published, name))
            refused(args, case, folder, out)
        wide = [*shape[:-1], shape[-1] + 1]
        case.write(folder, tensors={**case.published, name: (wide, (x * 2)[:math.prod(wide)])})
        refused(args, case, folder, out)
    prefix = "model." if "model.final_norm.weight" in case.published else ""
    for name, t in ((f"{prefix}layers.1.attn.Wv.weight", ([64], array("f", [1] * 64))),
                    (f"{prefix}layers.0.mlp.extra.weight", ([2], array("f", [1] * 2))),
                    ("extra.weight", ([2], array("f", [1] * 2)))):
        case.write(folder, tensors={**case.published, ("encoder." if case.decides and prefix == "" and "layers" in name else "")
                                    + name: t})
        refused(args, case, folder, out, name)
    case.write(folder)
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as f:
        whole = f.read()
    for data in (b"", whole[:len(whole) // 2], whole[:len(whole) - 1], b"\x08\0\0\0\0\0\0\0{}", struct.pack("<Q", 1 << 60)):
        with open(path, "wb") as f:
            f.write(data)
        refused(args, case, folder, out)


def check_judge(args, case, folder, out):
    """Several labels are refused; without the classifier there is an encoder."""
    case.write(folder, tensors={**case.published, "classifier.weight": ([2, 64], array("f", [1] * 128)),
                                "classifier.bias": ([2], array("f", [1] * 2))})
    refused(args, case, folder, out, "several labels", "--skip classifier")
    for name in ("head.dense.weight", "head.norm.weight", "classifier.bias"):
        case.write(folder, tensors=without(case.published, name))
        refused(args, case, folder, out, name, "--skip classifier")
    case.write(folder)
    run = convert(args, folder, out, "--skip", "classifier")
    assert run.returncode == 0, run.stderr
    keys, got = read_gguf(out, raw=True)
    assert not [k for k in got if k.startswith("cls")] and keys.get("modern-bert.pooling_type") is None
    os.remove(out)


def characters(kind):
    """The kind of BPE that mmBERT and the multilingual models of granite-embedding-r2 have."""
    words = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "\u2581\u2581", "\u2581", "h", "e", "l", "o", "he", "ll", "\u2581he",
             "\u2581hell", *(f"<0x{i:02X}>" for i in range(200))]
    merges = [["h", "e"], ["l", "l"], ["\u2581", "he"], ["\u2581he", "ll"]]
    added = [{"id": i, "content": w, "special": i < 5, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for i, w in enumerate(words[:6])]
    mark = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    replaces = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    frame = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {
        "id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<eos>", "type_id": 0}}], "pair": [], "special_tokens": {
            w: {"id": w, "ids": [i], "tokens": [w]} for w, i in (("<bos>", 2), ("<eos>", 1))}}
    made = {"version": "1.0", "added_tokens": added, "normalizer": None if kind == "mmbert" else replaces,
            "pre_tokenizer": mark if kind == "mmbert" else {"type": "Split", "pattern": {"String": " "},
                                                            "behavior": "MergedWithPrevious", "invert": False},
            "post_processor": frame, "decoder": None, "model": {
                "type": "BPE", "vocab": {w: i for i, w in enumerate(words)}, "merges": merges, "unk_token": "<unk>",
                "byte_fallback": True, "fuse_unk": True}}
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "cls_token": "<bos>", "sep_token": "<eos>", "mask_token": "<mask>"}
    return {"tokenizer.json": json.dumps(made), "tokenizer_config.json": json.dumps(names)}


def check_characters(args, case, folder, out):
    # ids by tokenizers' own library: mmBERT's finds no runs of spaces, and puts a space before the text
    for kind, text, ids in (("mmbert", "hello   hell", [2, 14, 10, 6, 6, 14, 1]),
                            ("granite-embed-multi-311m", "hello hell", [2, 11, 12, 10, 14, 1])):
        case.write(folder, files={**case.files, **characters(kind)})
        run = convert(args, folder, out)
        assert run.returncode == 0, run.stderr
        keys, _ = read_gguf(out, raw=True)
        kept = ("\u2581\u2581", 1) if kind == "mmbert" else ("  ", 4)
        assert keys["tokenizer.ggml.pre"] == kind and keys["tokenizer.ggml.model"] == "gpt2"
        assert (keys["tokenizer.ggml.tokens"][5], keys["tokenizer.ggml.token_type"][5]) == kept
        run = subprocess.run([args.aerie, "tokenize", "-m", out, "--ids", "-p", text], capture_output=True, text=True)
        got = [int(x) for x in re.findall(r"\d+", run.stdout)]
        assert got == ids, f"{kind}: {got}, not {ids}"
        os.remove(out)


def check_vocabulary(args, case, folder, out):
    at = "tokenizer/" if case.decides else ""
    case.write(folder, files=without(case.files, "tokenizer.json"))
    refused(args, case, folder, out, "tokenizer.json")
    case.write(folder, files={**case.files, "tokenizer.json": "{"})
    refused(args, case, folder, out, at + "tokenizer.json")
    other = json.loads(case.files["tokenizer.json"])
    other["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    other["decoder"] = None
    case.write(folder, files={**case.files, "tokenizer.json": json.dumps(other)})
    refused(args, case, folder, out, "neither splits text into bytes nor marks spaces")
    if case.name == "modern-bert":
        check_characters(args, case, folder, out)
    names = json.loads(case.files["tokenizer_config.json"])
    for key in ("cls_token", "sep_token"):
        case.write(folder, files={**case.files, "tokenizer_config.json": json.dumps(without(names, key))})
        refused(args, case, folder, out, key)
    case.write(folder)
    target = os.path.join(folder, at, "tokenizer.json")
    run = convert(args, folder, target)
    assert run.returncode == 2 and "being read" in run.stderr, run.stderr
    if not case.ranks and not case.decides:
        for text, part in (("{", "1_Pooling"), ('{"pooling_mode": "max"}', "mean, cls and last"),
                           ('{"pooling_mode_max_tokens": true}', "mean, cls and last"), ("[]", "1_Pooling")):
            case.write(folder, files={**case.files, "1_Pooling/config.json": text})
            refused(args, case, folder, out, part)
        for text, part in (("{", "modules.json"), ("{}", "modules.json"),
                           ('[{"type": "a.Pooling", "path": 3}]', "path")):
            case.write(folder, files={**case.files, "modules.json": text})
            refused(args, case, folder, out, part)
        case.write(folder, files={**case.files, "modules.json": '[{"type": 1}, {"type": "x.Pooling", "path": "encoder"}]',
                                  "encoder/config.json": '{"pooling_mode_lasttoken": true}'})
        run = convert(args, folder, out)
        assert run.returncode == 0 and read_gguf(out, raw=True)[0]["modern-bert.pooling_type"] == 3, run.stderr
        os.remove(out)


def check_decision(args, case, folder, out):
    file = case.settings_file()
    for key, value in (("head_layers", 0), ("head_layers", -1), ("head_layers", 1 << 40), ("head_layers", "2"),
                       ("head_layers", 2.5), ("head_layers", None), ("head_max_len", 0), ("head_max_len", -4),
                       ("head_max_len", "long"), ("temperature", [1, 2]), ("temperature", 1.5), ("temperature", [1, 0, 1]),
                       ("temperature", [1, "1", 1]), ("temperature", [1, -2, 1]), ("temperature_by_options", [1]),
                       ("temperature_by_options", {"choice:3-5": 0}), ("temperature_by_options", {"Choice\n": 1}),
                       ("temperature_by_options", {"c" * 60: 1}), ("temperature_by_options", {"score:2": {}})):
        case.write(folder, settings={**case.settings, key: value})
        refused(args, case, folder, out, file)
    for n in (1, 3):  # fewer or more blocks than there are
        case.write(folder, settings={**case.settings, "head_layers": n})
        refused(args, case, folder, out, "head.layers.1." if n == 1 else "blk.5.")
    for text in ("{", "[]", ""):
        case.write(folder)
        with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
            f.write(text)
        refused(args, case, folder, out, file)
    for name in ("encoder/config.json", file):
        case.write(folder)
        os.remove(os.path.join(folder, name))
        refused(args, case, folder, out)
    names = json.loads(case.files["tokenizer_config.json"])
    case.write(folder, files={**case.files, "tokenizer_config.json": json.dumps({**names, "mask_token": "{{ x }}"})})
    refused(args, case, folder, out, "mask_token")


def places(value, path=()):
    yield path
    for k in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[k], path + (k,))


def check_mutants(args, case, folder, out, rng):
    """Wrong values anywhere: a sentence, or a file that loads."""
    values = (None, -1, 0, 1, 2, 7, 2 ** 31, 2 ** 32 + 1, 1e30, 0.5, -2.5, "", "none", [], [1], {}, True, 1 << 62)
    for _ in range(args.mutants):
        of_head = case.settings and rng.random() < 0.5
        bad = json.loads(json.dumps(case.settings if of_head else case.config))
        path = rng.choice([p for p in places(bad) if p and p[0] != "architectures"])
        to = bad
        for step in path[:-1]:
            to = to[step]
        to[path[-1]] = rng.choice(values)
        case.write(folder, **{"settings" if of_head else "config": bad})
        run = convert(args, folder, out)
        if run.returncode == 0:
            os.remove(out)
            continue
        assert run.returncode in (2, 3, 4) and run.stderr.startswith("aerie: ") and not os.path.exists(out), \
            f"{case.name}: status {run.returncode}: {run.stderr} {json.dumps(bad)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("aerie")
    parser.add_argument("mkarch")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--mutants", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="FOLDER", help="where the folders stay, undamaged")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.names or ("modern-bert", "modern-bert-silu", "modern-bert-rank", "modern-bert-decides"):
            for new in (False, True):
                rng = random.Random(f"{name} {args.seed}")
                case = Case(args, name, temporary, new)
                folder = os.path.join(args.keep or temporary, name + ("-new" if new else ""))
                out = os.path.join(temporary, "out.gguf")
                check_whole(args, case, folder, out)
                if args.keep or name == "modern-bert-silu" or (case.ranks and new):
                    continue
                check_settings(args, case, folder, out)
                check_tensors(args, case, folder, out, rng)
                check_vocabulary(args, case, folder, out)
                if case.ranks:
                    check_judge(args, case, folder, out)
                if case.decides:
                    check_decision(args, case, folder, out)
                check_mutants(args, case, folder, out, rng)
            print(f"{name}: {len(case.tensors)} tensors, {len(case.keys)} keys", flush=True)


main()
