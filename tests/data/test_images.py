"""Awkward images, all made here by code, and what decoding has to make of them."""

from __future__ import annotations

import io
import pickle
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageFile

from encoded import encode, noise, png
from objectaware.data import images as image_files
from objectaware.data.dataset import TrainingImages
from objectaware.data.folder import ImageFolder
from objectaware.data.images import (
    ImageMemoryError,
    UnreadableImage,
    decode_image,
    normalise,
    read_header,
    read_image,
    resize_image,
)
from objectaware.errors import ExplainedError

# pytest resets the filter that the module registers; that nothing leaks is tested in a process of its own.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PIL.Image.DecompressionBombWarning")

RED, BLACK, WHITE = (255, 0, 0), (0, 0, 0), (255, 255, 255)
LOSSLESS: list[tuple[str, dict[str, Any]]] = [
    ("PNG", {}),
    ("BMP", {}),
    ("TIFF", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("WEBP", {"lossless": True}),
    ("PPM", {}),
]
FORMATS: list[tuple[str, dict[str, Any]]] = [
    *LOSSLESS,
    ("JPEG", {}),
    ("JPEG", {"progressive": True}),
    ("GIF", {}),
    ("AVIF", {}),
]


@pytest.mark.parametrize(("file_format", "options"), LOSSLESS)
def test_lossless_formats_give_the_pixels_that_were_written(file_format: str, options: dict[str, Any]) -> None:
    pixels = noise()
    decoded = decode_image(encode(pixels, file_format, **options))
    assert decoded.dtype == np.uint8
    assert np.array_equal(decoded, pixels)
    decoded[0, 0] = 7  # writable: PyTorch and pydensecrf refuse arrays that are not


def test_jpeg_is_decoded_as_pillow_decodes_it() -> None:
    content = encode(noise(), "JPEG", quality=95)
    assert np.array_equal(decode_image(content), np.array(Image.open(io.BytesIO(content))))


UPRIGHT: dict[int, Callable[[NDArray[Any]], NDArray[Any]]] = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.swapaxes(0, 1),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: stored[::-1, ::-1].swapaxes(0, 1),
    8: lambda stored: np.rot90(stored),
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("file_format", ["PNG", "WEBP", "TIFF", "JPEG"])
def test_exif_orientation_is_applied(file_format: str, orientation: int) -> None:
    stored = np.kron(noise(2, 3), np.ones((16, 16, 1), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, Any] = {"lossless": True} if file_format == "WEBP" else {}
    if file_format == "JPEG":
        options = {"quality": 100, "subsampling": 0}
    decoded = decode_image(encode(stored, file_format, exif=exif, **options))
    expected = UPRIGHT[orientation](stored)
    assert decoded.shape == expected.shape
    assert np.abs(decoded.astype(int) - expected).max() <= (4 if file_format == "JPEG" else 0)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("exif", [b"II*\0\xff\xff\xff\x7f", b"garbage" * 20, b"MM\0*\0\0G", b"M"])
def test_broken_exif_block_does_not_fail_the_image(file_format: str, exif: bytes) -> None:
    content = encode(noise(), file_format, exif=b"Exif\0\0" + exif)
    assert np.array_equal(decode_image(content), decode_image(encode(noise(), file_format)))


def test_unknown_orientation_counts_as_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 99
    assert np.array_equal(decode_image(encode(noise(), exif=exif)), noise())


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "TIFF", "BMP", "WEBP"])
def test_grayscale_becomes_three_equal_channels(file_format: str) -> None:
    decoded = decode_image(encode(Image.new("L", (5, 4), 90), file_format))
    assert decoded.shape == (4, 5, 3)
    assert np.abs(decoded.astype(int) - 90).max() <= 1


def test_one_bit_becomes_black_and_white() -> None:
    bits = Image.new("1", (2, 1))
    bits.putpixel((1, 0), 1)
    assert decode_image(encode(bits)).tolist() == [[list(BLACK), list(WHITE)]]


def test_palette_is_looked_up() -> None:
    palette = Image.new("P", (2, 1))
    palette.putpalette([*BLACK, *RED])
    palette.putpixel((1, 0), 1)
    assert decode_image(encode(palette)).tolist() == [[list(BLACK), list(RED)]]


@pytest.mark.parametrize("file_format", ["PNG", "GIF"])
def test_transparent_palette_entry_becomes_white(file_format: str) -> None:
    palette = Image.new("P", (2, 1))
    palette.putpalette([*BLACK, *RED])
    palette.putpixel((1, 0), 1)
    content = encode(palette, file_format, transparency=0)
    assert decode_image(content).tolist() == [[list(WHITE), list(RED)]]


def test_palette_with_an_alpha_for_each_entry_is_composited_on_white() -> None:
    palette = Image.new("P", (2, 1))
    palette.putpalette([*BLACK, *RED])
    palette.putpixel((1, 0), 1)
    decoded = decode_image(encode(palette, transparency=bytes([0, 51])))
    assert decoded.tolist() == [[list(WHITE), [255, 204, 204]]]


@pytest.mark.parametrize(("mode", "colour", "expected"), [
    ("RGBA", (255, 0, 0, 0), WHITE),
    ("RGBA", (255, 0, 0, 51), (255, 204, 204)),
    ("RGBA", (255, 0, 0, 255), RED),
    ("LA", (0, 0), WHITE),
    ("LA", (0, 51), (204, 204, 204)),
])  # fmt: skip
@pytest.mark.parametrize("file_format", ["PNG", "TIFF"])
def test_alpha_is_composited_on_white(
    file_format: str, mode: str, colour: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert decode_image(encode(Image.new(mode, (1, 1), colour), file_format)).tolist() == [[list(expected)]]


def test_colour_key_of_a_true_colour_png_becomes_white() -> None:
    image = Image.new("RGB", (2, 1), RED)
    image.putpixel((0, 0), (1, 2, 3))
    assert decode_image(encode(image, transparency=(1, 2, 3))).tolist() == [[list(WHITE), list(RED)]]


@pytest.mark.parametrize("file_format", ["JPEG", "TIFF"])
@pytest.mark.parametrize(
    ("inks", "expected"), [((0, 255, 255, 0), RED), ((0, 0, 0, 255), BLACK), ((0, 0, 0, 0), WHITE)]
)
def test_cmyk_becomes_the_colour_on_paper(file_format: str, inks: tuple[int, ...], expected: tuple[int, ...]) -> None:
    decoded = decode_image(encode(Image.new("CMYK", (8, 8), inks), file_format))
    assert np.abs(decoded.astype(int) - expected).max() <= 4


def test_16_bit_values_are_divided_by_257() -> None:
    values = np.array([[0, 257, 32896, 65535, 300]], dtype=np.uint16)
    expected = [0, 1, 128, 255, 1]
    assert decode_image(encode(values))[0, :, 1].tolist() == expected
    assert decode_image(encode(values, "TIFF"))[0, :, 1].tolist() == expected


def test_16_bit_big_endian_tiff() -> None:
    big_endian = Image.frombytes("I;16B", (2, 1), struct.pack(">HH", 257 * 3, 257 * 200))
    assert decode_image(encode(big_endian, "TIFF"))[0, :, 0].tolist() == [3, 200]


def test_16_bit_colour_keeps_its_high_bytes() -> None:
    content = png(1, 1, 16, 2, b"\0" + struct.pack(">HHH", 257 * 10, 257 * 20, 257 * 30))
    assert decode_image(content).tolist() == [[[10, 20, 30]]]


def test_16_bit_grayscale_with_a_transparent_value() -> None:
    content = png(2, 1, 16, 0, b"\0" + struct.pack(">HH", 1000, 2570), (b"tRNS", struct.pack(">H", 1000)))
    assert decode_image(content)[0, :, 0].tolist() == [255, 10]


def test_32_bit_integers_are_stretched_from_minimum_to_maximum() -> None:
    values = np.array([[-1_000_000, 0, 1_000_000]], dtype=np.int32)
    assert decode_image(encode(values, "TIFF"))[0, :, 0].tolist() == [0, 128, 255]


def test_floats_are_stretched_and_what_is_not_finite_goes_to_an_end() -> None:
    values = np.array([[-1.0, 0.0, 1.0, np.nan, np.inf, -np.inf]], dtype=np.float32)
    assert decode_image(encode(values, "TIFF"))[0, :, 2].tolist() == [0, 128, 255, 0, 255, 0]


@pytest.mark.parametrize("value", [0.25, np.nan, np.float32(3.4e38)])
def test_floats_of_one_value_become_black(value: float) -> None:
    assert not decode_image(encode(np.full((2, 3), value, dtype=np.float32), "TIFF")).any()


def test_a_pgm_of_16_bits_is_divided_by_257() -> None:
    content = b"P5 3 1 65535\n" + struct.pack(">HHH", 0, 257 * 7, 65535)
    assert decode_image(content)[0, :, 0].tolist() == [0, 7, 255]


def whole_image_formula(image: Image.Image) -> NDArray[np.uint8]:
    """What decoding did with one deep channel when it took the whole image as float64."""
    values = np.asarray(image, dtype=np.float64)
    if image.mode.startswith("I;16"):
        gray = values / 257
    else:
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        stretch = 255 / (high - low) if high > low else 0.0
        gray = (np.nan_to_num(values, nan=low, posinf=high, neginf=low) - low) * stretch
    return np.rint(gray).astype(np.uint8)


def deep_samples() -> list[NDArray[Any]]:
    random = np.random.default_rng(3)
    floats = random.normal(size=(37, 23)).astype(np.float32)
    odd = floats.copy()
    odd[random.random(odd.shape) < 0.2] = np.nan
    odd[5, 5], odd[6, 6] = np.inf, -np.inf
    return [
        random.integers(0, 65536, (37, 23), dtype=np.uint16),
        floats,
        odd,
        floats * np.float32(1e37),
        np.full((37, 23), np.nan, dtype=np.float32),
        random.integers(-(2**31), 2**31 - 1, (37, 23), dtype=np.int32),
    ]


@pytest.mark.parametrize("sample", range(6))
@pytest.mark.parametrize("strip_pixels", [1, 50, 10**6])
def test_deep_values_are_those_of_the_whole_image_formula(
    sample: int, strip_pixels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_files, "_STRIP_PIXELS", strip_pixels)
    image = Image.fromarray(deep_samples()[sample])
    expected = whole_image_formula(image)
    assert np.array_equal(decode_image(encode(image, "TIFF")), np.stack([expected] * 3, axis=2))


def test_strips_give_the_pixels_of_the_whole_image(monkeypatch: pytest.MonkeyPatch) -> None:
    rgb = Image.fromarray(noise())
    clear = rgb.convert("RGBA")
    clear.putalpha(Image.fromarray(noise()[:, :, 0]))
    exif = Image.Exif()
    exif[0x0112] = 6
    contents = [
        *(encode(rgb.convert(mode), "TIFF") for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")),
        *(encode(clear.quantize(), "PNG", transparency=bytes(range(200))), encode(clear, "PNG")),
        *(encode(rgb, "PNG", exif=exif), encode(rgb, "PNG", transparency=tuple(noise()[0, 0].tolist()))),
    ]
    whole = [decode_image(content) for content in contents]
    monkeypatch.setattr(image_files, "_STRIP_PIXELS", 100)
    for content, expected in zip(contents, whole, strict=True):
        assert np.array_equal(decode_image(content), expected)


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_first_frame_stands_for_an_animation(file_format: str) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, BLACK)]
    options: dict[str, Any] = {"lossless": True} if file_format == "WEBP" else {}
    decoded = decode_image(encode(frames[0], file_format, save_all=True, append_images=frames[1:], **options))
    assert (decoded == RED).all()


def test_one_pixel() -> None:
    assert decode_image(encode(Image.new("RGB", (1, 1), RED))).tolist() == [[list(RED)]]


@pytest.mark.parametrize(("file_format", "options"), FORMATS)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.95])
def test_truncated_file_is_unreadable(file_format: str, options: dict[str, Any], share: float) -> None:
    content = encode(noise(), file_format, **options)
    with pytest.raises(UnreadableImage) as error:
        decode_image(content[: int(len(content) * share)])
    assert error.value.reason
    assert "\n" not in error.value.reason


def test_corrupt_middle_of_a_png_is_unreadable() -> None:
    content = bytearray(encode(noise()))
    content[len(content) // 2] ^= 0xFF
    with pytest.raises(UnreadableImage, match="truncated or corrupt"):
        decode_image(bytes(content))


@pytest.mark.parametrize(("content", "reason"), [
    (b"", "empty"),
    (b"Dear diary,\n", "not an image"),
    (b"\0" * 1000, "not an image"),
    (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
    (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image"),
])  # fmt: skip
def test_what_is_no_image_is_unreadable(content: bytes, reason: str) -> None:
    with pytest.raises(UnreadableImage, match=reason):
        decode_image(content)


def test_size_is_judged_from_the_header_alone() -> None:
    without_pixels = png(60, 40, 8, 2, b"not enough pixels")
    with pytest.raises(UnreadableImage, match="too large: 60 x 40 pixels, the limit is 2399"):
        decode_image(without_pixels, max_pixels=2399)
    with pytest.raises(UnreadableImage, match="truncated"):
        decode_image(without_pixels, max_pixels=2400)
    assert decode_image(encode(noise(40, 60)), max_pixels=2400).shape == (40, 60, 3)


@pytest.mark.parametrize("size", [(100_000, 100_000), (2**31 - 1, 2**31 - 1), (13_378, 13_378)])
def test_absurdly_large_header_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(UnreadableImage, match="too large"):
        decode_image(png(*size, 8, 2, b""))


@pytest.mark.chaos(fault="a JPEG whose scans do not end", holds="a reason, after a minute of computing")
def test_a_jpeg_that_repeats_its_scans_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = encode(np.full((64, 64, 3), 128, np.uint8), "JPEG", progressive=True)
    last_scan = whole[whole.rindex(b"\xff\xda") : -2]
    endless = whole[:-2] + last_scan * (300_000 // len(last_scan)) + whole[-2:]
    assert decode_image(endless).shape == (64, 64, 3)
    monkeypatch.setattr(image_files, "_MAX_SECONDS", 0.01)
    with pytest.raises(UnreadableImage, match=r"too slow: it takes more than 0\.01 s"):
        decode_image(endless)
    assert decode_image(whole).shape == (64, 64, 3)


def test_a_header_that_takes_too_long_is_given_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "_MAX_SECONDS", -1)
    monkeypatch.setattr(image_files._Room, "take_all", mock.Mock(side_effect=AssertionError("a second time")))
    with pytest.raises(UnreadableImage, match="too slow"):
        decode_image(encode(noise()))


def test_pillow_does_not_report_a_file_without_its_name(caplog: pytest.LogCaptureFixture) -> None:
    content = encode(noise(), "TIFF")
    samples_per_pixel = content.index(struct.pack("<HHI", 277, 3, 1)) + 8
    malformed = content[:samples_per_pixel] + struct.pack("<H", 2048) + content[samples_per_pixel + 2 :]
    with pytest.raises(UnreadableImage):
        decode_image(malformed)
    assert not caplog.records


def test_nothing_leaks_with_warnings_as_errors() -> None:
    """A broken EXIF block, and a size above Pillow's warning level but below the limit."""
    program = f"""
import sys
from objectaware.data.images import UnreadableImage, decode_image
assert decode_image({encode(noise(), "JPEG", exif=b"Exif" + bytes(2) + b"MM*garbage")!r}).shape == (24, 36, 3)
try:
    decode_image({png(10_000, 9_000, 1, 0, b"")!r})
except UnreadableImage as error:
    assert error.reason.startswith("truncated or corrupt"), error.reason
heavy = sorted({{"torch", "ray", "mlflow", "pyarrow", "cv2"}} & set(sys.modules))
assert not heavy, heavy
"""
    result = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_state_of_pillow_is_left_alone() -> None:
    before = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
    decode_image(encode(noise()))
    after = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
    assert after == before
    assert after[1] is False


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing_but_unreadable_image(content: bytes) -> None:
    with pytest.raises(UnreadableImage):
        decode_image(content)


VALID = [encode(noise(12, 12), file_format, **options) for file_format, options in FORMATS]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(VALID), st.data())
def test_damaged_files_raise_nothing_but_unreadable_image(content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(content)
    positions = st.one_of(st.integers(0, min(len(content), 64) - 1), st.integers(0, len(content) - 1))
    for position in data.draw(st.lists(positions, min_size=1, max_size=6)):
        damaged[position] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(1, len(content)))
    try:
        decoded = decode_image(bytes(damaged[:end]), max_pixels=100_000)
    except UnreadableImage:
        return
    assert decoded.ndim == 3
    assert decoded.shape[2] == 3
    assert decoded.dtype == np.uint8


def test_libtiffs_errors_are_in_the_reason_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    damaged = bytearray(encode(noise(), "TIFF", compression="tiff_lzw"))
    damaged[200:800] = b"\xff" * 600
    with pytest.raises(UnreadableImage, match="Using code not yet in table"):
        decode_image(bytes(damaged))
    with pytest.raises(UnreadableImage) as error:
        decode_image(encode(noise(), "PNG")[:300])
    assert "table" not in error.value.reason
    assert capfd.readouterr() == ("", "")


class Crowd:
    """Stands in for what decodes: the first two threads meet in it and fail for want of memory."""

    def __init__(self) -> None:
        self.num_failures = 0
        self._lock = threading.Lock()
        self._meeting = threading.Barrier(2, timeout=30)
        self._pixels = image_files._pixels

    def __call__(self, image: Image.Image) -> NDArray[np.uint8]:
        if self._meeting.broken or self.num_failures == 2:
            return self._pixels(image)
        self._meeting.wait()
        with self._lock:
            self.num_failures += 1
        self._meeting.wait()
        raise MemoryError


def test_want_of_memory_among_others_is_tried_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd()
    monkeypatch.setattr(image_files, "_pixels", crowd)
    with ThreadPoolExecutor(2) as pool:
        decoded = list(pool.map(decode_image, [encode(noise())] * 2))
    assert crowd.num_failures == 2
    assert all(np.array_equal(one, noise()) for one in decoded)


def test_want_of_memory_alone_is_an_error_and_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good.png").write_bytes(encode(noise()))
    images = TrainingImages(ImageFolder.scan(tmp_path), max_bytes=0)
    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "load", mock.Mock(side_effect=MemoryError))
        patch.setattr(ImageFile.ImageFile, "load", mock.Mock(side_effect=MemoryError))
        with pytest.raises(ExplainedError, match=r"good\.png .* \(36 x 24 pixels\), even while no other image is"):
            images.read(0)
    assert images.unreadable == {}
    assert np.array_equal(images.read(0), noise())


@pytest.mark.parametrize(("file_format", "length"), [("JPEG", 6), ("PNG", 16), ("BMP", 18), ("PPM", 2), ("WEBP", 200)])
def test_a_damaged_header_is_no_matter_of_memory(
    file_format: str, length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that cannot get a gigabyte knows it, too, and no other thread waits for the damaged file."""
    damaged = encode(noise(), file_format)[:length]
    (tmp_path / "damaged").write_bytes(damaged)
    monkeypatch.setattr(image_files, "_is_free", lambda num_bytes: False)
    monkeypatch.setattr(image_files._Room, "take_all", mock.Mock(side_effect=AssertionError("all wait")))
    for read in (lambda: decode_image(damaged), lambda: read_header(tmp_path / "damaged")):
        with pytest.raises(UnreadableImage, match="the header cannot be read"):
            read()


@pytest.mark.parametrize("options", [{}, {"lossless": True, "method": 0}, {"exif": b"Exif\0\0II*\0"}])
def test_a_large_webp_may_lack_memory_to_be_opened(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its decoder gives the same message for a broken file: which one it is, the memory that is free tells."""
    damaged = encode(np.zeros((2100, 2100, 3), np.uint8), "WEBP", **options)[:-2]
    with pytest.raises(UnreadableImage, match="could not create decoder object"):
        decode_image(damaged)
    monkeypatch.setattr(image_files, "_is_free", lambda num_bytes: num_bytes < 2100 * 2100 * 8)
    with pytest.raises(ImageMemoryError):
        decode_image(damaged)


def test_a_header_that_needs_memory_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good.png").write_bytes(encode(noise()))
    free_bytes: list[int] = []
    opened = Image.open

    def open_alone(*arguments: Any, **options: Any) -> Image.Image:
        free_bytes.append(image_files._ROOM._free)
        if len(free_bytes) == 1:
            raise MemoryError
        return opened(*arguments, **options)

    monkeypatch.setattr(Image, "open", open_alone)
    assert read_header(tmp_path / "good.png") == (24, 36, 1)
    assert free_bytes == [image_files._ROOM_BYTES, 0]


def test_large_images_are_decoded_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asks for more than half of the room."""
    inside, most, lock = 0, 0, threading.Lock()

    def look(image: Image.Image) -> NDArray[np.uint8]:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        image.load()
        with lock:
            inside -= 1
        return noise()

    monkeypatch.setattr(image_files, "_pixels", look)
    monkeypatch.setattr(image_files, "_ROOM", image_files._Room(int(1.9 * 24 * 36 * image_files._BYTES_PER_PIXEL)))
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(decode_image, [encode(noise())] * 40))) == 40
    assert most == 1


@pytest.mark.chaos(fault="large good images in too little memory", holds="an error that is no verdict on the image")
def test_a_limit_of_memory_is_told_from_a_broken_file(tmp_path: Path) -> None:
    """Decoders call the same files broken that they read when they may take more."""
    stripes = np.zeros((2100, 2100, 3), dtype=np.uint8)
    stripes[::7] = 255
    formats: list[tuple[str, dict[str, Any]]] = [
        ("JPEG", {"progressive": True}),
        ("WEBP", {"lossless": True, "method": 0}),
        ("TIFF", {}),
        ("AVIF", {"speed": 10}),
    ]
    for file_format, options in formats:
        (tmp_path / file_format).write_bytes(encode(stripes, file_format, **options))
    program = f"""
import resource
from pathlib import Path
from objectaware.data.images import UnreadableImage, decode_image
from objectaware.errors import ExplainedError
contents = {{path.name: path.read_bytes() for path in sorted(Path({str(tmp_path)!r}).iterdir())}}
for content in contents.values():
    assert decode_image(content).shape == (2100, 2100, 3)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
for extra in (10, 30, 50):
    resource.setrlimit(resource.RLIMIT_AS, (used + extra * 2**20, resource.RLIM_INFINITY))
    for name, content in contents.items():
        try:
            decode_image(content)
        except ExplainedError:
            print(name)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for content in contents.values():
    try:
        decode_image(content[:-200])
    except UnreadableImage:
        print("broken")
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr  # never UnreadableImage for a good file
    words = result.stdout.split()
    assert words.count("broken") == len(formats)
    assert set(words) == {"broken", *(file_format for file_format, _ in formats)}


@pytest.mark.parametrize("kind", ["palette", "16 bits", "float"])
def test_decoding_takes_a_few_bytes_per_pixel(kind: str, tmp_path: Path) -> None:
    """The whole image as float64 took 27 and 37 bytes per pixel, a palette's 11."""
    side = 2400
    row = np.arange(side, dtype=np.float32)
    image = Image.new("P", (side, side))
    if kind != "palette":
        image = Image.fromarray(np.tile(row if kind == "float" else row.astype(np.uint16), (side, 1)))
    image.save(tmp_path / "image", "TIFF" if kind == "float" else "PNG")
    program = f"""
import resource
from objectaware.data.images import read_image
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
read_image({str(tmp_path / "image")!r})
print((peak() - before) / {side**2})
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(result.stdout) < 10


def test_read_image_equals_decoding_the_content(tmp_path: Path) -> None:
    for number, content in enumerate(VALID):
        path = tmp_path / f"{number}.image"
        path.write_bytes(content)
        assert np.array_equal(read_image(path), decode_image(content))
        assert np.array_equal(read_image(str(path)), decode_image(content))


def test_missing_files_and_folders_are_unreadable(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.jpg", tmp_path, tmp_path / "nul\0.jpg"):
        with pytest.raises(UnreadableImage, match="cannot be"):
            read_image(path)


def test_decoding_in_threads_gives_what_it_gives_alone() -> None:
    alone = [decode_image(content) for content in VALID]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(decode_image, VALID * 8))
    assert all(np.array_equal(one, alone[index % len(VALID)]) for index, one in enumerate(together))


def test_unreadable_image_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(UnreadableImage("the file is empty")))
    assert isinstance(error, UnreadableImage)
    assert error.reason == str(error) == "the file is empty"


def test_resize_takes_height_before_width_and_keeps_a_constant() -> None:
    resized = resize_image(np.full((10, 20, 3), 77, dtype=np.uint8), (7, 33))
    assert resized.shape == (7, 33, 3)
    assert (resized == 77).all()


def test_resize_is_antialiased() -> None:
    stripes = np.zeros((64, 64, 3), dtype=np.uint8)
    stripes[:, ::2] = 255
    inner = resize_image(stripes, (16, 16))[:, 1:-1]
    assert np.abs(inner.astype(int) - 127).max() <= 2  # without antialiasing it would be 0 or 255


def test_resize_by_two_averages_a_bilinear_tent() -> None:
    row = np.repeat(np.array([[0, 0, 80, 80, 0, 0, 0, 0]], dtype=np.uint8)[..., None], 3, axis=2)
    # Tent of width 4 around the centre of each pair: weights 1, 3, 3, 1 over 8.
    assert resize_image(row, (1, 4))[0, :, 0].tolist() == [11, 60, 10, 0]


def test_golden_values() -> None:
    image = np.array([[[[255, 255, 255], [0, 128, 51]]]], dtype=np.uint8)
    tensor = normalise(image)
    assert tensor.dtype == torch.float32
    assert tensor.shape == (1, 3, 1, 2)
    # (1 - .485) / .229 and so on; (0 - .485) / .229, (128/255 - .456) / .224, (.2 - .406) / .225
    white, other = tensor[0, :, 0, 0].tolist(), tensor[0, :, 0, 1].tolist()
    assert white == pytest.approx([2.248908, 2.428571, 2.640000], abs=1e-6)
    assert other == pytest.approx([-2.117904, 0.205182, -0.915556], abs=1e-6)


def test_batch_is_contiguous_and_rows_stay_rows() -> None:
    images = np.zeros((2, 3, 4, 3), dtype=np.uint8)
    images[1, 2, 0, 1] = 255
    tensor = normalise(images)
    assert tensor.shape == (2, 3, 3, 4)
    assert tensor.is_contiguous()
    assert torch.nonzero(tensor > 2).tolist() == [[1, 1, 2, 0]]


def test_read_only_arrays_are_taken_without_a_warning_and_left_as_they_are() -> None:
    images = np.full((1, 2, 2, 3), 9, dtype=np.uint8)
    images.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        normalise(images)
    assert (images == 9).all()
