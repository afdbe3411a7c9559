"""Writes a trained MTP block as GGUF: as a separate file, or in a copy of its target (docs/heads.md, "MTP blocks").

The copy has the target's keys and tensors, byte for byte, and the block after its last layer. The file of its own has the
target's keys, but not its tokenizer and tensors. Both draft from the tokens of `d2t`, whose output rows are the target's.
"""
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import quantize

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1")  # that gguf.quants writes
# Architectures whose layers are as Block's: how their rotation pairs the values of a head.
INTERLEAVED, HALVES = "interleaved", "halves"
ARCHITECTURES = {"llama": INTERLEAVED, "qwen2": HALVES}


def _interleave(weight, n_heads):
    """Rows of rotated halves (i, i + d / 2) as pairs (2i, 2i + 1)."""
    n_out, n_in = weight.shape
    return weight.reshape(n_heads, 2, n_out // n_heads // 2, n_in).swapaxes(1, 2).reshape(n_out, n_in)


def tensors(saved, arch, i):
    """name -> array: the block as blk.i; f32, but d2t."""
    if arch not in ARCHITECTURES:
        raise SystemExit(
            f"an MTP block can be trained for {' and '.join(ARCHITECTURES)}, whose layers it is like; the target is of {arch}")
    shape, state = saved["shape"], {k: v.detach().float().cpu().numpy() for k, v in saved["head"].items() if k != "d2t"}
    q, k = (state[f"midlayer.self_attn.{n}_proj.weight"] for n in "qk")
    if ARCHITECTURES[arch] == INTERLEAVED:
        q, k = _interleave(q, shape["n_heads"]), _interleave(k, shape["n_kv_heads"])
    names = {"nextn.enorm": "enorm", "nextn.hnorm": "hnorm", "nextn.eh_proj": "eh_proj", "nextn.shared_head_norm": "norm",
             "attn_norm": "midlayer.input_layernorm", "attn_v": "midlayer.self_attn.v_proj",
             "attn_output": "midlayer.self_attn.o_proj",
             "ffn_norm": "midlayer.post_attention_layernorm", "ffn_gate": "midlayer.mlp.gate_proj",
             "ffn_up": "midlayer.mlp.up_proj",
             "ffn_down": "midlayer.mlp.down_proj"}
    made = {f"blk.{i}.{name}.weight": state[f"{source}.weight"] for name, source in names.items()}
    made[f"blk.{i}.attn_q.weight"], made[f"blk.{i}.attn_k.weight"] = q, k
    made["d2t"] = saved["head"]["d2t"].cpu().numpy().astype(np.int32)
    return made


def _copy_key(writer, name, field, value=None):
    kind = field.types[0]
    sub = field.types[-1] if kind == GGUFValueType.ARRAY else None
    writer.add_key_value(name, field.contents() if value is None else value, kind, sub)


def write(path_checkpoint, model, out, name, type_name, whole):
    """whole: writes a copy of the model with the block in it, instead of only the block."""
    reader = GGUFReader(model)
    arch = reader.fields["general.architecture"].contents()
    if f"{arch}.nextn_predict_layers" in reader.fields:
        raise SystemExit(f"{model}: has {arch}.nextn_predict_layers already: its own MTP blocks are in the way")
    kind = GGMLQuantizationType[type_name.upper()]
    saved = torch.load(path_checkpoint, map_location="cpu", weights_only=True)
    n_layers = reader.fields[f"{arch}.block_count"].contents()
    made = tensors(saved, arch, n_layers)
    writer = GGUFWriter(out, arch)
    for key, field in reader.fields.items():
        wanted = whole or key.startswith(f"{arch}.") or key == "general.quantization_version"
        if key.startswith("GGUF.") or key in ("general.architecture", f"{arch}.block_count",
                                              f"{arch}.vocab_size") or not wanted:
            continue
        _copy_key(writer, key, field)
    if not whole:
        writer.add_name(name)
    writer.add_uint32(f"{arch}.block_count", n_layers + 1)
    writer.add_uint32(f"{arch}.nextn_predict_layers", 1)
    writer.add_uint32(f"{arch}.vocab_size", next(t for t in reader.tensors if t.name == "token_embd.weight").shape[1])
    writer.add_string(f"{arch}.draft_map", "absolute")
    for tensor in reader.tensors if whole else []:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for key, value in made.items():
        if value.ndim == 1:
            writer.add_tensor(key, value)
        else:
            writer.add_tensor(key, quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
