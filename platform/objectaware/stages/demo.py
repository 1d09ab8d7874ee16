"""The demo: the paper's idea end to end on the embedded scenes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from objectaware.config import (
    LOCALIZE_SETTINGS,
    DataConfig,
    LocalizeConfig,
    Model,
    PretrainConfig,
)
from objectaware.config.variants import default_names
from objectaware.data.scenes import build_scenes
from objectaware.errors import InputError
from objectaware.evaluate.background import VARIANTS
from objectaware.evaluate.summary import mean_and_std
from objectaware.recipes import merged
from objectaware.report.demo import demo_tables, markdown_report
from objectaware.stages.linear import LinearConfig, linear
from objectaware.stages.localization import BEST_CENTER_BOX, FULL_IMAGE, LocalizationConfig, localization
from objectaware.stages.localize import localize
from objectaware.stages.memory import PeakMemory
from objectaware.stages.pretrain import pretrain
from objectaware.stages.runner import Context, StageResult, study
from objectaware.tracking import Tracker

Variant = Literal["single-object", "multi-object"]
POLICIES: dict[str, Literal["background_mixup", "object_crop"]] = {
    "single-object": "background_mixup",
    "multi-object": "object_crop",
}
"""What each variant of the scenes is debiased with."""
_LOCALIZATION_SIZE: dict[Variant, Fraction] = {"single-object": Fraction(4, 3), "multi-object": Fraction(5, 3)}
"""Side of the pictures for localization over that of the views: setting `scenes`, and larger for the smaller objects
of pictures of several."""
_RETRAIN: dict[str, dict[str, Any]] = {
    # A map of 8 × 8 leaves soft masks that reach far over the objects, and half of an object would be mixed away.
    "background_mixup": {"mask_field": "mask"},
    "object_crop": {},
}


_PRETRAIN: dict[str, Any] = {
    "backbone": "resnet10_narrow",
    "num_epochs": 30,
    "batch_size": 64,
    "precision": "fp32",
    "optimizer": {"name": "sgd", "base_learning_rate": 0.5},
    # A few hundred steps are all there is. Keys that follow slowly would stay those of a random network for most of
    # them; keys that follow fast need a short queue, or the loss falls by telling new keys from old ones.
    "method": {"name": "moco", "momentum": 0.99, "queue_size": 512},
    # Colours of scenes are drawn anew for every picture: where views keep them, they tell pictures apart and neither
    # shape nor texture is learnt (k-NN accuracy stayed at chance).
    "grayscale_probability": 0.95,
    "color_jitter": [0.4, 0.4, 0.4, 0.2],
    "min_crop_scale": 0.3,
    # A second thread that computes would wait for the one that prepares views: 290 images/s, not 390, on two cores.
    "execution": {"num_loader_threads": 1, "num_compute_threads": 1},
}


class DemoConfig(Model):
    """The demo's choices, made for a laptop's CPU.

    Attributes:
        variant: Scenes of one object, debiased with background mixup, or of several, with object crop.
        num_train: Pictures to train on.
        num_val: Pictures to measure on, a variant.
        image_size: Side of the pictures in pixels.
        pretrain: Fields of both trainings (`PretrainConfig`).
        retrain: Further fields of the second training.
    """

    variant: Variant = "single-object"
    num_train: int = 4000
    num_val: int = 900
    image_size: int = 96
    pretrain: dict[str, Any] = Field(default_factory=lambda: dict(_PRETRAIN))
    retrain: dict[str, Any] = Field(default_factory=dict)


def demo_trainings(config: DemoConfig) -> list[dict[str, Any]]:
    """Fields of both trainings (`PretrainConfig`), with stand-ins for the addresses of what is not made yet.

    What a command checks, and takes the demand for processes from, before anything has run.
    """
    stand_ins = {"data": {"root": "scenes"}, "image_size": config.image_size}
    return [{**stand_ins, **_pretrain_fields(config, fields)} for fields in ({}, _retrain_fields(config, "masks"))]


def _pretrain_fields(config: DemoConfig, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of both trainings, and those of one of them."""
    return merged(config.pretrain, fields, default_names(PretrainConfig))


def _retrain_fields(config: DemoConfig, masks: str) -> dict[str, Any]:
    """What the second training has besides the fields of both."""
    policy = POLICIES[config.variant]
    fields = {"policy": {"name": policy, "masks": masks, **_RETRAIN[policy]}}
    return merged(fields, config.retrain, default_names(PretrainConfig))


def run_demo(context: Context, config: DemoConfig, seeds: Sequence[int]) -> dict[str, Any]:
    """Runs the demo for each seed, under one parent run.

    Args:
        context: What the stages share; its storage also takes the scenes.
        config: The demo's choices.
        seeds: Seeds of the scenes and of every stage.

    Returns:
        For one seed what `_run_seed` returns; for several a list of these under `seeds`, and `mean` and `std` (of
        the sample) in the same shape.
    """
    dumped = config.model_dump(mode="json")
    key = hashlib.sha256(json.dumps([dumped, list(seeds)]).encode()).hexdigest()[:20]
    name = f"demo {config.variant}, seeds {' '.join(map(str, seeds))}"
    logged = {**dumped, "seeds": list(seeds)}
    with study(context, "demo", name=name, key=key, dataset="scenes", config=logged) as parent:
        each = [_run_seed(context, config, seed) for seed in seeds]
        results = each[0]
        if len(each) > 1:
            mean, deviation = mean_and_std([{k: v for k, v in result.items() if k != "seed"} for result in each])
            results = {"seeds": each, "mean": mean, "std": deviation}
        _record(parent, results, config.variant)
    return results


def _record(parent: Tracker, results: Mapping[str, Any], variant: Variant) -> None:
    """Logs the study's tables and their cells."""
    for table in demo_tables(results):
        rows = [{"row": name, **cells} for name, cells in table.rows.items()]
        parent.log_table(table.name, rows)
        for name, cells in table.rows.items():
            parent.log_metrics({f"{table.name}.{name}.{column}": value for column, value in cells.items()})
    parent.log_text("report.md", markdown_report(results, variant=variant))


def _run_seed(context: Context, config: DemoConfig, seed: int) -> dict[str, Any]:
    """Runs the demo's stages for one seed.

    Returns:
        `seed`; `localization`: mIoU in [0, 1] by localizer; `background` or `object_crop`: accuracy in per cent, by
        training and test set; `seconds` (of this call: stages that were finished before take none) and
        `peak_memory_mib` of this process and all that it started.
    """
    started = time.monotonic()
    with PeakMemory() as memory:
        root = _build(context, config, seed)
        stages = _Study(context, config, root, seed)
        baseline = stages.pretrain("baseline", {})
        localization = stages.localization(baseline)
        masks = stages.localize(baseline, "train", "localize train").values["masks"]
        policy = POLICIES[config.variant]
        debiased = stages.pretrain(policy, _retrain_fields(config, masks))
        accuracies = {name: stages.linear(n, name) for name, n in (("baseline", baseline), (policy, debiased))}
    return {
        "seed": seed,
        "localization": localization,
        "background" if config.variant == "single-object" else "object_crop": accuracies,
        "seconds": time.monotonic() - started,
        "peak_memory_mib": memory.peak_mib,
    }


def _build(context: Context, config: DemoConfig, seed: int) -> Path:
    local = context.storage.local_path()
    if local is None:
        raise InputError(
            "storage",
            context.storage.uri,
            "is not a local folder",
            "The demo writes its pictures to one: --storage runs.",
        )
    size = f"{config.num_train}-{config.num_val}-{config.image_size}"
    root = local / "scenes" / f"{config.variant}-{size}-seed{seed}"
    context.progress.start(f"build scenes seed {seed}")
    build_scenes(
        root,
        variant=config.variant,
        num_train=config.num_train,
        num_val=config.num_val,
        image_size=config.image_size,
        seed=seed,
    )
    context.progress.finish(f"build scenes seed {seed}")
    return root


class _Study:
    """The demo's stages on one set of scenes."""

    def __init__(self, context: Context, config: DemoConfig, root: Path, seed: int) -> None:
        self._context = context
        self._config = config
        self._root = str(root)
        self._seed = seed
        self._localization_size = int(config.image_size * _LOCALIZATION_SIZE[config.variant])

    def _data(self, split: Literal["train", "val"], variant: str | None = None) -> DataConfig:
        if self._config.variant == "multi-object":
            return DataConfig(root=self._root, layout="coco", split=split)
        return DataConfig(root=self._root, layout="backgrounds-challenge", split=split, variant=variant or "original")

    def pretrain(self, name: str, fields: Mapping[str, Any]) -> StageResult:
        """Trains from scratch, as long and from the same weights for every policy."""
        config = PretrainConfig.model_validate(
            {
                "data": self._data("train"),
                "image_size": self._config.image_size,
                "seed": self._seed,
                **_pretrain_fields(self._config, fields),
            }
        )
        return pretrain(self._context, config, title=f"pretrain {name} seed {self._seed}")

    def localize(
        self, network: StageResult, split: Literal["train", "val"], title: str, *, remove_negative_signals: bool = True
    ) -> StageResult:
        """Localizes a split with a network."""
        config = LocalizeConfig.model_validate(
            {
                "data": self._data(split),
                "checkpoint": network.values["checkpoint"],
                "seed": self._seed,
                "remove_negative_signals": remove_negative_signals,
                **LOCALIZE_SETTINGS["scenes"],
                "image_size": self._localization_size,
            }
        )
        return localize(self._context, config, title=f"{title} seed {self._seed}")

    def localization(self, network: StageResult) -> dict[str, float]:
        """Scores ContraCAM on the val split, with and without negative signal removal, beside the baselines."""
        found = self.localize(network, "val", "localize val")
        title = "localize val without negative signal removal"
        plain = self.localize(network, "val", title, remove_negative_signals=False)
        config = LocalizationConfig(
            data=self._data("val"),
            masks={"with": found.values["masks"], "without": plain.values["masks"]},
            image_size=self._localization_size,
        )
        scores = localization(self._context, config, title=f"localization seed {self._seed}").values["scores"]
        rows = {
            "contracam_crf": "with",
            "contracam": "with soft",
            "without_negative_signal_removal": "without",
            "center_box": BEST_CENTER_BOX,
            "full_image": FULL_IMAGE,
        }
        return {name: scores[row]["miou"] for name, row in rows.items()}

    def linear(self, network: StageResult, name: str) -> dict[str, float]:
        """Linear evaluation: on every background variant, or on the cropped objects."""
        if self._config.variant == "multi-object":
            train = DataConfig(root=self._root, layout="coco-crop", split="train")
            tests = {"cropped_objects": DataConfig(root=self._root, layout="coco-crop", split="val")}
        else:
            train = self._data("train")
            tests = {variant: self._data("val", variant) for variant in VARIANTS}
        config = LinearConfig(
            checkpoint=network.values["checkpoint"],
            train=train,
            tests=tests,
            image_size=self._config.image_size,
            # Objects of the scenes reach the border, and the pictures have the network's size already.
            center_crop=False,
            seed=self._seed,
        )
        result = linear(self._context, config, title=f"linear evaluation {name} seed {self._seed}")
        return dict(result.values["accuracies"])
