"""The demo over several seeds, with numbers in the place of its stages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from objectaware.stages.runner import Context
from objectaware.studies import demo
from objectaware.studies.demo import DemoConfig, run_demo
from objectaware.tracking import Tracker


@pytest.mark.parametrize(
    ("variant", "kind", "policy"),
    [("single-object", "background", "background_mixup"), ("multi-object", "object_crop", "object_crop")],
)
def test_the_change_is_taken_within_each_seed(
    variant: Any, kind: str, policy: str, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    baseline, debiased = [50.0, 60.0, 70.0], [72.0, 51.0, 63.0]

    def numbers(context: Context, config: DemoConfig, seed: int) -> dict[str, Any]:
        accuracies = {"baseline": {"val": baseline[seed]}, policy: {"val": debiased[seed]}}
        return {"seed": seed, "localization": {"x": 0.5}, kind: accuracies, "seconds": 1.0, "peak_memory_mib": 1.0}

    logged: dict[str, Any] = {}
    monkeypatch.setattr(demo, "_run_seed", numbers)
    monkeypatch.setattr(Tracker, "log_table", lambda _, name, rows: logged.update({name: rows}))
    monkeypatch.setattr(Tracker, "log_text", lambda _, path, text: logged.update({path: text}))
    results = run_demo(context, DemoConfig(variant=variant), (0, 1, 2))
    change = results["change"]["val"]
    assert change["by_seed"] == (22.0, -9.0, -7.0)
    assert (change["mean"], change["std"]) == (pytest.approx(2.0), pytest.approx(301**0.5))
    assert json.dumps(results)
    ((row,), page) = logged[kind], logged["report.md"]
    assert (row["change"], row["change std"]) == (pytest.approx(2.0), pytest.approx(301**0.5))
    assert "| 2.0 ± 17.3 |" in page
    assert "change" not in run_demo(context, DemoConfig(variant=variant), (0,))
