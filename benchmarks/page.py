"""Writes the figures of all results into docs/benchmarks.md, after its last heading."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from harness import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
HEADING = "## Figures\n"
NO_GPU = "GPU: none measured; no GPU was at hand."

Files = dict[str, list[dict[str, str]]]


def figures(folder: Path) -> str:
    """Tables of the results in a folder, a row a comparison, floor or fault, and where each file's figures come from.

    Which of the three a file holds shows in its columns: `ratio`, `share` or `fault`.
    """
    files = {path.stem: list(csv.DictReader(path.open(newline=""))) for path in sorted(folder.glob("*.csv"))}
    files = {name: rows for name, rows in files.items() if rows}
    if not files:
        return "None yet.\n"
    return "\n".join([*_comparisons(files), *_floors(files), *_faults(files), "", *_sources(files), ""])


def _rows(files: Files, column: str) -> list[dict[str, str]]:
    return [row for rows in files.values() for row in rows if column in row]


def _comparisons(files: Files) -> Iterator[str]:
    yield "| what | ours | beside | unit | ratio | spread | pairs | asked | reached |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in _rows(files, "ratio"):
        numbers = [f"{float(row[name]):.4g}" for name in ("ours", "reference")]
        ratios = [f"{float(row[name]):.3f}" for name in ("ratio", "spread")]
        yield _line(row["case"], *numbers, row["unit"], *ratios, row["num_pairs"], row["limit"], row["reached"])


def _floors(files: Files) -> Iterator[str]:
    rows = _rows(files, "share")
    yield from ("", "### Floors")
    if rows:
        yield "| what | on | GFLOP | MB | floor, s | took, s | share | bound by | images/s |"
        yield "|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        numbers = [f"{float(row[name]):.3g}" for name in ("gflop", "megabytes", "floor_seconds", "measured_seconds")]
        speed = f"{float(row['images_per_second']):.4g}" if row["images_per_second"] else ""
        yield _line(row["case"], row["device"], *numbers, f"{float(row['share']):.1%}", row["bound_by"], speed)
    if not any(row["device"].startswith("cuda") for row in rows):
        yield from ("", NO_GPU)


def _faults(files: Files) -> Iterator[str]:
    """A line a fault, however many cases it was tried in."""
    cases: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in _rows(files, "fault"):
        cases.setdefault((row["fault"], row["must hold"]), []).append(row)
    if cases:
        yield from ("", "### Faults")
        yield "| fault | must hold | seen | cases | seconds |"
        yield "|---|---|---|---|---|"
    for (fault, holds), rows in cases.items():
        seen = ", ".join(sorted({row["seen"] for row in rows}))
        yield _line(fault, holds, seen, str(len(rows)), f"{sum(float(row['seconds']) for row in rows):.1f}")


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _sources(files: Files) -> Iterator[str]:
    for name, rows in files.items():
        yield f"- `{name}`: {rows[0]['date']}, {rows[0]['hardware']}; {rows[0]['versions']}"


if __name__ == "__main__":
    text, _, _ = PAGE.read_text().partition(HEADING)
    PAGE.write_text(f"{text}{HEADING}{figures(RESULTS)}")
