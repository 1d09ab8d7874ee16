"""Decode any photo to 8-bit RGB, or say in plain words why it cannot be decoded.

Importing this module changes three things for the whole process. Warnings raised inside Pillow (a large image, a
broken EXIF block) are ignored. Pillow's logger reports nothing below `CRITICAL`. libtiff's errors are kept for the
reason of `UnreadableImage` instead of being printed without the file's name.
`warnings.catch_warnings` around each call would be narrower, but it is not safe in threads, and images are decoded in
threads. No other state of Pillow is changed: `PIL.Image.MAX_IMAGE_PIXELS` and `PIL.ImageFile.LOAD_TRUNCATED_IMAGES`
stay as they are.

An image for which memory runs out is not called unreadable. All threads of a process share one `_Room`, which limits
how many large images are decoded at the same time. An image that still fails is decoded again while no other image is,
and then raises `ImageMemoryError`.
"""

from __future__ import annotations

import ctypes
import io
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError, _imaging

from objectaware.errors import ExplainedError, InputError, one_line, system_reason

if TYPE_CHECKING:
    import torch

Read = TypeVar("Read")

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".avif"),
)
"""Suffixes of image files, in lower case.

JPEG 2000 is not among them: its decoder takes more than twice the memory of any other. Pillow does not read HEIC.
"""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean of ImageNet's red, green and blue, for values between 0 and 1."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of ImageNet's red, green and blue, for values between 0 and 1."""

DEFAULT_MAX_PIXELS = 178_956_970
"""Twice Pillow's warning level: the number of pixels above which Pillow itself refuses an image."""

# A picture of the maximum size takes seconds. A progressive JPEG of some megabytes may repeat its scans for hours.
_MAX_SECONDS = 60.0

# Bytes that a pixel takes at most while it is decoded: in libwebp and libavif, which take more than the other decoders,
# and as Pillow stores it, turned upright, and returned.
_BYTES_PER_PIXEL = 16

# Bytes that libavif takes at most to parse a file before the size of the picture is known.
_BYTES_TO_PARSE = 2**30

# Photos of 12 megapixels in 20 threads do not wait for each other; of the largest images there is one at a time.
_ROOM_BYTES = 4 * 2**30

# Below this, decoding is not tried again for a failure that does not mention memory.
_LARGE_BYTES = 64 * 2**20

# Pixels that are converted at a time: no copy of the whole image is needed in another type.
_STRIP_PIXELS = 2**20

# An open list would let Pillow start Ghostscript for an EPS file that is named .jpg.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "AVIF")

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
# It logs why a file is malformed, without the file's name; `UnreadableImage` names both.
logging.getLogger("PIL").setLevel(logging.CRITICAL)


class Images(Protocol):
    """A data set of images, read by index."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> NDArray[np.uint8]:
        """Return the pixels (H, W, 3) of one image."""


class UnreadableImage(ValueError):  # noqa: N818 - a state of the user's file, and the name that the mask store uses
    """A file that gives no picture.

    Args:
        reason: Why, as one short line, such as "the file is empty".
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ImageMemoryError(ExplainedError):
    """An image cannot be decoded in the memory that this process may take; it may be good."""


def none_readable(num_images: int, reasons: Iterable[tuple[str, str]]) -> InputError:
    """Make the refusal of a data set of which no image can be read.

    Args:
        num_images: Its images.
        reasons: Names of some of them, and why each cannot be read.
    """
    example = next((f", such as {name} ({reason})" for name, reason in reasons), "")
    return InputError("data", f"{num_images} images", f"hold none that can be read{example}", "Check the files.")


def decode_image(content: bytes, *, name: str = "an image", max_pixels: int = DEFAULT_MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode the content of an image file (JPEG, PNG, WebP, BMP, TIFF, GIF, PPM, AVIF) to 8-bit RGB.

    The EXIF orientation is applied; one that cannot be parsed counts as upright. Grayscale, palette and CMYK
    become RGB, transparency is laid over white, the first frame stands for an animation. 16-bit grayscale is
    divided by 257; 32-bit integers and floats, which have no fixed range, are stretched from their own
    minimum and maximum to 0 and 255 (NaN counts as the minimum, an infinity as the end it is nearest to, and
    an image of one value becomes black). Colour profiles are not applied, as torchvision's loaders do not
    apply them.

    Args:
        content: The bytes of the file.
        name: Its name in `ImageMemoryError`.
        max_pixels: Images whose header announces more pixels are refused before a pixel is decoded. Pillow's
            own limit (twice `PIL.Image.MAX_IMAGE_PIXELS`) holds besides.

    Returns:
        A writable array of shape (H, W, 3), red, green, blue, 0 to 255.

    Raises:
        UnreadableImage: The content is empty, truncated, corrupt, not an image, or too large.
        ImageMemoryError: There is not enough memory even while no other image is decoded. Nothing else is raised,
            whatever the content.
    """
    return _alone_if_needed(lambda: io.BytesIO(content), name, partial(_decode, max_pixels=max_pixels))


def read_image(path: str | Path, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> NDArray[np.uint8]:
    """Read an image file; see `decode_image`. No more of the file is read than its decoder asks for.

    Raises:
        UnreadableImage: As `decode_image`, and where the file is missing or cannot be opened.
    """
    return _alone_if_needed(lambda: open_image_file(path), str(path), partial(_decode, max_pixels=max_pixels))


def open_image_file(path: str | Path) -> BinaryIO:
    """Open a file to read.

    Raises:
        UnreadableImage: It is missing or cannot be opened.
    """
    try:
        return Path(path).open("rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        raise UnreadableImage(f"the file cannot be opened: {system_reason(error)}") from error


def read_header(path: str | Path) -> tuple[int, int, int]:
    """Read a picture's height and width as they are stored, and its EXIF orientation from 1 (upright) to 8.

    Raises:
        UnreadableImage: As `read_image`, as far as the header says.
        ImageMemoryError: As `read_image`.
    """
    return _alone_if_needed(lambda: open_image_file(path), str(path), _header_of)


def _header_of(stream: BinaryIO, is_alone: bool) -> tuple[int, int, int]:
    with _open(stream, DEFAULT_MAX_PIXELS, is_alone=is_alone) as image:
        tag = orientation_tag(image)
        height, width = image.height, image.width
        # Pillow gives a TIFF's size as it will be once turned.
        return (width, height, tag) if image.format == "TIFF" and tag >= 5 else (height, width, tag)


def orientation_tag(image: Image.Image) -> int:
    """Return the EXIF orientation of a picture, 1 (upright) where it has none that can be read."""
    try:
        tag = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # a broken EXIF block says nothing about the picture
        return 1
    return int(tag) if tag in _UPRIGHT else 1


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


class _TooSlowError(BaseException):
    """A decoder asks for more of a file after it has computed for too long.

    Not an `Exception`, so that neither the decoder nor this module takes it for a malformed file.
    """


class _TimedStream:
    """A file that limits the time its reader may compute; decoders ask for pieces of 64 KiB.

    Only the computing time of the thread counts, so that a busy machine or a slow disk does not make a file too slow.

    Args:
        stream: The file.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._end = time.thread_time() + _MAX_SECONDS

    def read(self, size: int = -1) -> bytes:
        """Read as the file does.

        Raises:
            _TooSlowError: The time is over.
        """
        if time.thread_time() > self._end:
            raise _TooSlowError(f"it takes more than {_MAX_SECONDS:g} s to decode")
        return self._stream.read(size)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any other method of the file that Pillow calls
        return getattr(self._stream, name)


class _Room:
    """Memory that the threads of this process share for decoding.

    Args:
        num_bytes: How much there is.
    """

    def __init__(self, num_bytes: int) -> None:
        self._all = self._free = num_bytes
        self._door = threading.Lock()
        self._changed = threading.Condition()

    @contextmanager
    def take(self, num_bytes: int) -> Iterator[None]:
        """Wait until there is room for this many bytes and hold it; a request for more than all gets all."""
        num_bytes = min(num_bytes, self._all)
        # Requests behind a waiting one wait too: otherwise small images could hold up a large one forever.
        with self._door, self._changed:
            self._changed.wait_for(lambda: self._free >= num_bytes)
            self._free -= num_bytes
        try:
            yield
        finally:
            with self._changed:
                self._free += num_bytes
                self._changed.notify()

    def take_all(self) -> AbstractContextManager[None]:
        """Wait until no thread holds any room, and hold all of it."""
        return self.take(self._all)


_ROOM = _Room(_ROOM_BYTES)


class _ShortOfMemoryError(Exception):
    """There was not enough memory, or it is not known whether there was."""


def _alone_if_needed(open_file: Callable[[], BinaryIO], name: str, read: Callable[[BinaryIO, bool], Read]) -> Read:
    """Read a file among others and, where there may not have been enough memory, again while no other is read.

    Args:
        open_file: Opens the file.
        name: Its name in `ImageMemoryError`.
        read: Takes the open file and whether this thread holds all of the room; raises `_ShortOfMemoryError`.

    Raises:
        UnreadableImage: The file gives no picture.
        ImageMemoryError: There is not enough memory even while no other image is read.
    """
    try:
        with open_file() as stream, suppress(_ShortOfMemoryError):
            return read(stream, False)
        with _ROOM.take_all(), open_file() as stream:
            return read(stream, True)
    except _TooSlowError as error:
        raise UnreadableImage(f"too slow: {error}") from error
    except _ShortOfMemoryError as error:
        raise ImageMemoryError(
            f"{name} cannot be decoded for want of memory{error}, even while no other image is. It may be good: "
            "give the process more memory and run the same command again, which resumes."
        ) from error


def _decode(stream: BinaryIO, is_alone: bool, *, max_pixels: int) -> NDArray[np.uint8]:
    """Decode a file.

    Args:
        stream: The file.
        is_alone: Whether this thread holds all of the room.
        max_pixels: As `decode_image`.

    Raises:
        UnreadableImage: The file gives no picture.
        _ShortOfMemoryError: There was not enough memory, or, while others take some, there may not have been.
    """
    image = _open(stream, max_pixels, is_alone=is_alone)
    size = f" ({image.width} x {image.height} pixels)"
    num_bytes = image.width * image.height * _BYTES_PER_PIXEL
    try:
        with nullcontext() if is_alone else _ROOM.take(num_bytes):
            return _pixels(image)
    except MemoryError as error:
        raise _ShortOfMemoryError(size) from error
    except Exception as error:  # Pillow's decoders raise whatever a malformed file provokes in them
        # Many call a file broken when they get no memory: progressive JPEG, AVIF and others.
        if _may_lack(num_bytes, is_alone=is_alone):
            raise _ShortOfMemoryError(size) from error
        raise UnreadableImage(f"truncated or corrupt: {_reason(error)}") from error
    finally:
        image.close()


def _may_lack(num_bytes: int, *, is_alone: bool) -> bool:
    """Tell whether a failure that does not mention memory may be for want of this many bytes."""
    return num_bytes >= _LARGE_BYTES and not (is_alone and _is_free(num_bytes))


def _is_free(num_bytes: int) -> bool:
    """Tell whether the system gives this process this many bytes."""
    try:
        np.empty(num_bytes, dtype=np.uint8)
    except MemoryError:
        return False
    return True


def _open(stream: BinaryIO, max_pixels: int, *, is_alone: bool) -> Image.Image:
    """Parse the header alone; raises as `_decode`."""
    _libtiff.errors = []
    timed = cast(BinaryIO, _TimedStream(stream))
    try:
        image = Image.open(timed, formats=_FORMATS) if timed.read(1) else None
    except UnidentifiedImageError as error:
        raise UnreadableImage(f"not an image of a supported format ({', '.join(_FORMATS)})") from error
    except Image.DecompressionBombError as error:
        raise UnreadableImage(f"too large: {one_line(error)}") from error
    except MemoryError as error:
        raise _ShortOfMemoryError from error
    except Exception as error:  # as in _decode, and for a path that is a folder
        if _may_lack(_bytes_to_open(stream, error), is_alone=is_alone):
            raise _ShortOfMemoryError from error
        raise UnreadableImage(f"the header cannot be read: {_reason(error)}") from error
    if image is None:
        raise UnreadableImage("the file is empty")
    if image.width * image.height > max_pixels:
        image.close()
        raise UnreadableImage(f"too large: {image.width} x {image.height} pixels, the limit is {max_pixels}")
    return image


def _bytes_to_open(stream: BinaryIO, error: Exception) -> int:
    """Return the bytes that a decoder may have lacked when it raised an error while opening; 0 for most decoders."""
    if "Out of memory" in str(error):  # libavif
        return _BYTES_TO_PARSE
    if "could not create decoder object" in str(error):  # libwebp, for want of memory as for a broken file
        stream.seek(0)
        return _webp_pixels(stream.read(30)) * _BYTES_PER_PIXEL
    return 0


def _webp_pixels(head: bytes) -> int:
    """Return the number of pixels that the first 30 bytes of a WebP file announce; 0 where they do not.

    Source:
        RFC 9649, sections 2.5 to 2.7, and RFC 6386, section 9.1.
    """
    head = head.ljust(30, b"\0")
    if head[12:16] == b"VP8X":
        return (int.from_bytes(head[24:27], "little") + 1) * (int.from_bytes(head[27:30], "little") + 1)
    if head[12:16] == b"VP8L":
        size = int.from_bytes(head[21:25], "little")
        return ((size & 0x3FFF) + 1) * ((size >> 14 & 0x3FFF) + 1)
    size = int.from_bytes(head[26:30], "little")
    return (size & 0x3FFF) * (size >> 16 & 0x3FFF)


def _pixels(image: Image.Image) -> NDArray[np.uint8]:
    """Decode an opened image one strip at a time: (H, W, 3)."""
    image.load()
    # PIL.ImageOps.exif_transpose would also rewrite the EXIF block, which fails on broken ones, and copy.
    method = _UPRIGHT.get(orientation_tag(image))
    upright = image if method is None else image.transpose(method)
    if upright is not image:
        image.close()  # its memory is needed
    is_deep = upright.mode == "F" or upright.mode.startswith("I")
    bounds = _bounds(upright) if is_deep else (0.0, 0.0)
    pixels = np.empty((upright.height, upright.width, 3), dtype=np.uint8)
    for rows, strip in _strips(upright):
        pixels[rows] = _deep_to_gray(strip, bounds)[..., None] if is_deep else np.asarray(_to_rgb(strip))
    return pixels


def _strips(image: Image.Image) -> Iterator[tuple[slice, Image.Image]]:
    """Cut an image into strips of about `_STRIP_PIXELS`, each with its rows."""
    num_rows = max(_STRIP_PIXELS // image.width, 1)
    if num_rows >= image.height:
        yield slice(None), image
        return
    for top in range(0, image.height, num_rows):
        bottom = min(top + num_rows, image.height)
        yield slice(top, bottom), image.crop((0, top, image.width, bottom))


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.has_transparency_data:
        # Pillow converts premultiplied grayscale to straight grayscale only.
        layer = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def _bounds(image: Image.Image) -> tuple[float, float] | None:
    """Return the values that become 0 and 255: the least and the greatest finite one, or None for 16 bits."""
    # Pillow scales the values of a PGM of more than 8 bits to 16.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        return None
    lows, highs = [], []
    for _, strip in _strips(image):
        values = np.asarray(strip)
        finite = values[np.isfinite(values)]
        if finite.size:
            lows.append(float(finite.min()))
            highs.append(float(finite.max()))
    return min(lows, default=0.0), max(highs, default=0.0)


def _deep_to_gray(strip: Image.Image, bounds: tuple[float, float] | None) -> NDArray[np.uint8]:
    """Bring one channel of 16-bit integers, 32-bit integers or floats to 8 bits."""
    values = np.asarray(strip, dtype=np.float64)
    if bounds is None:
        gray = values / 257
    else:
        low, high = bounds
        stretch = 255 / (high - low) if high > low else 0.0
        gray = (np.nan_to_num(values, nan=low, posinf=high, neginf=low) - low) * stretch
    transparent = strip.info.get("transparency")
    if isinstance(transparent, int):  # the one value that a PNG declares to be see-through
        gray = np.where(values == transparent, 255, gray)
    return np.rint(gray).astype(np.uint8)


class _Libtiff(threading.local):
    """The errors that libtiff has reported in this thread since the list was emptied."""

    errors: list[str]

    def __init__(self) -> None:
        self.errors = []


_libtiff = _Libtiff()


def _keep_libtiff_error(module: bytes | None, template: bytes, arguments: int) -> None:
    """Take an error of libtiff as its C code reports it: a template of printf's and a `va_list`."""
    text = ctypes.create_string_buffer(200)
    ctypes.CDLL(None).vsnprintf(text, ctypes.c_size_t(len(text)), template, ctypes.c_void_p(arguments))
    _libtiff.errors.append(text.value.decode(errors="replace"))


# Kept for as long as libtiff may call it.
_LIBTIFF_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)(_keep_libtiff_error)


def _silence_libtiff() -> None:
    """Make the libtiff that Pillow loaded report to this module instead of printing."""
    # A Pillow that was built in another way has none, or one that is out of reach: then it prints.
    with suppress(AttributeError, OSError):
        libtiff = ctypes.CDLL(_imaging.__file__)
        libtiff.TIFFSetErrorHandler(_LIBTIFF_HANDLER)
        libtiff.TIFFSetWarningHandler(None)


_silence_libtiff()


def _reason(error: Exception) -> str:
    return ": ".join([one_line(error), *_libtiff.errors[:1]])


def normalise(
    images: NDArray[np.uint8], mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
) -> torch.Tensor:
    """Turn a batch of images into a tensor normalised by a mean and standard deviation per channel.

    Args:
        images: Shape (N, H, W, 3), RGB, 0 to 255.
        mean: Of values from 0 to 1; by default ImageNet's, like `std`.
        std: Standard deviation.

    Returns:
        float32 of shape (N, 3, H, W), contiguous: (value / 255 - mean) / std for each channel.
    """
    import torch  # here, since every reader of a configuration imports this module

    assert images.dtype == np.uint8, images.dtype
    assert images.ndim == 4, images.shape
    # torch.tensor copies, where torch.from_numpy would warn about the read-only arrays of Ray's object store.
    tensor = torch.tensor(images).permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    return tensor.div_(255).sub_(torch.tensor(mean).view(3, 1, 1)).div_(torch.tensor(std).view(3, 1, 1))
