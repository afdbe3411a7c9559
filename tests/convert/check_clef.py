#!/usr/bin/env python3
"""Clef folders, converted: a trunk of Qwen 3.5 with a joint decision head beside it (docs/decisions.md). OpenJev's folders:
such a trunk alone, and helper/shim.py.

    check_clef.py AERIE MKARCH [--keep FOLDER] [--mutants N]

mkarch's random model is taken apart into a folder with the published names, shapes and orders, written down here once more;
'aerie convert' must make the same tensors and keys of it. Then files are damaged: each folder is refused with a sentence that
names the file, and no output is left. Needs Python alone.
"""
import argparse
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
from array import array

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from folders import changed, joined, read_gguf, rows_of, shaped, turned, usual_files, write_folder, \
    write_safetensors  # noqa: E402

# raw numbers of the checkpoint, and what they are in the file
SCALES = {"prior_logit_scale": 7.5, "joint_logit_scale": 1.3125, "residual_gate": -0.8125}
TRUNK = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_qkv": "linear_attn.in_proj_qkv",
         "attn_gate": "linear_attn.in_proj_z", "ssm_beta": "linear_attn.in_proj_b", "ssm_alpha": "linear_attn.in_proj_a",
         "ssm_conv1d": "linear_attn.conv1d", "ssm_out": "linear_attn.out_proj", "ssm_norm": "linear_attn.norm"}
WHOLE = {"token_embd": "model.language_model.embed_tokens", "output_norm": "model.language_model.norm", "output": "lm_head"}
HEAD = {"decision.hidden_norm": "hidden_norm", "decision.option_summary_norm": "option_summary_norm",
        "decision.field_norm": "field_norm", "decision.option_norm": "option_norm", "token_types": "type_embedding",
        **{f"decision.proj_{x}": x + "_projection" for x in ("memory", "question", "option_question", "global",
                                                            "option_context", "option_lexical")},
        "decision.scorer": "residual_scorer.0", "decision.scorer_out": "residual_scorer.3"}
ROUTING = {"cross_attn_norm": "query_norm", "cross_attn_norm_kv": "memory_norm", "cross_attn_o": "attention.out_proj",
           "ffn_norm": "feedforward_norm", "ffn_up": "feedforward.0", "ffn_down": "feedforward.3"}
JOINT = {"attn_norm": "norm1", "cross_attn_norm": "norm2", "ffn_norm": "norm3", "attn_o": "self_attn.out_proj",
         "cross_attn_o": "multihead_attn.out_proj", "ffn_up": "linear1", "ffn_down": "linear2"}
ROUNDED = ("attn_norm.weight", "post_attention_norm.weight", "attn_q_norm.weight", "attn_k_norm.weight", "output_norm.weight",
           "ssm_a")  # another function of the published numbers; of the trunk alone


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def part_name(name, names):
    base, _, end = name.rpartition(".")
    return f"{names[base]}.{end}"


def trunk_layer(t, at, keys, out):
    """Value heads: the file has the first of each key head, then the second; the checkpoint has a key head's together."""
    n_keys, n_values, dim = keys["ssm.group_count"], keys["ssm.time_step_rank"], keys["ssm.state_size"]
    heads = [j * n_keys + g for g in range(n_keys) for j in range(n_values // n_keys)]

    def order(x, size, first=0):
        return rows_of(x, [*range(first), *[first + h * size + i for h in heads for i in range(size)]])
    for name in [x for x in t if "norm" in x and x != "ssm_norm.weight"]:
        t[name] = changed(t[name], lambda x: x - 1)
    if "ssm_a" in t:
        q_k = 2 * n_keys * dim
        for name, size, first in (("attn_qkv.weight", dim, q_k), ("attn_gate.weight", dim, 0), ("ssm_beta.weight", 1, 0),
                                  ("ssm_alpha.weight", 1, 0), ("ssm_conv1d.weight", dim, q_k)):
            t[name] = order(t[name], size, first)
        out[at + "linear_attn.dt_bias"] = order(t.pop("ssm_dt.bias"), 1)
        out[at + "linear_attn.A_log"] = changed(order(t.pop("ssm_a"), 1), lambda x: math.log(-x))
        t["ssm_out.weight"] = turned(order(turned(t["ssm_out.weight"]), dim))
        t["ssm_conv1d.weight"] = shaped(t["ssm_conv1d.weight"], q_k + n_values * dim, 1, keys["ssm.conv_kernel"])
    for name, x in t.items():
        out[at + part_name(name, TRUNK)] = x


def head_block(t, i, n_routing, out):
    at = f"evidence_layers.{i}." if i < n_routing else f"layers.{i - n_routing}."
    names = ROUTING if i < n_routing else JOINT
    for prefix, to in (("attn", "self_attn"), ("cross_attn", "attention" if i < n_routing else "multihead_attn")):
        for end in ("weight", "bias"):
            parts = [t.pop(f"{prefix}_{x}.{end}", None) for x in "qkv"]
            if parts[0]:
                out[f"{at}{to}.in_proj_{end}"] = joined(*parts)
    for name, x in t.items():
        out[at + part_name(name, names)] = x


def take_apart(keys, tensors, rng):
    """Two sets of tensors, of the trunk and of the head."""
    trunk, head, rest = {}, {}, dict(tensors)

    def layer(prefix, i):
        at = f"{prefix}.{i}."
        return {n[len(at):]: rest.pop(n) for n in list(rest) if n.startswith(at)}
    for i in range(keys["block_count"]):
        trunk_layer(layer("blk", i), f"model.language_model.layers.{i}.", keys, trunk)
    n_routing = keys["decision.routing_block_count"]
    for i in range(n_routing + keys["decision.block_count"]):
        head_block(layer("dec.blk", i), i, n_routing, head)
    del rest["decision.scales"]
    for name, raw in SCALES.items():
        head[name] = [], array("f", [raw])
    rest["output_norm.weight"] = changed(rest["output_norm.weight"], lambda x: x - 1)
    for name, x in rest.items():
        if name in ("decision.scorer_out.weight",):
            x = shaped(x, 1, len(x[1]))
        if name.rpartition(".")[0] in HEAD:
            head[part_name(name, HEAD)] = x
        else:
            trunk[part_name(name, WHOLE)] = x
    # what other programs leave out, too: a block that predicts ahead, and a vision encoder
    trunk["mtp.fc.weight"] = [4, 8], array("f", [rng.random() for _ in range(32)])
    trunk["mtp.norm.weight"] = [4], array("f", [1.0] * 4)
    trunk["model.visual.blocks.0.norm1.weight"] = [4], array("f", [1.0] * 4)
    return trunk, head


def configs(keys):
    n = keys["block_count"]
    types = ["linear_attention" if (i + 1) % keys["full_attention_interval"] else "full_attention" for i in range(n)]
    text = {"hidden_size": keys["embedding_length"], "num_hidden_layers": n, "layer_types": types,
            "num_attention_heads": keys["attention.head_count"], "num_key_value_heads": keys["attention.head_count_kv"],
            "head_dim": keys["attention.key_length"], "intermediate_size": keys["feed_forward_length"],
            "max_position_embeddings": keys["context_length"], "hidden_act": "silu", "vocab_size": 264, "rms_norm_eps": 1e-6,
            "linear_num_key_heads": keys["ssm.group_count"], "linear_num_value_heads": keys["ssm.time_step_rank"],
            "linear_key_head_dim": keys["ssm.state_size"], "linear_value_head_dim": keys["ssm.state_size"],
            "linear_conv_kernel_dim": keys["ssm.conv_kernel"], "rope_parameters": {
                "rope_type": "default", "rope_theta": keys["rope.freq_base"], "mrope_interleaved": True,
                "mrope_section": keys["rope.dimension_sections"][:3],
                "partial_rotary_factor": keys["rope.dimension_count"] / keys["attention.key_length"]}}
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "tie_word_embeddings": False, "text_config": text,
              "vision_config": {}}
    return config, {"routing_layers": keys["decision.routing_block_count"], "layers": keys["decision.block_count"],
                    "heads": keys["decision.head_count"], "dropout": 0.1}


def write(folder, config, of_head, trunk, head):
    write_folder(folder, config, trunk, usual_files())
    for name, make in (("joint_head_config.json", lambda p: open(p, "w", encoding="utf-8").write(json.dumps(of_head))),
                       ("joint_head.safetensors", lambda p: write_safetensors(p, head))):
        path = os.path.join(folder, name)
        if (of_head if name.endswith("json") else head) is not None:
            make(path)
        elif os.path.exists(path):
            os.remove(path)


def convert(args, folder, out, *more):
    return subprocess.run([args.aerie, "convert", folder, "-o", out, "-q", *more], capture_output=True, text=True)


def compare(got, tensors):
    assert got.keys() == tensors.keys(), sorted(got.keys() ^ tensors.keys())
    for name, (shape, want) in tensors.items():
        other, x = got[name]
        assert other == shape, f"{name}: {shape} became {other}"
        worst = max(abs(a - b) / max(1, abs(b)) for a, b in zip(x, want))
        trunk = name.startswith("blk.") or name == "output_norm.weight"
        assert x == want or (trunk and name.endswith(ROUNDED) and worst < 2e-6), f"{name} differs by {worst}"


def check_keys(got, keys):
    """The source's keys, and those that are of the conversion alone."""
    template = got.pop("tokenizer.chat_template.systemone")
    for part in ("Decide every field jointly.", "{{ sep }}", "{{ mark_question }}", "{{ mark_option }}", "loop.index",
                 "JOINT SCHEMA DECISIONS:"):
        assert part in template, f"the template lacks {part!r}"
    assert "tokenizer.chat_template" not in got
    for name, want in (("decision.type", "clef"), ("attention.layer_norm_epsilon", f32(1e-5)),
                       ("attention.layer_norm_rms_epsilon", f32(1e-6)), ("nextn_predict_layers", None)):
        assert got.get("clef." + name) == want, f"{name} is {got.get('clef.' + name)}"
    for name, want in keys.items():
        if name.startswith("decision.temperature") or name.startswith("attention.layer_norm") or name == "name":
            continue
        other = got.get("clef." + name)
        assert other == want, f"{name}: {want} became {other}"


def check_types(args, folder, out, tensors):
    """Matrices in the wanted type; vectors and the table of types in F32."""
    run = convert(args, folder, out, "--outtype", "bf16")
    assert run.returncode == 0, run.stderr
    _, got = read_gguf(out, raw=True)
    for name, (shape, _, kind) in got.items():
        small = len(shape) == 1 or name in ("token_types.weight",) or "conv1d" in name
        assert kind == (0 if small else 30), f"{name} is of type {kind}"
    assert got.keys() == tensors.keys()


def refused(args, folder, out, *parts):
    run = convert(args, folder, out)
    text = run.stderr
    ok = run.returncode in (2, 3) and text.startswith("aerie: ") and text.count("\n") == 1 and not os.path.exists(out)
    assert ok and all(p in text for p in parts), f"{parts}: status {run.returncode}: {text}"


def check_openjev(args, folder, out, config, trunk, tensors):
    """The trunk as a language model, with the prompt and the temperatures of the answers."""
    write(folder, config, None, trunk, None)
    run = convert(args, folder, out, "--outtype", "f32")
    assert run.returncode == 3 and "nextn" in run.stderr, run.stderr # Qwen 3.5's MTP tensors are read, and the toy's are none
    os.mkdir(os.path.join(folder, "helper"))
    shim = os.path.join(folder, "helper", "shim.py")
    open(shim, "w", encoding="utf-8").close()
    run = convert(args, folder, out, "--outtype", "f32")
    assert run.returncode == 0, run.stderr
    keys, got = read_gguf(out)
    compare(got, {n: t for n, t in tensors.items() if not n.startswith(("dec", "token_types"))})
    assert keys["general.architecture"] == "qwen35" and keys["qwen35.decision.type"] == "openjev"
    temperatures = [keys["qwen35.decision.temperature." + x] for x in ("choice", "score", "noul")]
    assert temperatures == [f32(0.85), f32(0.85), f32(0.85 * 1.829074)], temperatures
    for part in ("letters[loop.index0]", "{{ image }}", "Answer with the letter of the best option only."):
        assert part in keys["tokenizer.chat_template.systemone"], part
    os.remove(out)
    os.remove(shim)


def check_damage(args, folder, out, config, of_head, head):
    """One sentence each, with the name of the file."""
    file, settings = "joint_head.safetensors", "joint_head_config.json"

    def changed_head(**changes):
        new = {k: v for k, v in head.items() if changes.get(k, v) is not None}
        return {**new, **{k: v for k, v in changes.items() if v}}
    for name, value, part in (
            ("routing_layers", None, "'routing_layers' is missing"), ("layers", None, "'layers' is missing"),
            ("heads", None, "'heads' is missing"), ("heads", 0, "'heads' must be"), ("heads", "3", "'heads' must be"),
            ("layers", -1, "'layers' must be"), ("layers", 1 << 40, "'layers' must be"), ("routing_layers", 2.5, "must be"),
            ("heads", 5, "cannot share evenly")):
        bad = {k: v for k, v in {**of_head, name: value}.items() if v is not None}
        write(folder, config, bad, None, head)
        refused(args, folder, out, settings, part)
    for name, value in (("routing_layers", 1), ("routing_layers", 3), ("layers", 1), ("layers", 3), ("layers", 0)):
        write(folder, config, {**of_head, name: value}, None, head)
        refused(args, folder, out, file, settings, "missing" if value == 3 else "unknown")
    write(folder, config, of_head, None, None)
    refused(args, folder, out, file, "missing")
    write(folder, config, None, None, head)
    refused(args, folder, out, settings, "missing")
    rng = random.Random(args.seed)
    for name in sorted({*rng.sample(sorted(head), 12), *SCALES}):
        shape, values = head[name]
        write(folder, config, of_head, None, changed_head(**{name: None}))
        refused(args, folder, out, file, name, "missing")
        wide = [*shape[:-1], shape[-1] + 1] if shape else [2]  # a value more in the last dimension
        write(folder, config, of_head, None, changed_head(**{name: (wide, (values * 2)[:math.prod(wide)])}))
        refused(args, folder, out, file, name)
    for name, new, part in (
            ("hidden_norm.weight", ([64], array("i", range(64))), "I32"),
            ("residual_gate", ([], array("f", [math.nan])), "finite"),
            ("prior_logit_scale", ([], array("f", [math.inf])), "finite"),
            ("extra.weight", ([2], array("f", [1, 2])), "unknown"),
            ("layers.9.norm1.weight", ([48], array("f", [1] * 48)), "unknown")):
        write(folder, config, of_head, None, changed_head(**{name: new}))
        refused(args, folder, out, file, name, part)
    write(folder, config, of_head, None, head)
    for name, data in ((settings, b"{"), (settings, b"[]"), (settings, b""), (file, b""), (file, b"\x08\0\0\0\0\0\0\0{}"),
                       (file, struct.pack("<Q", 1 << 60))):
        path = os.path.join(folder, name)
        with open(path, "rb") as f:
            whole = f.read()
        with open(path, "wb") as f:
            f.write(data)
        refused(args, folder, out, name)
        with open(path, "wb") as f:
            f.write(whole)
    run = convert(args, folder, os.path.join(folder, file))
    assert run.returncode == 2 and "being read" in run.stderr, run.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("aerie")
    parser.add_argument("mkarch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="FOLDER", help="where the folder stays")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        scratch = args.keep or temporary
        source, folder, out = (os.path.join(scratch, x) for x in ("source.gguf", "clef", "out.gguf"))
        subprocess.run([args.mkarch, "--decoded", "clef", source], check=True)
        all_keys, tensors = read_gguf(source)
        keys = {k.removeprefix("clef."): v for k, v in all_keys.items() if k.startswith("clef.")}
        prior, joint, gate = SCALES.values()
        assert prior > math.log(100) > joint
        tensors["decision.scales"] = [3], array("f", [100, math.exp(joint), 1 / (1 + math.exp(-gate))])
        trunk, head = take_apart(keys, tensors, random.Random(args.seed))
        config, of_head = configs(keys)
        write(folder, config, of_head, trunk, head)
        run = convert(args, folder, out, "--outtype", "f32", "--mtp")
        assert run.returncode == 0, run.stderr
        got_keys, got = read_gguf(out)
        assert got_keys["general.architecture"] == "clef"
        tensors["decision.scorer_out.weight"] = shaped(tensors["decision.scorer_out.weight"], 1, 48)
        compare(got, tensors)
        check_keys(got_keys, keys)
        check_types(args, folder, out, tensors)
        os.remove(out)
        check_openjev(args, folder, out, config, trunk, tensors)
        if not args.keep:
            check_damage(args, folder, out, config, of_head, head)
        print(f"clef: {len(tensors)} tensors, {len(keys)} keys")


main()
