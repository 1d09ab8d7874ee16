"""The tables of the demo, for the terminal and as a Markdown page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from objectaware.report.tables import format_table, to_markdown

Rows = dict[str, dict[str, float]]


class Table(NamedTuple):
    """One table of the demo.

    Attributes:
        name: Its name in MLflow.
        title: Text above the table.
        rows: Cells by row and column.
        deviations: Standard deviations of the same cells; None for a single seed.
        digits: Number of decimals.
    """

    name: str
    title: str
    rows: Rows
    deviations: Rows | None
    digits: int


def demo_tables(results: Mapping[str, Any]) -> list[Table]:
    """Make the tables of a demo's results.

    Args:
        results: Result of `run_demo`: for one seed, or `mean` and `std` over several seeds.

    Returns:
        One table of localization, and one of linear evaluation with the change through the debiased training.
    """
    mean = results.get("mean", results)
    deviation = results.get("std")
    kind = "background" if "background" in mean else "object_crop"
    return [
        Table(
            "localization",
            "Mask mIoU on scenes (center_box knows the size that fits best: an oracle)",
            _column(mean["localization"]),
            None if deviation is None else _column(deviation["localization"]),
            3,
        ),
        Table(
            kind,
            "Accuracy of a linear classifier on scenes, per cent",
            _with_change(mean[kind]),
            None if deviation is None else _transposed(deviation[kind]),
            1,
        ),
    ]


def _column(scores: Mapping[str, float]) -> Rows:
    return {name: {"mIoU": value} for name, value in scores.items()}


def _transposed(accuracies: Mapping[str, Mapping[str, float]]) -> Rows:
    """Arrange accuracies in one row per test set and one column per training."""
    tests = next(iter(accuracies.values()))
    return {test: {training: values[test] for training, values in accuracies.items()} for test in tests}


def _with_change(accuracies: Mapping[str, Mapping[str, float]]) -> Rows:
    """Do the same as `_transposed`, and add a last column: the last training's difference from the baseline."""
    rows = _transposed(accuracies)
    for row in rows.values():
        row["change"] = list(row.values())[-1] - row["baseline"]
    return rows


def terminal_report(results: Mapping[str, Any]) -> str:
    """Format the tables as plain text."""
    tables = demo_tables(results)
    return "\n\n".join(format_table(t.title, t.rows, digits=t.digits, deviations=t.deviations) for t in tables)


def markdown_report(results: Mapping[str, Any], *, variant: str) -> str:
    """Format the tables as a Markdown page."""
    mean = results.get("mean", results)
    seeds = [result["seed"] for result in results.get("seeds", [results])]
    parts = [f"# Demo on scenes, {variant}; seeds {', '.join(map(str, seeds))}"]
    for table in demo_tables(results):
        parts += [table.title + ":", to_markdown(table.rows, digits=table.digits, deviations=table.deviations)]
    parts.append(
        f"{mean['seconds']:.0f} s a seed, peak memory {mean['peak_memory_mib']:.0f} MiB. Scenes are made by code; "
        "these numbers are comparable with no published ones."
    )
    return "\n\n".join(parts) + "\n"
