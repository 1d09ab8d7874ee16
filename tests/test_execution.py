"""`execution` holds no field that changes a number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from objectaware.config import DetectionConfig, LocalizeConfig, Model, PretrainConfig
from objectaware.stages.identity import recipe, stage_identity
from objectaware.studies.sweep_config import SweepConfig

SHARED = "the work is shared out differently; the batch, the order and every draw stay the same"
ROUNDING = "the same arithmetic on the same numbers, summed in another order"
WHEN = "decides when something is written or looked at, not what it is"
SPEED = "memory, threads and processes that read, decode or wait"
REASONS = {
    "PretrainExecution": {
        "max_wait_minutes": SPEED,
        "num_workers": SHARED,
        "min_workers": SHARED,
        "use_gpu": ROUNDING,
        "num_loader_threads": SPEED,
        "decode_on": SPEED,
        "num_decoders": SPEED,
        "num_compute_threads": ROUNDING,
        "cache_mib": SPEED,
        "checkpoint_interval": WHEN,
        "checkpoint_interval_steps": WHEN,
        "checkpoint_minutes": WHEN,
        "keep_every": WHEN,
        "no_progress_minutes": SPEED,
        "evaluation_interval": WHEN + "; the last epoch is always evaluated",
        "record_every_steps": WHEN,
    },
    "DetectionExecution": {
        "max_wait_minutes": SPEED,
        "num_workers": SHARED,
        "use_gpu": ROUNDING,
        "num_loader_threads": SPEED,
        "num_compute_threads": ROUNDING,
        "checkpoint_interval": WHEN,
        "checkpoint_minutes": WHEN,
        "no_progress_minutes": SPEED,
    },
    "LocalizeExecution": {
        "max_wait_minutes": SPEED,
        "num_cam_actors": SHARED,
        "num_crf_actors": SHARED,
        "use_gpu": ROUNDING,
        "num_compute_threads": ROUNDING,
        "record_iterations": WHEN,
    },
    "EvaluateExecution": {
        "max_wait_minutes": SPEED,
        "num_workers": SHARED,
        "num_loader_threads": SPEED,
        "num_compute_threads": ROUNDING,
        "use_gpu": ROUNDING,
        "max_memory_mib": "the same minimiser, by passes over the features in place of a copy in memory",
    },
    "SweepExecution": {
        "max_concurrent": "a trial's result does not depend on it; which trials a search draws depends on which have "
        "finished, with any number of them",
    },
}
"""Why each field changes no number. A field without such a reason belongs into the recipe itself."""


def _models(base: type[Model] = Model) -> Iterator[type[Model]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def test_every_field_of_execution_changes_no_number() -> None:
    fields = {
        str(model.model_fields["execution"].annotation.__name__): set(
            model.model_fields["execution"].annotation.model_fields
        )
        for model in {*_models(), SweepConfig}
        if "execution" in model.model_fields
    }
    assert fields == {name: set(reasons) for name, reasons in REASONS.items()}


@pytest.mark.parametrize("changed", [{"precision": "bf16"}, {"compile": True}])
def test_trainings_that_differ_in_arithmetic_are_two(changed: dict[str, object]) -> None:
    fields = {"data": {"root": "photos"}}
    one, other = (PretrainConfig.model_validate({**fields, **more}) for more in ({}, changed))
    assert stage_identity("pretrain", 1, recipe(one), {}) != stage_identity("pretrain", 1, recipe(other), {})


def _detection(**more: object) -> DetectionConfig:
    coco = {"root": "d", "layout": "coco", "split": "train"}
    return DetectionConfig.model_validate({"checkpoint": "c", "data": coco, "test": coco, **more})


def test_fine_tunings_that_differ_in_precision_are_two() -> None:
    one, other = _detection(), _detection(precision="bf16")
    assert stage_identity("detection", 1, recipe(one), {}) != stage_identity("detection", 1, recipe(other), {})


def test_32_bits_are_the_default_everywhere() -> None:
    assert PretrainConfig.model_validate({"data": {"root": "photos"}}).precision == "fp32"
    assert _detection().precision == "fp32"


@pytest.mark.parametrize("value", ["auto", "fp32", "bf16"])
def test_an_older_recipes_precision_is_refused_with_its_new_name(value: str) -> None:
    with pytest.raises(ValidationError, match=r"execution\.precision changes the result and is named precision now"):
        PretrainConfig.model_validate({"data": {"root": "photos"}, "execution": {"precision": value}})
    with pytest.raises(ValidationError, match="is named precision now"):
        _detection(execution={"precision": value})
    with pytest.raises(ValidationError, match="is named compile now"):
        PretrainConfig.model_validate({"data": {"root": "photos"}, "execution": {"compile": True}})
    with pytest.raises(ValidationError, match="fp32"):
        PretrainConfig.model_validate({"data": {"root": "photos"}, "precision": "auto"})


def test_a_field_that_execution_never_had_is_unknown_as_before() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        LocalizeConfig.model_validate({"data": {"root": "p"}, "checkpoint": "c", "execution": {"precision": "bf16"}})
