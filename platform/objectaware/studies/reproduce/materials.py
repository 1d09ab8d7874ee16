"""The materials of the paper's figures: finished stages by name, and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from objectaware.data.folder import ImageFolder
from objectaware.data.storage import Storage
from objectaware.localize.mask_store import MaskRow, read_rows
from objectaware.paper.figures import FigurePlan
from objectaware.paper.nodes import Images, Localize, Node
from objectaware.report.figures import Tile, tiles_png
from objectaware.stages.runner import StageResult
from objectaware.studies.reproduce.workshop import Workshop
from objectaware.tracking import TrackingStore

Pictures = dict[str, bytes]
"""PNGs by the names of their files."""

NUM_ROWS = 4
"""Number of rows of a figure."""


@dataclass
class Materials:
    """The materials from which a figure is drawn.

    Attributes:
        workshop: Workshop whose scale knows where images lie.
        plan: The figure's plan, at the scale in use.
        results: Results of its stages.
        tracking: MLflow store with the stages' metrics.
    """

    workshop: Workshop
    plan: FigurePlan
    results: Mapping[Node, StageResult]
    tracking: TrackingStore

    def stage(self, name: str) -> StageResult:
        """Return the result of a stage by its name in the plan."""
        return self.results[self.plan.stages[name]]

    def masks(self, name: str) -> dict[str, MaskRow]:
        """Return the masks of a localization by image, in the order of its groups, which is random."""
        rows = read_rows(Storage.from_uri(self.workshop.address(self.plan.stages[name], self.results)))
        return {row.image_id: row for row in rows if row.status == "ok"}

    def folder(self, images: Images) -> ImageFolder:
        """Open a part of a data set."""
        opened = self.workshop.scale.data(images).open()
        assert isinstance(opened, ImageFolder), "pictures that are shown are files"
        return opened

    def localized(self, name: str) -> ImageFolder:
        """Return the images of a localization."""
        node = self.plan.stages[name]
        assert isinstance(node, Localize)
        return self.folder(node.images)

    def tiles(self, rows: Sequence[Sequence[Tile]], title: str = "") -> bytes:
        """Return rows of pictures as PNG, with the scale's mark above them."""
        return tiles_png(rows, title=", ".join(filter(None, (title, self.workshop.scale.mark))))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the plan's localizations, in order."""
        return tuple(name for name, node in self.plan.stages.items() if isinstance(node, Localize))
