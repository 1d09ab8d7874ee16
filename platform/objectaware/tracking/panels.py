"""Pictures of what localization found, drawn from arrays."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from PIL import Image, ImageDraw

CELL = 160
GAP = 4
CAPTION = 16

_HEAT_WEIGHT = 0.6
_BOX_COLOUR = (255, 40, 40)
_TEXT_COLOUR = (0, 0, 0)


def panel_width(num_cams: int = 1) -> int:
    """Returns the width in pixels of a panel with so many maps per image."""
    return (num_cams + 3) * (CELL + GAP) + GAP


def localization_panel(
    photos: Sequence[NDArray[np.uint8]],
    cams: Sequence[Sequence[NDArray[np.float32]]],
    masks: Sequence[NDArray[np.bool_]],
    boxes: Sequence[NDArray[np.float32]],
    names: Sequence[str],
    *,
    cam_titles: Sequence[str] = ("CAM",),
) -> bytes:
    """Draws a row per image: the photo, CAMs as heat over it, the mask after CRF, and the boxes.

    A row is as high as its photo is at the width of a cell, or at its height for an upright one.

    Args:
        photos: (H, W, 3) RGB each, of any size.
        cams: As many maps an image as there are titles, such as one an iteration; (h, w) in [0, 1], of any size.
        masks: (h, w) each, of any size.
        boxes: (n, 4) each, relative x0 y0 x1 y1 in [0, 1]; n may be 0.
        names: What is written above each row.
        cam_titles: What is written above the maps' columns.

    Returns:
        PNG.
    """
    assert all(len(image_cams) == len(cam_titles) for image_cams in cams), cam_titles
    rows = [_row(*cells) for cells in zip(photos, cams, masks, boxes, strict=True)]
    height = CAPTION + sum(CAPTION + row.height + GAP for row in rows)
    panel = Image.new("RGB", (panel_width(len(cam_titles)), height), "white")
    draw = ImageDraw.Draw(panel)
    for column, title in enumerate(("photo", *cam_titles, "mask", "boxes")):
        draw.text((GAP + column * (CELL + GAP), 2), title, _TEXT_COLOUR)
    top = CAPTION
    for row, name in zip(rows, names, strict=True):
        draw.text((GAP, top + 2), _shortened(name, panel.width), _TEXT_COLOUR)
        panel.paste(row, (0, top + CAPTION))
        top += CAPTION + row.height + GAP
    return _encoded(panel, "PNG")


def localization_strip(
    photo: NDArray[np.uint8],
    cam: NDArray[np.float32],
    mask: NDArray[np.bool_],
    boxes: NDArray[np.float32],
) -> bytes:
    """One row of `localization_panel` without its name, as JPEG of about 15 kB."""
    return _encoded(_row(photo, [cam], mask, boxes), "JPEG")


def _row(
    photo: NDArray[np.uint8],
    cams: Sequence[NDArray[np.float32]],
    mask: NDArray[np.bool_],
    boxes: NDArray[np.float32],
) -> Image.Image:
    small = _fit_in_cell(photo)
    heats = [_with_heat(small, cam) for cam in cams]
    row = Image.new("RGB", (panel_width(len(cams)), small.height), "white")
    for column, cell in enumerate([small, *heats, _cut_out(small, mask), _with_boxes(small, boxes)]):
        row.paste(cell, (GAP + column * (CELL + GAP) + (CELL - cell.width) // 2, 0))
    return row


def box_histogram(counts: Mapping[int, int], truth_counts: Mapping[int, int] | None = None) -> bytes:
    """A histogram of the number of boxes per image.

    Args:
        counts: Number of boxes -> number of images.
        truth_counts: The same of the true objects, drawn beside it where they are known.

    Returns:
        PNG.
    """
    series = {"found": counts} if truth_counts is None else {"found": counts, "truth": truth_counts}
    largest = max(max(values, default=0) for values in series.values())
    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    edges = np.arange(largest + 2) - 0.5
    values = [list(one) for one in series.values()]
    weights = [list(one.values()) for one in series.values()]
    axes.hist(values, bins=edges.tolist(), weights=weights, label=list(series))
    axes.set(xlabel="boxes per image", ylabel="images")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _shortened(name: str, width: int) -> str:
    max_characters = (width - 2 * GAP) // 7  # the built-in font is at most 7 pixels wide a character
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
