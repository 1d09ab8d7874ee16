"""docs/paper.md names all that it speaks for."""

from __future__ import annotations

import re
from pathlib import Path

from objectaware.paper import TABLE_LABELS, gains, load_figures, load_table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper.md").read_text()


def _rows(title: str) -> list[list[str]]:
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.strip().splitlines()[2:]]


def test_tables_and_figures_are_listed_as_the_data_has_them() -> None:
    tables = [load_table(label) for label in TABLE_LABELS]
    assert _rows("Tables") == [
        [f"`{table.label}`", table.caption, str(table.num_trials), ", ".join(table.datasets)] for table in tables
    ]
    assert _rows("Figures") == [
        [f"`{figure.label}`", figure.caption, ", ".join(figure.datasets)] for figure in load_figures()
    ]


def test_misprints_are_listed() -> None:
    listed = re.findall(r"^\| `([\w-]+)` \| (.*?) \| ([+-][\d.]+) \| ([+-][\d.]+) \|$", PAGE, re.MULTILINE)
    expected = [
        (label, ", ".join((*one.row, *one.column)), f"{one.printed:+.2f}", f"{gains(table)[one.row, one.column]:+.2f}")
        for label, table in ((label, load_table(label)) for label in TABLE_LABELS)
        for one in table.misprinted_gains
    ]
    assert listed == expected


def test_recipes_that_are_named_exist_and_bases_of_all_are_named() -> None:
    recipes = {path.stem for path in (ROOT / "jobs" / "recipes").glob("*.yaml") if "base:" in path.read_text()}
    section = PAGE.split("## Trainings\n")[1].split("A recipe with masks")[0]
    named = set(re.findall(r"`((?:moco|byol|supervised)_\w+)`", section))
    endings = set(re.findall(r"`(_\w+)`", section))
    assert named <= recipes
    for recipe in recipes - named:
        assert any(recipe == start + ending for start in named for ending in endings), recipe
