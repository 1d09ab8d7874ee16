from __future__ import annotations

from typing import Any

import pytest

from objectaware.distributed.tune import TrialStatus
from objectaware.studies.sweep import (
    TrialRecord,
    best,
    change_rows,
    compare,
    comparison_rows,
    metric_plot,
    paper_numbers,
    plotted_parameter,
    trial_rows,
)
from objectaware.studies.sweep_config import SweepConfig, Trial
from tiny_sweep import sweep_fields

PNG = b"\x89PNG\r\n"
PAPER = {
    "table": "bg-probability",
    "rows": ["method", "p"],
    "names": {"moco": "MoCov2", "byol": "BYOL"},
    "columns": {"accuracy": "Mixed-Rand"},
}
PARAMETERS = {
    "method": {"paths": ["network.method"], "grid": ["moco", "byol"]},
    "p": {"paths": ["network.method.momentum"], "grid": [0, 0.3]},
}


def _config(**changes: Any) -> SweepConfig:
    fields = {"parameters": PARAMETERS, "paper": [PAPER], "seeds": [0, 1, 2], **changes}
    return SweepConfig.model_validate(sweep_fields(**fields))


def _record(
    method: str, p: float, seed: int, accuracy: float | None, status: TrialStatus = "finished", error: str | None = None
) -> TrialRecord:
    columns = {} if accuracy is None else {"accuracy": accuracy}
    return TrialRecord(Trial({"method": method, "p": p}, seed), status, columns, error)


RECORDS = [
    _record("moco", 0, 0, 60.0),
    _record("moco", 0.3, 0, 70.0),
    _record("byol", 0.3, 0, 50.0),
    _record("moco", 0, 1, 62.0),
    _record("moco", 0.3, 1, None, "failed", "RuntimeError: broken"),
    _record("byol", 0.3, 1, None, "stopped"),
    _record("moco", 0, 2, 64.0),
]


def test_seeds_are_gathered_beside_the_papers_numbers() -> None:
    config = _config()
    rows = comparison_rows(config, compare(config, RECORDS))
    assert [(row["method"], row["p"]) for row in rows] == [("moco", 0), ("moco", 0.3), ("byol", 0.3)]
    assert [row["accuracy"] for row in rows] == [62.0, 70.0, 50.0]
    assert [row["accuracy std"] for row in rows] == [2.0, None, None]
    # Table bg-probability, column Mixed-Rand, rows MoCov2 0.0 and 0.3, BYOL 0.3.
    assert [row["accuracy paper"] for row in rows] == [60.57, 66.72, 63.58]
    assert [(row["seeds"], row["stopped"], row["failed"]) for row in rows] == [(3, 0, 0), (1, 0, 1), (1, 1, 0)]


def test_changes_are_paired_by_seed_with_the_first_value() -> None:
    config = _config()
    numbers = {0: (60.0, 70.0), 1: (64.0, 72.0), 2: (68.0, 74.0)}
    records = [
        _record("moco", p, seed, accuracy)
        for seed in (2, 0, 1)  # in another order than the numbers they are compared with
        for p, accuracy in zip((0, 0.3), numbers[seed], strict=True)
    ]
    (row,) = change_rows(config, compare(config, [*records[::-1], _record("byol", 0.3, 0, 50.0)]))
    assert {name: row[name] for name in ("method", "p", "from", "seeds")} == {
        "method": "moco",
        "p": 0.3,
        "from": 0,
        "seeds": 3,
    }
    assert (row["accuracy"], row["accuracy std"]) == (8.0, 2.0)


def test_a_single_common_seed_is_no_spread() -> None:
    config = _config()
    assert change_rows(config, compare(config, RECORDS)) == []


def test_parameters_stand_in_the_order_of_the_sweep() -> None:
    config = _config()
    turned = TrialRecord(Trial({"p": 0.3, "method": "moco"}, 1), "finished", {"accuracy": 72.0})
    rows = comparison_rows(config, compare(config, [turned, _record("moco", 0.3, 0, 70.0)]))
    assert [list(row)[:2] for row in rows] == [["method", "p"]]
    assert rows[0]["accuracy"] == 71.0


def test_a_combination_without_a_finished_trial_keeps_its_row() -> None:
    config = _config()
    comparisons = compare(config, [_record("byol", 0.3, 0, None, "failed", "broken")])
    assert comparison_rows(config, comparisons)[0]["accuracy"] is None
    assert best(config, comparisons) is None
    assert metric_plot(config, comparisons) is None


@pytest.mark.parametrize(("mode", "values"), [("max", ("moco", 0.3)), ("min", ("byol", 0.3))])
def test_the_best_goes_by_the_mean_and_the_direction(mode: str, values: tuple[str, float]) -> None:
    config = _config(mode=mode)
    top = best(config, compare(config, RECORDS))
    assert top is not None
    assert tuple(top.values.values()) == values


def test_a_table_of_the_paper_holds_for_some_values_of_other_parameters_only() -> None:
    where = {
        "table": "loc-iter",
        "rows": ["iterations"],
        "columns": {"accuracy": "ImageNet-9"},
        "where": {"group": 64},
    }
    parameters = {
        "iterations": {"paths": ["network.num_epochs"], "grid": [1, 10]},
        "group": {"paths": ["network.batch_size"], "grid": [4, 64]},
    }
    config = _config(parameters=parameters, paper=[where])
    assert paper_numbers(config, {"iterations": 10, "group": 64}) == {"accuracy": 0.427}
    assert paper_numbers(config, {"iterations": 10, "group": 4}) == {}
    assert paper_numbers(config, {"iterations": 7, "group": 64}) == {}


def test_every_trial_has_a_row_with_its_error() -> None:
    rows = trial_rows(_config(), RECORDS)
    assert len(rows) == len(RECORDS)
    failed = rows[4]
    assert (failed["seed"], failed["status"], failed["error"]) == (1, "failed", "RuntimeError: broken")


def test_the_plot_goes_along_numbers() -> None:
    config = _config()
    comparisons = compare(config, RECORDS)
    assert plotted_parameter(config, comparisons) == "p"
    assert plotted_parameter(_config(plot="method"), comparisons) == "method"
    picture = metric_plot(config, comparisons)
    assert picture is not None
    assert picture.startswith(PNG)
    words = {"parameters": {"network.method": ["moco", "byol"]}, "paper": []}
    word_records = [TrialRecord(Trial({"network.method": "moco"}, 0), "finished", {"accuracy": 1.0})]
    assert metric_plot(_config(**words), compare(_config(**words), word_records)) is None


def test_the_plot_shows_spread_and_the_papers_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    bars: list[tuple[Any, ...]] = []
    lines: list[tuple[Any, ...]] = []
    error_bars, plot = Axes.errorbar, Axes.plot

    def spy_bars(self: Axes, x: Any, y: Any, yerr: Any = None, **options: Any) -> Any:
        bars.append((x, y, yerr, options["label"]))
        return error_bars(self, x, y, yerr=yerr, **options)

    def spy_plot(self: Axes, *points: Any, **options: Any) -> Any:
        if "label" in options:
            lines.append((*points, options["label"]))
        return plot(self, *points, **options)

    monkeypatch.setattr(Axes, "errorbar", spy_bars)
    monkeypatch.setattr(Axes, "plot", spy_plot)
    config = _config()
    metric_plot(config, compare(config, RECORDS))
    assert bars[0] == ([0, 0.3], [62.0, 70.0], [2.0, 0.0], "method = moco")
    assert bars[1] == ([0.3], [50.0], None, "method = byol")
    assert ((0, 0.3), (60.57, 66.72), "method = moco, paper") in lines
