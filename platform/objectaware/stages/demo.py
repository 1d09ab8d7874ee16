"""The demo: the paper's idea end to end on the embedded scenes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from objectaware.config import (
    LOCALIZE_SETTINGS,
    DataConfig,
    LinearConfig,
    LocalizationConfig,
    LocalizeConfig,
    Model,
    PretrainConfig,
)
from objectaware.data.scenes import build_scenes
from objectaware.evaluate.background import VARIANTS
from objectaware.stages.evaluate import run_linear, run_localization
from objectaware.stages.localize import run_localize
from objectaware.stages.pretrain import run_pretrain
from objectaware.stages.runner import Context, StageResult

Variant = Literal["single-object", "multi-object"]
POLICIES: dict[str, Literal["background_mixup", "object_crop"]] = {
    "single-object": "background_mixup",
    "multi-object": "object_crop",
}
"""What each variant of the scenes is debiased with."""


class DemoConfig(Model):
    """The demo's choices, made for a laptop's CPU.

    Attributes:
        variant: Scenes of one object, debiased with background mixup, or of several, with object crop.
        num_train: Pictures to train on.
        num_val: Pictures to measure on, a variant.
        image_size: Side of the pictures in pixels.
        pretrain: Fields of both trainings.
        retrain: Further fields of the second training, by policy.
    """

    variant: Variant = "single-object"
    num_train: int = 4000
    num_val: int = 900
    image_size: int = 96
    pretrain: dict[str, Any] = Field(default_factory=dict)
    retrain: dict[str, dict[str, Any]] = Field(default_factory=dict)


def run_demo(context: Context, config: DemoConfig, *, seed: int) -> dict[str, Any]:
    """Runs the demo's stages for one seed.

    Args:
        context: What the stages share; its storage also takes the scenes.
        config: The demo's choices.
        seed: Seed of the scenes and of every stage.

    Returns:
        `localization`: mIoU in [0, 1] by localizer; `background` or `object_crop`: accuracy in per cent, by
        training and test set; `seconds`; `peak_memory_mib`.
    """
    started = time.monotonic()
    root = _build(context, config, seed)
    study = _Study(context, config, root, seed)
    baseline = study.pretrain("baseline", {})
    localization = study.localization(baseline)
    masks = study.localize(baseline, "train", "scenes", "localize train")
    policy = POLICIES[config.variant]
    debiased = study.pretrain(
        policy, {"policy": policy, "masks": masks.values["masks"], **config.retrain.get(policy, {})}
    )
    accuracies = {
        "baseline": study.linear(baseline, "baseline"),
        policy: study.linear(debiased, policy),
    }
    return {
        "localization": localization,
        "background" if config.variant == "single-object" else "object_crop": accuracies,
        "seconds": time.monotonic() - started,
        "peak_memory_mib": peak_memory_mib(),
    }


def _build(context: Context, config: DemoConfig, seed: int) -> Path:
    local = context.storage.local_path()
    assert local is not None, "the demo's scenes are written to a local folder"
    parameters = f"{config.variant}-{config.num_train}-{config.num_val}-{config.image_size}-{seed}"
    root = local / "scenes" / parameters
    context.progress.line(f"scenes: {config.num_train} pictures to train on, seed {seed} ({root})")
    build_scenes(
        root,
        variant=config.variant,
        num_train=config.num_train,
        num_val=config.num_val,
        image_size=config.image_size,
        seed=seed,
    )
    return root


class _Study:
    """The demo's stages on one set of scenes."""

    def __init__(self, context: Context, config: DemoConfig, root: Path, seed: int) -> None:
        self._context = context
        self._config = config
        self._root = str(root)
        self._seed = seed

    def _data(self, split: Literal["train", "val"], variant: str | None = None) -> DataConfig:
        if self._config.variant == "multi-object":
            return DataConfig(root=self._root, layout="coco", split=split)
        return DataConfig(
            root=self._root, layout="backgrounds-challenge", split=split, variant=variant or "original"
        )

    def pretrain(self, name: str, fields: Mapping[str, Any]) -> StageResult:
        """Trains from scratch, as long and from the same weights for every policy."""
        config = PretrainConfig.model_validate(
            {
                "data": self._data("train"),
                "image_size": self._config.image_size,
                "seed": self._seed,
                **self._config.pretrain,
                **fields,
            }
        )
        return run_pretrain(self._context, config, title=f"pretrain {name} seed {self._seed}")

    def localize(
        self, network: StageResult, split: Literal["train", "val"], setting: str, title: str, **fields: Any
    ) -> StageResult:  # noqa: ANN401 - fields of a configuration
        """Localizes a split with a network."""
        config = LocalizeConfig.model_validate(
            {
                "data": self._data(split),
                "checkpoint": network.values["checkpoint"],
                "image_size": self._config.image_size,
                "seed": self._seed,
                **LOCALIZE_SETTINGS[setting],
                **fields,
            }
        )
        return run_localize(self._context, config, title=f"{title} seed {self._seed}")

    def localization(self, network: StageResult) -> dict[str, float]:
        """Scores ContraCAM on the val split, with and without negative signal removal, beside the baselines."""
        found = self.localize(network, "val", "scenes", "localize val")
        plain = self.localize(
            network,
            "val",
            "scenes",
            "localize val without negative signal removal",
            remove_negative_signals=False,
        )
        config = LocalizationConfig(
            data=self._data("val"),
            masks={"with": found.values["masks"], "without": plain.values["masks"]},
        )
        scores = run_localization(self._context, config, title=f"localization seed {self._seed}").values[
            "mask_miou"
        ]
        return {
            "contracam_crf": scores["with"],
            "contracam": scores["with soft"],
            "without_negative_signal_removal": scores["without"],
            "center_box": scores["center_box"],
            "full_image": scores["full_image"],
        }

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
        result = run_linear(self._context, config, title=f"linear evaluation {name} seed {self._seed}")
        return dict(result.values["accuracies"])
