"""The demo: the paper's idea from end to end on the embedded scenes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from objectaware.config import (
    PRESETS,
    DataConfig,
    LocalizeConfig,
    Model,
    PretrainConfig,
)
from objectaware.config.variants import default_names
from objectaware.data.scenes import build_scenes
from objectaware.errors import InputError
from objectaware.evaluate.linear import VARIANTS, mean_and_std
from objectaware.recipes import merged
from objectaware.report.demo import demo_tables, markdown_report
from objectaware.stages.linear import LinearConfig
from objectaware.stages.localization import BEST_CENTER_BOX, FULL_IMAGE, LocalizationConfig
from objectaware.stages.machine import PeakMemory
from objectaware.stages.runner import Context
from objectaware.studies.engine import Results, Step, open_study, run
from objectaware.tracking import Tracker

Variant = Literal["single-object", "multi-object"]
POLICIES: dict[str, Literal["background_mixup", "object_crop"]] = {
    "single-object": "background_mixup",
    "multi-object": "object_crop",
}
"""The policy that debiases each variant of the scenes."""
_LOCALIZATION_SIZE: dict[Variant, Fraction] = {"single-object": Fraction(4, 3), "multi-object": Fraction(5, 3)}
"""Side of the pictures for localization divided by that of the views: the setting `scenes`, and a larger one for the
smaller objects of pictures with several."""
_RETRAIN: dict[str, dict[str, Any]] = {
    # On a map of 8 × 8, soft masks reach far beyond the objects, and half of each object would be mixed away.
    "background_mixup": {"mask_field": "mask"},
    "object_crop": {},
}

_LOCALIZATION_ROWS = {
    "contracam_crf": "with",
    "contracam": "with soft",
    "without_negative_signal_removal": "without",
    "center_box": BEST_CENTER_BOX,
    "full_image": FULL_IMAGE,
}
"""The report's names of the scoring's rows."""

_PRETRAIN: dict[str, Any] = {
    "backbone": "resnet10_narrow",
    "num_epochs": 30,
    "batch_size": 64,
    "precision": "fp32",
    "optimizer": {"name": "sgd", "base_learning_rate": 0.5},
    # There are only a few hundred steps. With slow updates, keys would stay those of a random network for most of them.
    # Fast updates need a short queue, or the loss falls because new keys are distinguishable from old ones.
    "method": {"name": "moco", "momentum": 0.99, "queue_size": 512},
    # The colours of every scene are drawn at random. If views kept them, the network would separate pictures by colour
    # and learn neither shape nor texture (k-NN accuracy stayed at chance).
    "grayscale_probability": 0.95,
    "color_jitter": [0.4, 0.4, 0.4, 0.2],
    "min_crop_scale": 0.3,
    # A second computing thread would wait for the one that prepares views: 290 images/s instead of 390, on two cores.
    "execution": {"num_loader_threads": 1, "num_compute_threads": 1},
}


class DemoConfig(Model):
    """The demo's choices, made for a laptop's CPU.

    Attributes:
        variant: Scenes of one object, debiased with background mixup, or of several, debiased with object crop.
        num_train: Number of pictures to train on.
        num_val: Number of pictures to measure on, per variant.
        image_size: Side of the pictures in pixels.
        pretrain: Fields of both trainings (`PretrainConfig`).
        retrain: Additional fields of the second training.
    """

    variant: Variant = "single-object"
    num_train: int = 4000
    num_val: int = 900
    image_size: int = 96
    pretrain: dict[str, Any] = Field(default_factory=lambda: dict(_PRETRAIN))
    retrain: dict[str, Any] = Field(default_factory=dict)


def demo_trainings(config: DemoConfig) -> list[dict[str, Any]]:
    """Return the fields of both trainings (`PretrainConfig`), with stand-ins for addresses that do not exist yet.

    A command checks them, and derives the processes that it needs from them, before anything has run.
    """
    stand_ins = {"data": {"root": "scenes"}, "image_size": config.image_size}
    return [{**stand_ins, **_pretrain_fields(config, fields)} for fields in ({}, _retrain_fields(config, "masks"))]


def _pretrain_fields(config: DemoConfig, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of both trainings, overlaid with those of one of them."""
    return merged(config.pretrain, fields, default_names(PretrainConfig))


def _retrain_fields(config: DemoConfig, masks: str) -> dict[str, Any]:
    """Return the fields that only the second training has."""
    policy = POLICIES[config.variant]
    fields = {"policy": {"name": policy, "masks": masks, **_RETRAIN[policy]}}
    return merged(fields, config.retrain, default_names(PretrainConfig))


def run_demo(context: Context, config: DemoConfig, seeds: Sequence[int]) -> dict[str, Any]:
    """Run the demo for each seed, under one parent run.

    Args:
        context: Context of the stages. Its storage also takes the scenes.
        config: The demo's choices.
        seeds: Seeds of the scenes and of every stage.

    Returns:
        For one seed, the result of `_run_seed`; for several, a list of these under `seeds`, and `mean` and `std` (of
        the sample) in the same form.
    """
    name = f"demo {config.variant}, seeds {' '.join(map(str, seeds))}"
    described = {**config.model_dump(mode="json"), "seeds": list(seeds)}
    with open_study(context, "demo", name=name, dataset="scenes", config=described) as (context, parent):
        each = [_run_seed(context, config, seed) for seed in seeds]
        results = each[0]
        if len(each) > 1:
            mean, deviation = mean_and_std([{k: v for k, v in result.items() if k != "seed"} for result in each])
            results = {"seeds": each, "mean": mean, "std": deviation}
        _record(parent, results, config.variant)
    return results


def _record(parent: Tracker, results: Mapping[str, Any], variant: Variant) -> None:
    """Log the study's tables and their cells."""
    for table in demo_tables(results):
        rows = [{"row": name, **cells} for name, cells in table.rows.items()]
        parent.log_table(table.name, rows)
        for name, cells in table.rows.items():
            parent.log_metrics({f"{table.name}.{name}.{column}": value for column, value in cells.items()})
    parent.log_text("report.md", markdown_report(results, variant=variant))


def _run_seed(context: Context, config: DemoConfig, seed: int) -> dict[str, Any]:
    """Run the demo's stages for one seed.

    Returns:
        `seed`; `localization`: mIoU in [0, 1] by localizer; `background` or `object_crop`: accuracy in per cent, by
        training and test set; `seconds` (of this call, without the stages that were finished before) and
        `peak_memory_mib` of this process and its descendants.
    """
    started = time.monotonic()
    with PeakMemory() as memory:
        policy = POLICIES[config.variant]
        results = run(context, _Steps(config, _build(context, config, seed), seed).all()).results
    scores = results["localization"].values["scores"]
    accuracies = {name: dict(results[f"linear {name}"].values["accuracies"]) for name in ("baseline", policy)}
    return {
        "seed": seed,
        "localization": {name: scores[row]["miou"] for name, row in _LOCALIZATION_ROWS.items()},
        "background" if config.variant == "single-object" else "object_crop": accuracies,
        "seconds": time.monotonic() - started,
        "peak_memory_mib": memory.peak_mib,
    }


def _build(context: Context, config: DemoConfig, seed: int) -> Path:
    local = context.services.storage.local_path()
    if local is None:
        raise InputError(
            "storage",
            context.services.storage.uri,
            "is not a local folder",
            "The demo writes its pictures to one: --storage runs.",
        )
    size = f"{config.num_train}-{config.num_val}-{config.image_size}"
    root = local / "scenes" / f"{config.variant}-{size}-seed{seed}"
    context.services.progress.start(f"build scenes seed {seed}")
    build_scenes(
        root,
        variant=config.variant,
        num_train=config.num_train,
        num_val=config.num_val,
        image_size=config.image_size,
        seed=seed,
    )
    context.services.progress.finish(f"build scenes seed {seed}")
    return root


class _Steps:
    """The demo's steps on one set of scenes."""

    def __init__(self, config: DemoConfig, root: Path, seed: int) -> None:
        self._config = config
        self._root = str(root)
        self._seed = seed
        self._localization_size = int(config.image_size * _LOCALIZATION_SIZE[config.variant])

    def all(self) -> list[Step]:
        """Return all steps in their order: the network, its localizations, and the network debiased with them."""
        policy = POLICIES[self._config.variant]

        def debiased(results: Results) -> PretrainConfig:
            return self._pretrain(_retrain_fields(self._config, results["localize train"].values["masks"]))

        return [
            self._step("baseline", "pretrain", self._pretrain({}), title="pretrain baseline"),
            self._localize("localize val", "val"),
            self._localize("localize val without negative signal removal", "val", remove_negative_signals=False),
            self._localization(),
            self._localize("localize train", "train"),
            self._step(policy, "pretrain", debiased, ("localize train",), title=f"pretrain {policy}"),
            self._linear("baseline"),
            self._linear(policy),
        ]

    def _step(
        self,
        name: str,
        kind: str,
        config: Model | Callable[[Results], Model],
        inputs: tuple[str, ...] = (),
        title: str | None = None,
    ) -> Step:
        return Step(name, kind, config, inputs, title=f"{title or name} seed {self._seed}")

    def _data(self, split: Literal["train", "val"], variant: str | None = None) -> DataConfig:
        if self._config.variant == "multi-object":
            return DataConfig(root=self._root, layout="coco", split=split)
        return DataConfig(root=self._root, layout="backgrounds-challenge", split=split, variant=variant or "original")

    def _pretrain(self, fields: Mapping[str, Any]) -> PretrainConfig:
        """Train from scratch, with the same length and initial weights for every policy."""
        return PretrainConfig.model_validate(
            {
                "data": self._data("train"),
                "image_size": self._config.image_size,
                "seed": self._seed,
                **_pretrain_fields(self._config, fields),
            }
        )

    def _localize(self, name: str, split: Literal["train", "val"], *, remove_negative_signals: bool = True) -> Step:
        """Localize a split with the baseline's network."""

        def config(results: Results) -> LocalizeConfig:
            return LocalizeConfig.model_validate(
                {
                    "data": self._data(split),
                    "checkpoint": results["baseline"].values["checkpoint"],
                    "seed": self._seed,
                    **merged(PRESETS["scenes"], {"localizer": {"remove_negative_signals": remove_negative_signals}}),
                    "image_size": self._localization_size,
                }
            )

        return self._step(name, "localize", config, ("baseline",))

    def _localization(self) -> Step:
        """Score ContraCAM with and without negative signal removal on the val split, beside the baselines."""
        found = {"with": "localize val", "without": "localize val without negative signal removal"}

        def config(results: Results) -> LocalizationConfig:
            masks = {name: results[step].values["masks"] for name, step in found.items()}
            return LocalizationConfig(data=self._data("val"), masks=masks, image_size=self._localization_size)

        return self._step("localization", "localization", config, tuple(found.values()))

    def _linear(self, network: str) -> Step:
        """Evaluate a network linearly: on every background variant, or on the cropped objects."""
        if self._config.variant == "multi-object":
            train = DataConfig(root=self._root, layout="coco-crop", split="train")
            tests = {"cropped_objects": DataConfig(root=self._root, layout="coco-crop", split="val")}
        else:
            train = self._data("train")
            tests = {variant: self._data("val", variant) for variant in VARIANTS}

        def config(results: Results) -> LinearConfig:
            return LinearConfig(
                checkpoint=results[network].values["checkpoint"],
                train=train,
                tests=tests,
                image_size=self._config.image_size,
                # Objects of the scenes reach the border, and the pictures already have the network's size.
                center_crop=False,
                seed=self._seed,
            )

        return self._step(f"linear {network}", "linear", config, (network,), title=f"linear evaluation {network}")
