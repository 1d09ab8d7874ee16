"""What there is to see of a localization: a panel, a gallery, the histogram of boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder, refuse_escape
from objectaware.data.images import UnreadableImage, read_image
from objectaware.data.masks import resize_mask
from objectaware.errors import InputError
from objectaware.evaluate.localization import mask_ious
from objectaware.localize.gallery import NUM_GALLERY_IMAGES, GalleryEntry, gallery_html
from objectaware.localize.mask_store import MaskRow
from objectaware.tracking.panels import localization_panel, localization_strip

NUM_PANEL_IMAGES = 12
NUM_GALLERY_FAILURES = 100

Truth = Callable[[str], tuple[NDArray[np.bool_], NDArray[np.bool_] | None]]


class Look:
    """Watches the rows of a mask store go by and keeps a bounded sample of them as pictures.

    The sample is the first rows: a store's groups are a seeded permutation of the data set, so that these are a
    random draw which is the same whenever the run is repeated.

    Args:
        images: The data set.
        truth: True mask (H, W) of an image by its id, with the pixels that do not count where there are any; or None
            where they are not known.

    Attributes:
        box_counts: How many of the images that were localized have each number of boxes.
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
        """Passes rows on unchanged, and counts the boxes of each image that was localized."""
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
        """The gallery of the sample, as HTML."""
        note = (
            f"{len(self._shown)} of {self.box_counts.total()} localized images and {len(self._failed)} of "
            f"{self._num_failed} that failed"
        )
        return gallery_html(title, [*self._failed, *self._shown], note=note)

    def panel(self) -> bytes | None:
        """The panel of the first images, as PNG; None where nothing was localized."""
        if not self._panel_rows:
            return None
        rows = [row for row, _ in self._panel_rows]
        return localization_panel(
            [photo for _, photo in self._panel_rows],
            [[row.cam] for row in rows if row.cam is not None],
            [row.mask for row in rows if row.mask is not None],
            [row.boxes for row in rows],
            [row.image_id for row in rows],
        )

    def _entry(self, row: MaskRow) -> GalleryEntry:
        assert row.cam is not None, row.image_id
        assert row.mask is not None, row.image_id
        # Neither a picture nor a true mask that is gone is a reason to fail a localization that is finished.
        jpeg = miou = None
        problems: list[str] = []
        try:
            miou = self._miou(row)
        except InputError as error:
            problems.append(f"no true mask: {error}")
        try:
            # A store may be somebody else's.
            refuse_escape(row.image_id)
            photo = read_image(self._images.root / row.image_id)
        except InputError as error:
            problems.append(f"no picture: {error}")
        except UnreadableImage as error:
            problems.append(f"no picture: {error.reason}")
        else:
            jpeg = localization_strip(photo, row.cam, row.mask, row.boxes)
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


def truth_of(data: Dataset) -> tuple[Truth | None, str]:
    """Give the true masks of a data set by image id, or None where it has none; see `Dataset.find_truth`."""
    masks, notice = data.find_truth(needs_boxes=False)
    if masks is None or not masks.has_masks:
        return None, notice
    place = {image_id: index for index, image_id in enumerate(data.image_ids)}
    return lambda image_id: (masks[place[image_id]], masks.ignored(place[image_id])), notice
