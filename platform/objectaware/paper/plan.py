"""The plan of a table: which stage computes each of its cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from objectaware.errors import InputError
from objectaware.paper import background, localization, multi, shift
from objectaware.paper.content import Key, Table, load_table
from objectaware.paper.nodes import Node, ordered
from objectaware.paper.values import Value

Place = tuple[Key, Key]

_CELLS: dict[str, Callable[[Key, Key, int], Value]] = {
    "loc-main": localization.main,
    "loc-cam": localization.classifier_cam_trained_there,
    "loc-cam-transfer": localization.transfer,
    "multi-main": multi.main,
    "multi-det": multi.detection,
    "multi-shift": shift.of_coco_networks,
    "bg-main": background.main,
    "bg-domain": shift.of_in9_networks,
    "loc-iter": localization.iterations,
    "loc-batch": localization.batch,
    "loc-cam-full": localization.full,
    "loc-saliency": localization.saliency,
    "multi-bias": multi.distance,
    "multi-bias-epoch": multi.one_shot,
    "multi-supervised-lineval": multi.supervised,
    "multi-supervised-det": multi.detection,
    "multi-class-wise": multi.class_wise,
    "multi-imagenet": multi.imagenet,
    "multi-second": multi.second,
    "bg-soft-hard": background.main,
    "bg-probability": background.probability,
    "bg-more-dist": shift.of_in9_networks,
    "bg-more-bg": background.more,
    "bg-imagenetc": shift.corruptions,
    "bg-more-datasets": shift.of_in9_networks,
}
"""What gives a table's cell by row, column and seed."""


@dataclass(frozen=True)
class TablePlan:
    """What a table is computed from.

    Attributes:
        table: The table, with the paper's numbers.
        seeds: Seeds of the trainings behind each number.
        cells: By row and column, a value for each seed; none for a dash of the paper's.
    """

    table: Table
    seeds: tuple[int, ...]
    cells: dict[Place, tuple[Value, ...]]

    def nodes(self) -> list[Node]:
        """All stages, each once, after what it needs."""
        return ordered(value.node for values in self.cells.values() for value in values)


def plan_table(label: str, *, num_seeds: int | None = None) -> TablePlan:
    """Plans a table.

    Args:
        label: One of `TABLE_LABELS`.
        num_seeds: Trainings behind a number, of seed 0 and up; by default as many as in the paper.

    Raises:
        InputError: The paper has no such table, or there is no seed.
    """
    table = load_table(label)
    if num_seeds is not None and num_seeds < 1:
        raise InputError("seeds", num_seeds, "leaves no training", "Give the number of trainings, 1 or more.")
    seeds = tuple(range(num_seeds or table.num_trials))
    cell = _CELLS[label]
    cells = {
        (row, column): tuple(cell(row, column, seed) for seed in seeds)
        for (row, column), printed in table.cells().items()
        if printed is not None
    }
    return TablePlan(table, seeds, cells)
