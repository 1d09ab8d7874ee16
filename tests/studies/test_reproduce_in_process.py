"""Every smoke plan, its stages' work done in this process: all tables have all numbers, all figures their pictures.

One storage for all of them: what a table has computed is reused by the next.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from contexts import make_context
from objectaware.paper import TABLE_LABELS, Cell, load_figures
from objectaware.paper.figures import plan_figure
from objectaware.paper.plan import plan_table
from objectaware.stages.runner import Context
from objectaware.studies.reproduce.scale import Scale, Smoke
from objectaware.studies.reproduce.study import run_figure, run_table
from stages_in_process import work_in_process

RECIPES = Path(__file__).parents[2] / "jobs" / "recipes"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Context, Scale]]:
    folder = tmp_path_factory.mktemp("reproduce")
    with pytest.MonkeyPatch.context() as patch:
        work_in_process(patch)
        context = make_context(folder)
        yield context, Smoke.build(RECIPES, folder / "scenes")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("label", TABLE_LABELS)
def test_a_table_has_all_its_numbers(label: str, place: tuple[Context, Scale]) -> None:
    context, scale = place
    report = run_table(context, scale, plan_table(label, num_seeds=1))
    missing = {one for one in report.measured.values() if isinstance(one, str)}
    assert not missing
    numbers = [one.mean for one in report.measured.values() if isinstance(one, Cell)]
    assert all(math.isfinite(number) for number in numbers)
    assert report.table.unit != "%" or all(-100 <= number <= 100 for number in numbers)
    assert all(line.startswith("smoke on scenes | ") for line in report.text().splitlines())
    assert json.dumps(report.rows())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("label", [figure.label for figure in load_figures()])
def test_a_figure_has_its_pictures(label: str, place: tuple[Context, Scale]) -> None:
    context, scale = place
    addresses = run_figure(context, scale, plan_figure(label))
    assert addresses
    for address in addresses:
        with Image.open(address) as picture:
            assert min(picture.size) > 100
