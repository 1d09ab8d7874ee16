"""Every smoke plan, its stages' work done in this process: all tables have all numbers, all figures their pictures.

One storage for all of them: what a table has computed is reused by the next.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from PIL import Image

from contexts import make_context
from objectaware.paper import TABLE_LABELS, Cell, load_figures
from objectaware.paper.figures import plan_figure
from objectaware.paper.nodes import Value, ordered
from objectaware.paper.plan import Protocol, by_protocol, classified, plan_table, training
from objectaware.stages.identity import STAGE_FILE
from objectaware.stages.runner import Context
from objectaware.studies.engine import run
from objectaware.studies.reproduce.scale import Scale, Smoke
from objectaware.studies.reproduce.study import run_figure, run_table, steps_of
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


@pytest.mark.timeout(300)
def test_both_protocols_share_a_training_and_differ_in_the_linear_evaluations(place: tuple[Context, Scale]) -> None:
    context, scale = place
    places = [(("MoCov2", "ResNet-50", "-"), (name,)) for name in ("Flowers", "Pets")]
    # At this scale, networks of ImageNet-9 have the shortest training.
    evaluations = [classified(training("moco_resnet18_in9"), name) for _, (name,) in places]
    shown: dict[Protocol, dict[str, Any]] = {}
    for protocol in get_args(Protocol):
        by_paper = by_protocol("multi-main", evaluations, protocol)
        values = [(Value(by_paper[node], (("accuracies", "test"),)),) for node in evaluations]
        plan = plan_table("multi-main", num_seeds=1, protocol=protocol)
        report = run_table(context, scale, replace(plan, cells=dict(zip(places, values, strict=True))))
        assert report.title() == f"multi-main, {protocol} protocol"
        numbers = [report.measured[cell] for cell in places]
        assert all(isinstance(number, Cell) and 0 <= number.mean <= 100 for number in numbers)
        nodes = [scale.adapted(value.node) for (value,) in values]
        results = run(context, steps_of(scale, ordered(nodes))).results
        stages = [results[node] for node in nodes]
        assert all(stage.reused for stage in results.values())
        shown[protocol] = {
            "training": results[nodes[0].fields["checkpoint"]].identity,
            "identities": {stage.identity for stage in stages},
            "inputs": ["validation" in stage.folder.read_json(STAGE_FILE)["inputs"] for stage in stages],
            "compat": [stage.folder.read_json(STAGE_FILE)["config"]["compat"] for stage in stages],
        }
    paper, official = shown["paper"], shown["official"]
    assert paper["training"] == official["training"]
    assert not paper["identities"] & official["identities"]
    assert (paper["inputs"], official["inputs"]) == ([False, False], [True, False])
    assert (paper["compat"], official["compat"]) == ([None, None], ["official", "official"])
