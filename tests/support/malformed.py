"""A hundred files that a folder of photos may hold and no photographer made."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

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
        yield name, _encoded(_noise(), "JPEG")
    for mode in ("1", "L", "LA", "P", "RGBA", "I;16"):
        yield f"mode {mode}.png", _encoded(_picture(mode), "PNG")
    yield "palette with a hole.png", _encoded(_picture("P"), "PNG", transparency=0)
    yield "integers.tif", _encoded(_picture("I"), "TIFF")
    for mode in ("CMYK", "L"):
        yield f"mode {mode}.jpg", _encoded(_picture(mode), "JPEG")
    yield "floats.tif", _encoded(_picture("F"), "TIFF")
    yield "one pixel.png", _encoded(_noise(1, 1), "PNG")
    yield "one row.png", _encoded(_noise(1, 300), "PNG")
    yield "twenty thousand wide.png", _encoded(_noise(3, 20_000), "PNG")
    yield "animated.gif", _animated()
    yield "really a png.jpg", _encoded(_noise(), "PNG")
    yield "progressive.jpg", _encoded(_noise(), "JPEG", progressive=True)
    for number, block in enumerate((b"II*\0\xff\xff\xff\x7f", b"garbage" * 20, b"MM\0*\0\0G", b"\0" * 60_000)):
        yield f"exif {number}.jpg", _encoded(_noise(), "JPEG", exif=b"Exif\0\0" + block)
    # A directory whose next directory is itself.
    circle = b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 0) + struct.pack("<I", 8)
    yield "exif circle.jpg", _encoded(_noise(), "JPEG", exif=b"Exif\0\0" + circle)


def _bad() -> Iterator[tuple[str, bytes]]:
    jpeg, png = _encoded(_noise(), "JPEG"), _encoded(_noise(), "PNG")
    for number in range(12):
        yield f"truncated {number:02}.jpg", jpeg[: len(jpeg) * number // 13]
    for number in range(12):
        yield f"truncated {number:02}.png", png[: len(png) * number // 13]
    random = np.random.default_rng(0)
    for number in range(20):
        yield f"noise {number:02}.jpg", random.bytes(37 * number + 1)
    for number in range(8):
        start = 60 + number * (len(png) - 120) // 8
        yield f"damaged {number}.png", png[:start] + bytes(40) + png[start + 40 :]
    yield "bomb.png", _png_header(60_000, 60_000)
    yield "bomb of nothing.png", _png_header(0, 0)
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


def _noise(height: int = 24, width: int = 36) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def _picture(mode: str) -> Image.Image:
    if mode == "I;16":
        return Image.fromarray(np.arange(24 * 36, dtype=np.uint16).reshape(24, 36))
    if mode in ("I", "F"):
        return _noise().convert("L").convert(mode)
    return _noise().convert(mode)


def _encoded(image: Image.Image, file_format: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, file_format, **options)
    return stream.getvalue()


def _animated() -> bytes:
    return _encoded(_noise(), "GIF", save_all=True, append_images=[_noise(), _noise()])


def _png_header(width: int, height: int) -> bytes:
    """A PNG that announces a size and has next to no pixels."""
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(b"")))
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
