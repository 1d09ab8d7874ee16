"""Writes the figures of all results into docs/benchmarks.md, after its last heading."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from harness import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
HEADING = "## Figures\n"


def figures(folder: Path) -> str:
    """A table of the results in a folder, a row a comparison, and where each file's figures come from."""
    files = {path.stem: list(csv.DictReader(path.open(newline=""))) for path in sorted(folder.glob("*.csv"))}
    return "\n".join([*_table(files), "", *_sources(files), ""]) if files else "None yet.\n"


def _table(files: dict[str, list[dict[str, str]]]) -> Iterator[str]:
    yield "| what | ours | beside | unit | ratio | spread | pairs | asked | reached |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for rows in files.values():
        for row in rows:
            numbers = [f"{float(row[name]):.4g}" for name in ("ours", "reference")]
            ratios = [f"{float(row[name]):.3f}" for name in ("ratio", "spread")]
            cells = [row["case"], *numbers, row["unit"], *ratios, row["num_pairs"], row["limit"], row["reached"]]
            yield f"| {' | '.join(cells)} |"


def _sources(files: dict[str, list[dict[str, str]]]) -> Iterator[str]:
    for name, rows in files.items():
        yield f"- `{name}`: {rows[0]['date']}, {rows[0]['hardware']}; {rows[0]['versions']}"


if __name__ == "__main__":
    text, _, _ = PAGE.read_text().partition(HEADING)
    PAGE.write_text(f"{text}{HEADING}{figures(RESULTS)}")
