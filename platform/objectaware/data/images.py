"""Decode any photo to 8-bit RGB, or say in plain words why it cannot be done.

Importing this module registers one warnings filter for the whole process: warnings raised inside Pillow (a
large image, a broken EXIF block) are ignored. What matters of them comes back as the reason of
`UnreadableImage`. `warnings.catch_warnings` around each call would be narrower, but it is not safe in
threads, and images are decoded in threads. No other state of Pillow is changed; `PIL.Image.MAX_IMAGE_PIXELS`
and `PIL.ImageFile.LOAD_TRUNCATED_IMAGES` are left as they are.
"""

from __future__ import annotations

import io
import time
import warnings
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
"""Suffixes of image files, in lower case."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean of ImageNet's red, green and blue, for values between 0 and 1."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of ImageNet's red, green and blue, for values between 0 and 1."""

DEFAULT_MAX_PIXELS = 178_956_970
"""Twice Pillow's warning level: the number of pixels above which Pillow itself refuses an image."""

# A picture of the most pixels takes seconds. A progressive JPEG of some megabytes may repeat its scans for hours.
_MAX_SECONDS = 60.0

# An open list would let Pillow start Ghostscript for an EPS file that is named .jpg.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")

# Value of the EXIF orientation tag -> what brings the picture upright.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

warnings.filterwarnings("ignore", module=r"PIL\.")


class Images(Protocol):
    """A data set of images, read by index."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> NDArray[np.uint8]:
        """Pixels (H, W, 3) of one image."""
        ...


class UnreadableImage(ValueError):  # noqa: N818 - a state of the user's file, and the name that the mask store uses
    """A file that gives no picture.

    Args:
        reason: Why, as one short line, such as "the file is empty".
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def decode_image(content: bytes, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode the content of an image file (JPEG, PNG, WebP, BMP, TIFF, GIF) to 8-bit RGB.

    The EXIF orientation is applied; one that cannot be parsed counts as upright. Grayscale, palette and CMYK
    become RGB, transparency is laid over white, the first frame stands for an animation. 16-bit grayscale is
    divided by 257; 32-bit integers and floats, which have no fixed range, are stretched from their own
    minimum and maximum to 0 and 255 (NaN counts as the minimum, an infinity as the end it is nearest to, and
    an image of one value becomes black). Colour profiles are not applied, as torchvision's loaders do not
    apply them.

    Args:
        content: The bytes of the file.
        max_pixels: Images whose header announces more pixels are refused before a pixel is decoded. Pillow's
            own limit (twice `PIL.Image.MAX_IMAGE_PIXELS`) holds besides.

    Returns:
        A writable array of shape (H, W, 3), red, green, blue, 0 to 255.

    Raises:
        UnreadableImage: The content is empty, truncated, corrupt, not an image, or too large. Nothing else is
            raised, whatever the content.
    """
    return _decode(io.BytesIO(content), max_pixels)


def read_image(path: str | Path, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> NDArray[np.uint8]:
    """Read an image file; see `decode_image`. No more of the file is read than its decoder asks for.

    Raises:
        UnreadableImage: As `decode_image`, and where the file is missing or cannot be opened.
    """
    try:
        stream = Path(path).open("rb")  # noqa: SIM115 - closed below; decoding has errors of its own
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        reason = getattr(error, "strerror", None) or _one_line(error)
        raise UnreadableImage(f"the file cannot be opened: {reason}") from error
    with stream:
        return _decode(stream, max_pixels)


def resize_image(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Resize by antialiased bilinear interpolation.

    This is the one resize that training, localization and evaluation share: where the official code resizes
    masked runs without antialiasing and others with it, their robustness is not comparable
    (reference/official-implementation.md §3, last row).

    Args:
        image: Shape (H, W, 3).
        size: Height and width wanted, both at least 1.

    Returns:
        A writable array of shape (height, width, 3).
    """
    height, width = size
    return np.array(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))


class _TooSlowError(Exception):
    """A decoder asks for more of a file after it has computed for too long."""


class _TimedStream:
    """A file whose reader may compute for so long: what a decoder asks for piece by piece, 64 KiB each.

    Counted is what the thread computes, so that a busy machine and a slow disk are not held against the file.

    Args:
        stream: The file.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._end = time.thread_time() + _MAX_SECONDS

    def read(self, size: int = -1) -> bytes:
        """Reads as the file does.

        Raises:
            _TooSlowError: The time is over.
        """
        if time.thread_time() > self._end:
            raise _TooSlowError(f"it takes more than {_MAX_SECONDS:g} s to decode")
        return self._stream.read(size)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else of the file Pillow takes
        return getattr(self._stream, name)


def _decode(stream: BinaryIO, max_pixels: int) -> NDArray[np.uint8]:
    image = _open(cast(BinaryIO, _TimedStream(stream)), max_pixels)
    try:
        image.load()
        return np.array(_to_rgb(_upright(image)))
    except _TooSlowError as error:
        raise UnreadableImage(f"too slow: {error}") from error
    except Exception as error:  # Pillow's decoders raise whatever a malformed file provokes in them
        raise UnreadableImage(f"truncated or corrupt: {_one_line(error)}") from error
    finally:
        image.close()


def _open(stream: BinaryIO, max_pixels: int) -> Image.Image:
    """Parse the header alone."""
    try:
        is_empty = not stream.read(1)
        image = None if is_empty else Image.open(stream, formats=_FORMATS)
    except UnidentifiedImageError as error:
        formats = ", ".join(_FORMATS)
        raise UnreadableImage(f"not an image of a supported format ({formats})") from error
    except Image.DecompressionBombError as error:
        raise UnreadableImage(f"too large: {_one_line(error)}") from error
    except Exception as error:  # as in _decode, and for a path that is a folder
        raise UnreadableImage(f"the header cannot be read: {_one_line(error)}") from error
    if image is None:
        raise UnreadableImage("the file is empty")
    if image.width * image.height > max_pixels:
        image.close()
        raise UnreadableImage(f"too large: {image.width} x {image.height} pixels, the limit is {max_pixels}")
    return image


def _upright(image: Image.Image) -> Image.Image:
    # PIL.ImageOps.exif_transpose would also rewrite the EXIF block, which fails on broken ones, and copy.
    try:
        method = _UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # a broken EXIF block says nothing about the picture
        return image
    return image if method is None else image.transpose(method)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode == "F" or image.mode.startswith("I"):
        return _deep_to_gray(image).convert("RGB")
    if image.has_transparency_data:
        # Pillow converts premultiplied grayscale to straight grayscale only.
        layer = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def _deep_to_gray(image: Image.Image) -> Image.Image:
    """Bring one channel of 16-bit integers, 32-bit integers or floats to 8 bits."""
    values = np.asarray(image, dtype=np.float64)
    if image.mode.startswith("I;16"):
        gray = values / 257
    else:
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        stretch = 255 / (high - low) if high > low else 0.0
        gray = (np.nan_to_num(values, nan=low, posinf=high, neginf=low) - low) * stretch
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):  # the one value that a PNG declares to be see-through
        gray = np.where(values == transparent, 255, gray)
    return Image.fromarray(np.rint(gray).astype(np.uint8))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
