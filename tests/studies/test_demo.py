"""The demo over several seeds, with numbers in the place of its stages, and its steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from objectaware.config import LocalizeConfig, PretrainConfig
from objectaware.data.storage import Storage
from objectaware.stages.localization import LocalizationConfig
from objectaware.stages.runner import Context, StageResult
from objectaware.studies import demo
from objectaware.studies.demo import DemoConfig, demo_trainings, run_demo
from objectaware.tracking import Tracker

CELLS = {name: {"miou": 0.5, "mask_share": 0.25} for name in ("soft", "crf")}


@pytest.mark.parametrize(
    ("variant", "kind", "policies"),
    [
        ("single-object", "background", ("background_mixup", "background_hardmix")),
        ("multi-object", "object_crop", ("object_crop",)),
    ],
)
def test_the_change_is_taken_within_each_seed(
    variant: Any, kind: str, policies: tuple[Any, ...], context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    baseline, debiased = [50.0, 60.0, 70.0], [72.0, 51.0, 63.0]

    def numbers(context: Context, config: DemoConfig, seed: int) -> dict[str, Any]:
        accuracies = {"baseline": {"val": baseline[seed]}, **{name: {"val": debiased[seed]} for name in policies}}
        rows = {"contracam": {"1": CELLS}, "untrained": {"1": CELLS}, "baselines": {"center map": CELLS}}
        measured = {"localization": rows, "ratio_to_best_baseline": {"1": 1.0}, kind: accuracies}
        return {"seed": seed, **measured, "seconds": 1.0, "peak_memory_mib": 1.0}

    logged: dict[str, Any] = {}
    metrics: dict[str, float] = {}
    monkeypatch.setattr(demo, "_run_seed", numbers)
    monkeypatch.setattr(Tracker, "log_table", lambda _, name, rows: logged.update({name: rows}))
    monkeypatch.setattr(Tracker, "log_text", lambda _, path, text: logged.update({path: text}))
    monkeypatch.setattr(Tracker, "log_metrics", lambda _, values: metrics.update(values))
    config = DemoConfig(variant=variant, policies=policies)
    results = run_demo(context, config, (0, 1, 2))
    ((row,), page) = logged[kind], logged["report.md"]
    for policy in policies:
        change = results["change"][policy]["val"]
        assert change["by_seed"] == (22.0, -9.0, -7.0)
        assert (change["mean"], change["std"]) == (pytest.approx(2.0), pytest.approx(301**0.5))
        cells = (row[f"{policy} change"], row[f"{policy} change std"])
        assert cells == (pytest.approx(2.0), pytest.approx(301**0.5))
    assert json.dumps(results)
    assert page.count("| 2.0 ± 17.3 |") == 1
    assert metrics["ratio_to_best_baseline.T1"] == 1.0
    assert metrics["localization.contracam T1.CRF share"] == 0.25
    assert "change" not in run_demo(context, config, (0,))


def _configs(config: DemoConfig) -> dict[Any, Any]:
    """The configuration of each step, whose inputs are found at addresses named after them."""
    values = {"checkpoint": "network", "masks": "masks", "accuracies": {}}
    found = StageResult("identity", Storage.from_uri("nowhere"), values, None, reused=True)
    steps = demo._steps(config, "scenes", "chosen.txt", 100)
    results = {step.name: found for step in steps}
    return {step.name: step.config(results) if callable(step.config) else step.config for step in steps}


def test_masks_are_scored_at_the_papers_temperature_with_the_same_settings() -> None:
    configs = _configs(DemoConfig())
    scored = [one for name, one in configs.items() if str(name).startswith("localize val")]
    assert len(scored) == 3 * 4
    for one in scored:
        assert isinstance(one, LocalizeConfig)
        assert one.data.subset == "chosen.txt"
        assert one.localizer.model_dump()["temperature"] == 1.0
        assert one.crf
    counts = [one.localizer.model_dump()["num_iterations"] for one in scored]
    assert counts == [1, 2, 5, 10] * 3
    assert [one.localizer.model_dump()["remove_negative_signals"] for one in scored] == [True] * 4 + [False] * 4 + [
        True
    ] * 4
    assert [one.untrained for one in scored] == [False] * 8 + [True] * 4
    scoring = configs["localization"]
    assert isinstance(scoring, LocalizationConfig)
    assert (len(scoring.masks), scoring.picture_baselines, scoring.data.subset) == (12, None, "chosen.txt")


def test_background_mixup_takes_soft_masks_and_hardmix_those_after_the_crf() -> None:
    configs = _configs(DemoConfig(policies=("background_mixup", "background_hardmix")))
    soft, hard = (configs[f"localize train for {name}"] for name in ("background_mixup", "background_hardmix"))
    assert (soft.localizer.num_iterations, soft.localizer.temperature, soft.crf) == (1, 1.0, False)
    assert hard.crf
    assert soft.data.subset is None
    trainings = [configs[name] for name in ("baseline", "background_mixup", "background_hardmix")]
    assert all(isinstance(one, PretrainConfig) for one in trainings)
    assert [one.policy.name for one in trainings] == ["none", "background_mixup", "background_hardmix"]
    assert [one.policy.mask_field for one in trainings[1:]] == ["cam", "mask"]
    assert len({one.num_epochs for one in trainings}) == 1
    assert {"linear baseline", "linear background_mixup", "linear background_hardmix"} <= set(configs)


def test_each_policy_is_a_training_that_is_checked_before_anything_runs() -> None:
    named = DemoConfig(policies=("background_hardmix", "background_mixup"))
    assert [one.get("policy", {}).get("name") for one in demo_trainings(named)] == [None, *named.policies]
    assert DemoConfig(variant="multi-object").policies == ("object_crop",)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"policies": ["background_mixup", "background_mixup"]}, "names one twice"),
        ({"num_iterations": [1, 1]}, "names one twice"),
        ({"policies": []}, "at least 1 item"),
        ({"policies": ["cutmix"]}, "background_hardmix"),
    ],
)
def test_choices_that_make_no_demo_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DemoConfig.model_validate(fields)


def test_pictures_for_the_scoring_are_of_every_class(
    context: Context,
) -> None:
    config = DemoConfig(num_train=18, num_val=36, num_localized=18, image_size=32)
    _, chosen = demo._build(context, config, 100)
    names = Path(chosen).read_text().splitlines()
    assert len(names) == len(set(names)) == 18
    assert len({Path(name).parent for name in names}) == 9
