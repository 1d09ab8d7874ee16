"""A hundred files that a folder of photos may hold and no photographer made."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from encoded import encode, noise, png

NAMES = (
    "with space.jpg",
    "two\nlines.jpg",
    "tab\there.jpg",
    "-leading-dash.jpg",
    "--help.jpg",
    "ünïcödé 写真 🐘.jpg",
    "per%20cent#and?query.jpg",
    "quote'\"quote.jpg",
    "semi;colon & ampersand.jpg",
    "$(touch escaped).jpg",
    "<script>alert(1)</script>.jpg".replace("/", "\N{DIVISION SLASH}"),
    "UPPER.JPEG",
    "a" * 240 + ".jpg",
)
"""Names of good pictures."""


def write_corpus(folder: Path) -> tuple[set[str], set[str]]:
    """Writes a hundred files, and beside them what is no file.

    Args:
        folder: Where to; it is made.

    Returns:
        Names of the pictures that can be read, and of the files that cannot.
    """
    folder.mkdir(parents=True)
    good = dict(_good())
    bad = dict(_bad())
    for name, content in (good | bad).items():
        (folder / name).write_bytes(content)
    assert len(good) + len(bad) == 100 == len(list(folder.iterdir())), len(good) + len(bad)
    (folder / "dangling.jpg").symlink_to("nowhere.jpg")
    (folder / "folder.jpg").mkdir()
    (folder / "loop").symlink_to(".")
    os.mkfifo(folder / "pipe.jpg")
    return set(good), set(bad) | {"dangling.jpg"}


def _good() -> Iterator[tuple[str, bytes]]:
    for name in NAMES:
        yield name, encode(noise(), "JPEG")
    for mode in ("1", "L", "LA", "P", "RGBA", "I;16"):
        yield f"mode {mode}.png", encode(_picture(mode), "PNG")
    yield "palette with a hole.png", encode(_picture("P"), "PNG", transparency=0)
    yield "integers.tif", encode(_picture("I"), "TIFF")
    for mode in ("CMYK", "L"):
        yield f"mode {mode}.jpg", encode(_picture(mode), "JPEG")
    yield "floats.tif", encode(_picture("F"), "TIFF")
    yield "one pixel.png", encode(noise(1, 1), "PNG")
    yield "one row.png", encode(noise(1, 300), "PNG")
    yield "twenty thousand wide.png", encode(noise(3, 20_000), "PNG")
    yield "animated.gif", _animated()
    yield "really a png.jpg", encode(noise(), "PNG")
    yield "progressive.jpg", encode(noise(), "JPEG", progressive=True)
    for number, block in enumerate((b"II*\0\xff\xff\xff\x7f", b"garbage" * 20, b"MM\0*\0\0G", b"\0" * 60_000)):
        yield f"exif {number}.jpg", encode(noise(), "JPEG", exif=b"Exif\0\0" + block)
    # A directory whose next directory is itself.
    circle = b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 0) + struct.pack("<I", 8)
    yield "exif circle.jpg", encode(noise(), "JPEG", exif=b"Exif\0\0" + circle)


def _bad() -> Iterator[tuple[str, bytes]]:
    jpeg, whole = encode(noise(), "JPEG"), encode(noise(), "PNG")
    for number in range(12):
        yield f"truncated {number:02}.jpg", jpeg[: len(jpeg) * number // 13]
    for number in range(12):
        yield f"truncated {number:02}.png", whole[: len(whole) * number // 13]
    random = np.random.default_rng(0)
    for number in range(20):
        yield f"noise {number:02}.jpg", random.bytes(37 * number + 1)
    for number in range(8):
        start = 60 + number * (len(whole) - 120) // 8
        yield f"damaged {number}.png", whole[:start] + bytes(40) + whole[start + 40 :]
    yield "bomb.png", png(60_000, 60_000, 8, 2, b"")
    yield "bomb of nothing.png", png(0, 0, 8, 2, b"")
    yield "bomb.gif", b"GIF89a" + struct.pack("<HH", 65_535, 65_535) + b"\xf7\0\0" + bytes(768) + b"\x2c"
    yield "page.jpg", b"<html><body>404</body></html>"
    yield "script.jpg", b"#!/bin/sh\ntouch escaped\n"
    yield "postscript.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    yield "vector.png", b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    yield "archive.jpg", b"PK\3\4" + bytes(40)
    yield "pickle.png", b"cos\nsystem\n(S'touch escaped'\ntR."
    yield "movie.gif", b"GIF89a"
    yield "zeros.bmp", bytes(1000)
    yield "header.webp", b"RIFF\x10\0\0\0WEBPVP8 "
    yield "header.tif", b"II*\0\x08\0\0\0"


def _picture(mode: str) -> Image.Image:
    if mode == "I;16":
        return Image.fromarray(np.arange(24 * 36, dtype=np.uint16).reshape(24, 36))
    if mode in ("I", "F"):
        return Image.fromarray(noise()).convert("L").convert(mode)
    return Image.fromarray(noise()).convert(mode)


def _animated() -> bytes:
    return encode(noise(), "GIF", save_all=True, append_images=[Image.fromarray(noise())] * 2)
