"""Pictures as the bytes of a file."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def noise(height: int = 24, width: int = 36) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def encode(image: Image.Image | NDArray[Any], file_format: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(stream, file_format, **options)
    return stream.getvalue()


def png(width: int, height: int, depth: int, colour_type: int, pixels: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """Write a PNG by hand, for what Pillow does not write."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(pixels)), (b"IEND", b"")]
    body = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)
