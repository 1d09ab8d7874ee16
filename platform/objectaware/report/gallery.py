"""Pictures of a localization's results: photos with their masks and boxes, and a gallery of them.

The gallery is one HTML page, made from the template `gallery.html`, that needs nothing else: no server, no network, no
library. MLflow shows an HTML artifact in a frame that may only run scripts, so the page's inline code uses no storage,
no address and no file. The page's own content security policy forbids everything else: a file name that got through the
escaping could not load anything.
"""

from __future__ import annotations

import base64
import html
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Literal

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from objectaware.data.folder import ImageFolder, refuse_escape
from objectaware.data.images import UnreadableImage, read_image
from objectaware.data.masks import resize_mask
from objectaware.errors import InputError
from objectaware.evaluate.mask_scores import mask_ious
from objectaware.localize.mask_store import MaskRow

NUM_GALLERY_IMAGES = 200
"""Largest number of localized images in a gallery."""
NUM_GALLERY_FAILURES = 100
"""Largest number of failed images in a gallery."""
NUM_PANEL_IMAGES = 12

MAX_PICTURE_BYTES = 8 * 2**20
"""Largest total size of a page's pictures in bytes, after encoding. A browser opens a page of this size at once."""

CELL = 160
GAP = 4
CAPTION = 16
PANEL_WIDTH = 4 * (CELL + GAP) + GAP
"""Sizes in a panel in pixels: a picture's longer side, the space between pictures, the height of a line of text, and
the width of four pictures side by side."""

_HEAT_WEIGHT = 0.6
_BOX_COLOUR = (255, 40, 40)
_TEXT_COLOUR = (0, 0, 0)

Truth = Callable[[str], tuple[NDArray[np.bool_], NDArray[np.bool_] | None]]
"""Function that returns the true mask (H, W) of an image by its id, and the pixels that do not count, or None."""


class Look:
    """A watcher of a mask store's rows, which counts boxes and keeps the first rows as pictures.

    A store's groups are a seeded permutation of the data set. Its first rows are therefore a random sample, which is
    the same when the run is repeated.

    Args:
        images: The data set.
        truth: Function that returns the true masks; None if they are not known.

    Attributes:
        box_counts: Number of localized images by their number of boxes.
    """

    def __init__(self, images: ImageFolder, truth: Truth | None) -> None:
        self.box_counts: Counter[int] = Counter()
        self._images = images
        self._truth = truth
        self._num_failed = 0
        self._shown: list[GalleryEntry] = []
        self._failed: list[GalleryEntry] = []
        self._panel_rows: list[tuple[MaskRow, NDArray[np.uint8]]] = []

    def watch(self, rows: Iterable[MaskRow]) -> Iterator[MaskRow]:
        """Yield rows unchanged, and take note of each."""
        for row in rows:
            if row.status == "failed":
                self._num_failed += 1
                if len(self._failed) < NUM_GALLERY_FAILURES:
                    self._failed.append(GalleryEntry(row.image_id, "failed", error=row.error))
            else:
                self.box_counts[len(row.boxes)] += 1
                if len(self._shown) < NUM_GALLERY_IMAGES:
                    self._shown.append(self._entry(row))
            yield row

    def gallery(self, title: str) -> str:
        """Return the gallery of the sample as HTML."""
        note = (
            f"{len(self._shown)} of {self.box_counts.total()} localized images and {len(self._failed)} of "
            f"{self._num_failed} that failed"
        )
        return gallery_html(title, [*self._failed, *self._shown], note=note)

    def panel(self) -> bytes | None:
        """Draw the panel of the first images as PNG; return None if no image can be shown."""
        if not self._panel_rows:
            return None
        rows, photos = zip(*self._panel_rows, strict=True)
        return rows_panel(rows, photos)

    def _entry(self, row: MaskRow) -> GalleryEntry:
        # A picture or true mask that is gone must not make a finished localization fail.
        jpeg = miou = None
        problems: list[str] = []
        try:
            miou = self._miou(row)
        except InputError as error:
            problems.append(f"no true mask: {error}")
        try:
            # The store may come from somebody else, so do not trust its paths.
            refuse_escape(row.image_id)
            photo = read_image(self._images.root / row.image_id)
        except InputError as error:
            problems.append(f"no picture: {error}")
        except UnreadableImage as error:
            problems.append(f"no picture: {error.reason}")
        else:
            jpeg = row_strip(row, photo)
            if len(self._panel_rows) < NUM_PANEL_IMAGES:
                self._panel_rows.append((row, photo))
        return GalleryEntry(row.image_id, "ok", len(row.boxes), miou, jpeg, "; ".join(problems))

    def _miou(self, row: MaskRow) -> float | None:
        if self._truth is None:
            return None
        assert row.cam is not None, row.image_id
        assert row.mask is not None, row.image_id
        height, width = row.cam.shape
        found, (truth, ignored) = row.mask, self._truth(row.image_id)
        if ignored is not None:
            counted = ~ignored
            found, truth = resize_mask(found, *counted.shape) & counted, truth & counted
        found, truth = (resize_mask(mask, height, width) for mask in (found, truth))
        return float(mask_ious(found[None], truth[None])[0])


@dataclass(frozen=True)
class GalleryEntry:
    """One image of the gallery.

    Attributes:
        image_id: Path relative to the data set.
        status: `failed` for an image that could not be read.
        num_boxes: Number of boxes found in the image.
        miou: Foreground IoU with the true mask in [0, 1]; None if the true mask is not known.
        jpeg: Picture of the image with its masks and boxes; None if it could not be drawn.
        error: Reason of the failure, or of a missing picture or true mask; otherwise empty.
    """

    image_id: str
    status: Literal["ok", "failed"]
    num_boxes: int = 0
    miou: float | None = None
    jpeg: bytes | None = None
    error: str = ""


def gallery_html(
    title: str, entries: Iterable[GalleryEntry], *, note: str, max_picture_bytes: int = MAX_PICTURE_BYTES
) -> str:
    """Build the page of a gallery.

    Args:
        title: Heading of the page.
        entries: The images, in order. Images whose pictures exceed the limit are left out; the page gives their number.
        note: Line under the heading that describes the images, such as "200 of 118287 images".
        max_picture_bytes: Largest total size of the pictures in bytes, in base64.

    Returns:
        HTML, to be stored as UTF-8. Each entry is a `figure` with the data attributes `status`, `boxes` and, if it is
        known, `miou`. The page's controls filter by these.
    """
    figures: list[str] = []
    num_pictureless = num_bytes = num_without_truth = 0
    for entry in entries:
        picture = base64.b64encode(entry.jpeg or b"").decode("ascii")
        if num_bytes + len(picture) > max_picture_bytes:
            num_pictureless += 1
            continue
        num_bytes += len(picture)
        num_without_truth += entry.miou is None
        figures.append(_entry_html(entry, picture))
    if num_pictureless:
        note += f"; {num_pictureless} left out to keep this page small"
    has_truth = num_without_truth < len(figures)
    page = files("objectaware.report").joinpath("gallery.html").read_text(encoding="utf-8")
    return Template(page).substitute(
        title=html.escape(title),
        note=html.escape(note),
        disabled="" if has_truth else 'disabled title="no true masks are known for these images"',
        figures="\n".join(figures),
    )


def _entry_html(entry: GalleryEntry, picture: str) -> str:
    name = html.escape(entry.image_id)
    miou = "" if entry.miou is None else f' data-miou="{entry.miou:.4f}"'
    facts = [f"{entry.num_boxes} {'box' if entry.num_boxes == 1 else 'boxes'}"] if entry.status == "ok" else ["failed"]
    facts += [] if entry.miou is None else [f"mIoU {entry.miou:.3f}"]
    facts += [html.escape(entry.error)] if entry.error else []
    image = f'<img alt="" src="data:image/jpeg;base64,{picture}">' if picture else ""
    return (
        f'<figure data-status="{entry.status}" data-boxes="{entry.num_boxes}"{miou}>{image}'
        f'<figcaption><bdi title="{name}">{name}</bdi><span>{" · ".join(facts)}</span></figcaption></figure>'
    )


def rows_panel(rows: Sequence[MaskRow], photos: Sequence[NDArray[np.uint8]]) -> bytes:
    """Draw one row per localized image: the photo, the CAM as heat over it, the mask after CRF, and the boxes.

    The longer side of each photo is fitted to a cell. A row is as high as its photo.

    Args:
        rows: Rows of a mask store.
        photos: Their RGB photos (H, W, 3) of any size.

    Returns:
        PNG.
    """
    strips = [_strip(row, photo) for row, photo in zip(rows, photos, strict=True)]
    height = CAPTION + sum(CAPTION + strip.height + GAP for strip in strips)
    panel = Image.new("RGB", (PANEL_WIDTH, height), "white")
    draw = ImageDraw.Draw(panel)
    for column, title in enumerate(("photo", "CAM", "mask", "boxes")):
        draw.text((GAP + column * (CELL + GAP), 2), title, _TEXT_COLOUR)
    top = CAPTION
    for row, strip in zip(rows, strips, strict=True):
        draw.text((GAP, top + 2), _shortened(row.image_id), _TEXT_COLOUR)
        panel.paste(strip, (0, top + CAPTION))
        top += CAPTION + strip.height + GAP
    return _encoded(panel, "PNG")


def row_strip(row: MaskRow, photo: NDArray[np.uint8]) -> bytes:
    """Draw one row of `rows_panel` without its name, as a JPEG of about 15 kB."""
    return _encoded(_strip(row, photo), "JPEG")


def _strip(row: MaskRow, photo: NDArray[np.uint8]) -> Image.Image:
    assert row.cam is not None, row.image_id
    assert row.mask is not None, row.image_id
    small = _fit_in_cell(photo)
    strip = Image.new("RGB", (PANEL_WIDTH, small.height), "white")
    cells = [small, _with_heat(small, row.cam), _cut_out(small, row.mask), _with_boxes(small, row.boxes)]
    for column, cell in enumerate(cells):
        strip.paste(cell, (GAP + column * (CELL + GAP) + (CELL - cell.width) // 2, 0))
    return strip


def _shortened(name: str) -> str:
    max_characters = (PANEL_WIDTH - 2 * GAP) // 7  # a character of the built-in font is at most 7 pixels wide
    text = name.encode("ascii", "replace").decode()
    return text if len(text) <= max_characters else "..." + text[3 - max_characters :]


def _fit_in_cell(photo: NDArray[np.uint8]) -> Image.Image:
    height, width = photo.shape[:2]
    scale = CELL / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return Image.fromarray(photo).resize(size, Image.Resampling.BILINEAR)


def _with_heat(photo: Image.Image, cam: NDArray[np.float32]) -> Image.Image:
    scores = Image.fromarray(np.asarray(cam, dtype=np.float32)).resize(photo.size, Image.Resampling.BILINEAR)
    heat = colormaps["jet"](np.clip(np.asarray(scores), 0.0, 1.0), bytes=True)[..., :3]
    return Image.blend(photo, Image.fromarray(np.ascontiguousarray(heat)), _HEAT_WEIGHT)


def _cut_out(photo: Image.Image, mask: NDArray[np.bool_]) -> Image.Image:
    shape = Image.fromarray(np.where(mask, 255, 0).astype(np.uint8)).resize(photo.size, Image.Resampling.NEAREST)
    return Image.composite(photo, Image.new("RGB", photo.size, (128, 128, 128)), shape)


def _with_boxes(photo: Image.Image, boxes: NDArray[np.float32]) -> Image.Image:
    marked = photo.copy()
    draw = ImageDraw.Draw(marked)
    scale = np.array([photo.width - 1, photo.height - 1] * 2)
    for x0, y0, x1, y1 in np.asarray(boxes).reshape(-1, 4) * scale:
        draw.rectangle((float(x0), float(y0), float(x1), float(y1)), outline=_BOX_COLOUR, width=2)
    return marked


def _encoded(image: Image.Image, format: Literal["PNG", "JPEG"]) -> bytes:  # noqa: A002 - as Pillow calls it
    buffer = io.BytesIO()
    image.save(buffer, format=format)
    return buffer.getvalue()
