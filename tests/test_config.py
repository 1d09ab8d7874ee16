"""What a configuration accepts, fills in and refuses."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from objectaware.config import (
    PRESETS,
    DataConfig,
    DetectionConfig,
    LocalizeConfig,
    Localizer,
    PretrainConfig,
)
from objectaware.config.variants import default_names
from objectaware.localize.contracam import ContraCAM
from objectaware.localize.full_image import FullImage
from objectaware.localize.integrated_gradients import IntegratedGradients
from objectaware.localize.smoothgrad import SmoothGrad
from objectaware.methods.byol import BYOLConfig
from objectaware.methods.moco import MoCoConfig
from objectaware.recipes import merged
from objectaware.stages.identity import recipe, stage_identity
from objectaware.stages.linear import LinearConfig
from objectaware.stages.localization import LocalizationConfig
from objectaware.training.optimizers.sgd import SGDConfig

CLASSES = {"root": "photos", "layout": "class-folders"}


def _pretrain(**fields: object) -> PretrainConfig:
    return PretrainConfig.model_validate({"data": {"root": "photos"}, **fields})


def test_paths_are_made_absolute_and_addresses_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ray Train's workers run in a folder of their own, where a relative path would name another place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    config = _pretrain(policy={"name": "object_crop", "masks": "~/masks"})
    assert (config.data.root, config.policy.masks) == (str(tmp_path / "photos"), "/home/somebody/masks")
    data = config.data
    assert LocalizeConfig(data=data, checkpoint="s3://bucket/run").checkpoint == "s3://bucket/run"
    assert LinearConfig(checkpoint="run", train=data, tests={}).checkpoint == str(tmp_path / "run")
    measured = data.model_copy(update={"layout": "coco", "split": "val"})
    assert LocalizationConfig(data=measured, masks={"with": "masks"}).masks == {"with": str(tmp_path / "masks")}


def test_defaults_are_the_papers() -> None:
    config = _pretrain()
    assert config.method == MoCoConfig(queue_size=65536, momentum=0.999, temperature=0.2)
    assert config.optimizer == SGDConfig(
        base_learning_rate=0.03, final_learning_rate=0.001, weight_decay=1e-4, momentum=0.9, decays_biases=True
    )
    assert (config.num_epochs, config.batch_size, config.min_crop_scale) == (800, 256, 0.08)
    assert config.color_jitter == (0.4, 0.4, 0.4, 0.1)
    assert _pretrain(method="byol").method == BYOLConfig(momentum=0.996)
    assert config.policy.name == "none"


def test_no_option_that_the_papers_code_lacks_is_on_by_default() -> None:
    config = _pretrain()
    assert (config.optimizer.name, config.learning_rate_schedule) == ("sgd", "cosine_epoch")
    assert (config.method.momentum_schedule, config.method.num_batch_norm_splits) == ("constant", 1)
    assert _pretrain(method="byol").method.momentum_schedule == "constant"
    assert (config.num_warmup_epochs, config.num_accumulation_steps, config.compile) == (0, 1, False)


def test_options_of_the_methods_own_papers_bring_their_values() -> None:
    lars = _pretrain(method="byol", optimizer="lars").optimizer
    assert (lars.base_learning_rate, lars.final_learning_rate, lars.weight_decay) == (0.2, 0.0, 1.5e-6)
    named = _pretrain(optimizer={"name": "lars", "base_learning_rate": 0.3}).optimizer
    assert (named.base_learning_rate, named.weight_decay) == (0.3, 1.5e-6)


def test_supervised_training_has_nothing_of_the_contrastive_methods() -> None:
    config = _pretrain(method="supervised", data=CLASSES)
    assert config.method.model_dump() == {"name": "supervised"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("temperature", "method.temperature"),
        ("queue_size", "method.queue_size"),
        ("momentum", "method.momentum"),
        ("momentum_schedule", "method.momentum_schedule"),
        ("batch_norm", "method.num_batch_norm_splits"),
        ("num_batch_norm_splits", "method.num_batch_norm_splits"),
        ("masks", "policy.masks"),
        ("mask_field", "policy.mask_field"),
        ("mix_probability", "policy.mix_probability"),
        ("background_threshold", "policy.background_threshold"),
        ("compat", "policy.compat"),
        ("base_learning_rate", "optimizer.base_learning_rate"),
        ("final_learning_rate", "optimizer.final_learning_rate"),
        ("weight_decay", "optimizer.weight_decay"),
        ("sgd_momentum", "optimizer.momentum"),
        ("trust_coefficient", "optimizer.trust_coefficient"),
    ],
)
def test_a_field_beside_its_option_is_refused_with_the_place_that_it_has_now(old: str, new: str) -> None:
    with pytest.raises(ValidationError, match=rf"\n{old}\n  is named {new}: write "):
        _pretrain(**{old: 1})


@pytest.mark.parametrize(("method", "probability"), [("moco", 0.4), ("byol", 0.3)])
def test_mix_probability_is_the_papers_of_each_method(method: str, probability: float) -> None:
    config = _pretrain(method=method, policy={"name": "background_mixup", "masks": "runs/masks"})
    assert config.policy.mix_probability == probability
    assert config.policy.background_threshold == 0.2
    assert config.policy.mask_field == "cam"


@pytest.mark.parametrize("policy", ["background_mixup", "background_hardmix"])
def test_the_official_mix_probability_is_one_for_both_methods(policy: str) -> None:
    config = _pretrain(method="byol", policy={"name": policy, "masks": "runs/masks", "compat": "official"})
    assert (config.policy.mix_probability, config.policy.background_threshold) == (0.4, 0.2)


def test_ground_truth_is_no_path_and_has_no_threshold() -> None:
    data = {"root": "photos", "layout": "backgrounds-challenge", "split": "train"}
    config = _pretrain(data=data, policy={"name": "background_hardmix", "masks": "ground_truth"})
    policy = config.policy
    assert policy.masks == "ground_truth"
    assert (policy.mix_probability, policy.background_threshold, policy.mask_field) == (0.4, None, None)
    assert PretrainConfig.model_validate(config.model_dump(mode="json")) == config
    assert _pretrain(policy={"name": "object_crop", "masks": "./ground_truth"}).policy.masks != "ground_truth"


_COCO = {"root": "photos", "layout": "coco", "split": "train"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"policy": "object_crop"}, r"policy\.masks\n  Field required"),
        ({"policy": {"name": "mixup", "masks": "m"}}, r"policy\.masks\n  Extra inputs"),
        ({"policy": "cutmix", "mix_probability": 0.4}, "is named policy.mix_probability"),
        ({"policy": {"compat": "official"}}, r"policy\.compat\n  Extra inputs"),
        ({"policy": {"name": "object_crop", "masks": "m", "compat": "official"}}, r"policy\.compat\n  Extra inputs"),
        ({"policy": "mixup", "batch_size": 6, "execution": {"num_workers": 2}}, "in pairs"),
        ({"data": _COCO, "policy": {"name": "background_mixup", "masks": "ground_truth"}}, "masks are soft"),
        (
            {"policy": {"name": "object_crop", "masks": "ground_truth"}},
            "needs data.layout coco, or a pack of it, not folder",
        ),
        (
            {
                "data": _COCO,
                "policy": {"name": "background_hardmix", "masks": "ground_truth", "background_threshold": 0.2},
            },
            "background_threshold has no meaning with masks = ground_truth",
        ),
    ],
)
def test_fields_that_a_policy_does_not_have_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _pretrain(**fields)


@pytest.mark.parametrize(
    ("execution", "problem"),
    [
        ({"num_workers": 4, "min_workers": 2}, r"batch_size = 256 is not a multiple of 3 workers .*256 = 85 · 3 \+ 1"),
        ({"num_workers": 2, "min_workers": 2}, r"min_workers = 2 is not less than num_workers = 2"),
    ],
)
def test_worker_counts_that_would_change_the_batch_are_refused_with_the_arithmetic(
    execution: dict[str, int], problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        _pretrain(execution=execution)
    elastic = _pretrain(batch_size=192, execution={"num_workers": 4, "min_workers": 1}).execution
    assert list(elastic.worker_counts()) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "fields",
    [
        {"unknown": 1},
        {"method": {"name": "byol", "queue_size": 10}},
        {"policy": {"mix_probability": 0.4}},
        {"policy": "object_crop"},
        {"policy": {"masks": "runs/masks"}},
        {"batch_size": 30, "execution": {"num_workers": 4}},
        {"min_crop_scale": 0},
        {"color_jitter": [0.4, 0.4, 0.4, 0.6]},
        {"method": {"name": "byol", "num_batch_norm_splits": 8}},
        {"method": {"num_batch_norm_splits": 8}, "batch_size": 12},
        {"method": {"num_batch_norm_splits": 8}, "batch_size": 8},
        {"method": {"num_batch_norm_splits": 8}, "batch_size": 48, "execution": {"num_workers": 3}},
        {"method": {"num_batch_norm_splits": 8}, "batch_size": 32, "num_accumulation_steps": 4},
        {"num_warmup_epochs": 800},
        {"num_accumulation_steps": 3},
        {"batch_size": 4, "num_accumulation_steps": 4},
        {"batch_size": 12, "num_accumulation_steps": 3, "execution": {"num_workers": 8}},
        {"optimizer": ["lars"]},
        {"method": "supervised"},
        {"method": "supervised", "data": {"root": "photos", "layout": "coco", "split": "train"}},
        {"method": {"name": "supervised", "momentum": 0.9}, "data": CLASSES},
        {"method": {"name": "supervised", "momentum_schedule": "cosine"}, "data": CLASSES},
        {"method": {"name": "supervised", "temperature": 0.1}, "data": CLASSES},
        {"method": "supervised", "data": CLASSES, "policy": {"name": "background_mixup", "masks": "runs/masks"}},
        {"method": "supervised", "data": CLASSES, "policy": "mixup"},
    ],
)
def test_what_would_be_ignored_or_fail_later_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        _pretrain(**fields)


def test_a_stored_configuration_is_read_back_the_same() -> None:
    config = _pretrain(method="byol", policy={"name": "background_mixup", "masks": "m"}, optimizer="lars")
    assert PretrainConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    "fields",
    [
        {"layout": "coco"},
        {"split": "val"},
        {"layout": "coco", "split": "test"},
        {"layout": "coco", "split": "val", "variant": "original"},
        {"layout": "backgrounds-challenge", "split": "val", "variant": "mixed-rand"},
        {"layout": "coco", "split": "val", "classes": "imagenet-9"},
        {"layout": "coco", "split": "val", "metadata": "boxes"},
    ],
)
def test_a_data_sets_fields_fit_its_layout(fields: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        DataConfig.model_validate({"root": "photos", **fields})


def _localize(**fields: object) -> LocalizeConfig:
    return LocalizeConfig.model_validate({"data": {"root": "photos"}, **fields})


def test_localizers_defaults_are_the_papers() -> None:
    assert _localize(checkpoint="c").localizer == ContraCAM(
        num_iterations=10, expansion=2, remove_negative_signals=True, temperature=1.0
    )
    assert _localize(checkpoint="c", localizer="integrated_gradients").localizer == IntegratedGradients(
        num_gradients=10, temperature=1.0
    )
    smooth = _localize(checkpoint="c", localizer="smoothgrad")
    assert smooth.localizer == SmoothGrad(num_gradients=10, noise_level=0.15, temperature=1.0)
    assert LocalizeConfig.model_validate(smooth.model_dump(mode="json")) == smooth


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "checkpoint is missing"),
        ({"localizer": "classifier_cam", "checkpoint": "c"}, r"localizer.classifier\n +Field required"),
        ({"localizer": "center_box"}, r"localizer.side_fraction\n +Field required"),
        ({"localizer": "full_image", "checkpoint": "c"}, "checkpoint has no meaning"),
        ({"localizer": {"name": "smoothgrad", "num_iterations": 3}, "checkpoint": "c"}, "localizer.num_iterations"),
        (
            {"localizer": {"name": "integrated_gradients", "mask_color": [0, 0, 0]}, "checkpoint": "c"},
            "localizer.mask_color",
        ),
        ({"localizer": {"negatives": []}, "checkpoint": "c"}, "localizer.negatives"),
        ({"localizer": "full_image", "execution": {"record_iterations": True}}, "record_iterations has no"),
        ({"localizer": "grad_cam"}, "choose center_box | classifier_cam"),
        ({"num_iterations": 3, "checkpoint": "c"}, "is named localizer.num_iterations"),
        ({"localizer": "classifier_cam", "classifier": "k", "checkpoint": "c"}, "is named localizer.classifier"),
    ],
)
def test_settings_that_a_localizer_does_not_have_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _localize(**fields)


def test_a_preset_gives_way_to_another_localizer() -> None:
    for fields in PRESETS.values():
        config = _localize(**merged(fields, {"localizer": "full_image"}, default_names(LocalizeConfig)))
        assert config.localizer == FullImage()
        assert config.crf == fields["crf"]


def test_presets_are_the_papers() -> None:
    """Paper, common set-up: ten iterations at twice the resolution with CRF; one, as it is, soft from 0.2 on."""
    presets = {name: _localize(checkpoint="c", **fields) for name, fields in PRESETS.items()}
    crop, mixup = presets["crop"], presets["mixup"]
    assert (crop.localizer, crop.crf, crop.mask_threshold) == (ContraCAM(num_iterations=10, expansion=2), True, 0.5)
    assert (mixup.localizer, mixup.crf, mixup.mask_threshold) == (ContraCAM(num_iterations=1, expansion=1), False, 0.2)
    assert crop.group_size == 64
    assert crop.box_margin == 0.2
    assert crop.min_box_area == 0.01


# A value of each field of each localizer that is not its default.
_FIELDS: dict[str, dict[str, object]] = {
    "contracam": {
        "temperature": 0.5,
        "negatives": ["a.png"],
        "num_iterations": 3,
        "expansion": 4,
        "remove_negative_signals": False,
        "mask_color": [1, 2, 3],
        "min_change": 0.1,
        "max_share": 0.5,
    },
    "classifier_cam": {"expansion": 1, "remove_negative_signals": True},
    "integrated_gradients": {"temperature": 0.5, "negatives": ["a.png"], "num_gradients": 3},
    "smoothgrad": {"temperature": 0.5, "negatives": ["a.png"], "num_gradients": 3, "noise_level": 0.3},
    "center_box": {"side_fraction": 0.4},
    "full_image": {},
}


@pytest.mark.parametrize("name", Localizer.variants())
def test_each_field_of_each_localizer_is_part_of_the_identity(name: str) -> None:
    variant = Localizer.variants()[name]
    needed = {"classifier": "k"} if variant.needs_classifier else {}
    # The classifier is told by its content, an input.
    assert set(_FIELDS[name]) == set(variant.model_fields) - {"name", "classifier"}
    start = {"name": name, **needed, **({"side_fraction": 0.5} if name == "center_box" else {})}
    base = {} if not variant.needs_network else {"checkpoint": "c"}
    identities = {
        stage_identity("localize", 1, recipe(_localize(localizer={**start, **change}, **base)), {})
        for change in ({}, *({field: value} for field, value in _FIELDS[name].items()))
    }
    assert len(identities) == 1 + len(_FIELDS[name])


COCO = {"root": "COCO", "layout": "coco", "split": "val"}


def test_detection_s_defaults_are_moco_s() -> None:
    config = DetectionConfig.model_validate({"checkpoint": "run", "data": COCO, "test": COCO})
    assert (config.num_iterations, config.decay_iterations, config.num_warmup_iterations) == (
        180_000,
        (120_000, 160_000),
        1000,
    )
    assert (config.learning_rate, config.batch_size, config.weight_decay) == (0.02, 16, 1e-4)
    assert config.short_sides == (640, 672, 704, 736, 768, 800)
    assert (config.test_short_side, config.max_side, config.num_regions) == (800, 1333, 512)
    assert config.num_epochs == 1800


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "give either"),
        ({"checkpoint": "run", "published": "file", "data": COCO}, "give either"),
        ({"checkpoint": "run"}, "data is missing"),
        ({"published": "file", "data": COCO}, "data has no meaning"),
        ({"published": "file", "num_iterations": 5}, "num_iterations has no meaning"),
        ({"checkpoint": "run", "data": {"root": "photos"}}, "layout = folder has no boxes"),
        ({"checkpoint": "run", "data": COCO, "execution": {"num_workers": 3}}, "not a multiple"),
    ],
)
def test_detection_refuses_what_it_would_ignore_or_lacks(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        DetectionConfig.model_validate({"test": COCO, **fields})
