#!/usr/bin/env python3
"""Writes what Pillow makes of pictures, for unit/image, and small picture files, which are the fuzzer's seeds too.

    make_image_vectors.py resize N SEED > resize.txt    N random resizes of noise: sizes, filter, FNV-1a of the result
    make_image_vectors.py files FOLDER > files.txt      files, each with its size and FNV-1a of the pixels; needs numpy

Made with Pillow 12.0.0 (Pillow 13 resizes some pictures along columns first, which changes single levels).
Noise: bytes s >> 24 of s = s * 1664525 + 1013904223, from s = w * 65536 + h.
`AERIE_RESIZE_VECTORS=resize.txt build/tests/unit_test_image` compares more of them than the tree keeps.
"""
import os
import random
import sys

from PIL import Image, ImageOps

FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS}


def noise(w, h):
    s, out = w * 65536 + h, bytearray(w * h * 3)
    for i in range(len(out)):
        s = (s * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = s >> 24
    return bytes(out)


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def resize(n, seed):
    r = random.Random(seed)
    side = lambda: r.choice((1, 2, 3, r.randint(1, 16), r.randint(1, 90), r.randint(1, 90)))
    for _ in range(n):
        w, h, to_w, to_h, name = side(), side(), side(), side(), r.choice(sorted(FILTERS))
        image = Image.frombytes("RGB", (w, h), noise(w, h)).resize((to_w, to_h), FILTERS[name])
        print(w, h, to_w, to_h, name, f"{fnv(image.tobytes()):016x}")


def picture(w, h):
    """Not noise, which JPEG hates, and no two sides alike."""
    return Image.frombytes("RGB", (w, h), bytes(
        v for y in range(h) for x in range(w) for v in (x * 255 // max(w - 1, 1), y * 255 // max(h - 1, 1), (x ^ y) * 8 & 255)))


def on_white(image):
    out = bytearray()
    for r, g, b, a in zip(*[iter(image.convert("RGBA").tobytes())] * 4):
        out += bytes((c * a + 255 * (255 - a) + 127) // 255 for c in (r, g, b))
    return Image.frombytes("RGB", image.size, bytes(out))


def files(folder):
    def exif(k):
        e = Image.Exif()
        e[0x0112] = k
        return e
    rgb = picture(23, 17)
    alpha = rgb.convert("RGBA")
    alpha.putalpha(Image.frombytes("L", rgb.size, bytes(i * 7 & 255 for i in range(23 * 17))))
    palette = rgb.quantize(16)
    clear = palette.copy()
    clear.info["transparency"] = 3
    todo = [("plain.png", rgb, {}), ("alpha.png", alpha, {}), ("grey.png", rgb.convert("L"), {}), ("palette.png", palette, {}),
            ("clear.png", clear, {"transparency": 3}), ("bits.png", rgb.convert("1"), {}),
            ("one.png", picture(1, 1), {}), ("tall.png", picture(1, 64), {}), ("wide.png", picture(64, 1), {}),
            ("plain.jpg", rgb, {"quality": 90}), ("grey.jpg", rgb.convert("L"), {}), ("full.jpg", rgb, {"subsampling": 0}),
            ("progressive.jpg", picture(48, 31), {"progressive": True}), ("one.jpg", picture(1, 1), {}),
            ("lossless.webp", rgb, {"lossless": True}), ("lossy.webp", rgb, {"quality": 80}),
            ("alpha.webp", alpha, {"lossless": True, "exact": True})]
    todo += [(f"turned{k}.jpg", rgb, {"exif": exif(k), "quality": 95}) for k in range(1, 9)]
    todo += [("turned6.png", rgb, {"exif": exif(6)}), ("turned8.webp", rgb, {"exif": exif(8), "lossless": True})]
    for name, image, options in todo:
        path = os.path.join(folder, name)
        image.save(path, **options)
        back = Image.open(path)
        back.load()
        back = ImageOps.exif_transpose(back)
        has_alpha = back.mode in ("RGBA", "LA") or "transparency" in back.info
        back = on_white(back) if has_alpha else back.convert("RGB")
        print(name, *back.size, f"{fnv(back.tobytes()):016x}")


if sys.argv[1] == "resize":
    resize(int(sys.argv[2]), int(sys.argv[3]))
else:
    files(sys.argv[2])
