"""Which number of a stage is a cell of a table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from objectaware.paper.nodes import Node

ValuePath = tuple[str, ...]
"""Keys from the outside in."""


@dataclass(frozen=True)
class Value:
    """A number that a node computes, in the table's unit.

    Attributes:
        node: The stage.
        paths: Where the number stands in the stage's values: keys from the outside in. Of several numbers it is the
            mean.
    """

    node: Node
    paths: tuple[ValuePath, ...]

    def read(self, values: Mapping[str, Any]) -> float:
        """Takes the number out of the stage's values.

        Raises:
            KeyError: The stage has not computed it.
        """
        return statistics.fmean(_at(values, path) for path in self.paths)


def _at(values: Mapping[str, Any], path: ValuePath) -> float:
    found: Any = values
    for key in path:
        found = found[key]
    return float(found)
