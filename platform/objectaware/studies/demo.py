"""The demo: the paper's idea from end to end on the embedded scenes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field

from objectaware.config import PRESETS, DataConfig, LocalizeConfig, Model, PretrainConfig
from objectaware.config.variants import default_names
from objectaware.data.scenes import build_scenes
from objectaware.errors import InputError
from objectaware.evaluate.linear import VARIANTS, mean_and_std, paired_difference
from objectaware.recipes import merged
from objectaware.report.tables import demo_tables, markdown_report
from objectaware.stages.linear import LinearConfig
from objectaware.stages.localization import BEST_CENTER_BOX, FULL_IMAGE, LocalizationConfig
from objectaware.stages.machine import PeakMemory
from objectaware.stages.runner import Context
from objectaware.studies.engine import Results, Step, open_study, run

Variant = Literal["single-object", "multi-object"]
_POLICIES: dict[Variant, dict[str, Any]] = {
    # On a map of 8 × 8, soft masks reach far beyond the objects, and half of each object would be mixed away.
    "single-object": {"name": "background_mixup", "mask_field": "mask"},
    "multi-object": {"name": "object_crop"},
}
"""The policy that debiases each variant of the scenes."""
_KINDS: dict[Variant, str] = {"single-object": "background", "multi-object": "object_crop"}
"""The name of each variant's accuracies in the results."""
_LOCALIZATION_SIZE: dict[Variant, Fraction] = {"single-object": Fraction(4, 3), "multi-object": Fraction(5, 3)}
"""Side of the pictures for localization divided by that of the views: the setting `scenes`, and a larger one for the
smaller objects of pictures with several."""

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
    fields = {"policy": {**_POLICIES[config.variant], "masks": masks}}
    return merged(fields, config.retrain, default_names(PretrainConfig))


def run_demo(context: Context, config: DemoConfig, seeds: Sequence[int]) -> dict[str, Any]:
    """Run the demo for each seed, under one parent run.

    Args:
        context: Context of the stages. Its storage also takes the scenes.
        config: The demo's choices.
        seeds: Seeds of the scenes and of every stage.

    Returns:
        For one seed, the result of `_run_seed`; for several, a list of these under `seeds`, `mean` and `std` (of the
        sample) in the same form, and `change`: by test set, the difference of the debiased training from the baseline
        with the same seed, as `by_seed`, `mean` and `std`.
    """
    name = f"demo {config.variant}, seeds {' '.join(map(str, seeds))}"
    described = {**config.model_dump(mode="json"), "seeds": list(seeds)}
    with open_study(context, "demo", name=name, dataset="scenes", config=described) as (context, parent):
        each = [_run_seed(context, config, seed) for seed in seeds]
        results = each[0]
        if len(each) > 1:
            mean, deviation = mean_and_std([{k: v for k, v in result.items() if k != "seed"} for result in each])
            results = {"seeds": each, "mean": mean, "std": deviation, "change": _changes(config, each)}
        for table in demo_tables(results):
            spread = {
                row: {f"{column} std": value for column, value in cells.items()}
                for row, cells in (table.deviations or {}).items()
            }
            rows = [{"row": row, **cells, **spread.get(row, {})} for row, cells in table.rows.items()]
            parent.log_table(table.name, rows)
            for row, cells in table.rows.items():
                parent.log_metrics({f"{table.name}.{row}.{column}": value for column, value in cells.items()})
        parent.log_text("report.md", markdown_report(results, variant=config.variant))
    return results


def _changes(config: DemoConfig, each: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the difference of the debiased training from the baseline over the same seeds, by test set."""
    kind, debiased = _KINDS[config.variant], _POLICIES[config.variant]["name"]
    trainings = [result[kind] for result in each]
    return {
        test: paired_difference(
            [one[debiased][test] for one in trainings], [one["baseline"][test] for one in trainings]
        )._asdict()
        for test in trainings[0]["baseline"]
    }


def _run_seed(context: Context, config: DemoConfig, seed: int) -> dict[str, Any]:
    """Run the demo's stages for one seed.

    Returns:
        `seed`; `localization`: mIoU in [0, 1] by localizer; `background` or `object_crop`: accuracy in per cent, by
        training and test set; `seconds` (of this call, without the stages that were finished before) and
        `peak_memory_mib` of this process and its descendants.
    """
    started = time.monotonic()
    with PeakMemory() as memory:
        results = run(context, _steps(config, _build(context, config, seed), seed)).results
    scores = results["localization"].values["scores"]
    networks = ("baseline", _POLICIES[config.variant]["name"])
    return {
        "seed": seed,
        "localization": {name: scores[row]["miou"] for name, row in _LOCALIZATION_ROWS.items()},
        _KINDS[config.variant]: {name: dict(results[f"linear {name}"].values["accuracies"]) for name in networks},
        "seconds": time.monotonic() - started,
        "peak_memory_mib": memory.peak_mib,
    }


def _build(context: Context, config: DemoConfig, seed: int) -> str:
    """Build the scenes, or use those that exist, and return their folder."""
    storage, progress = context.services.storage, context.services.progress
    local = storage.local_path()
    if local is None:
        remedy = "The demo writes its pictures to one: --storage runs."
        raise InputError("storage", storage.uri, "is not a local folder", remedy)
    sizes: dict[str, Any] = {"num_train": config.num_train, "num_val": config.num_val, "image_size": config.image_size}
    root = local / "scenes" / f"{config.variant}-{'-'.join(map(str, sizes.values()))}-seed{seed}"
    progress.start(f"build scenes seed {seed}")
    build_scenes(root, variant=config.variant, **sizes, seed=seed)
    progress.finish(f"build scenes seed {seed}")
    return str(root)


def _steps(config: DemoConfig, root: str, seed: int) -> list[Step]:
    """Return the demo's steps on one set of scenes: the network, its localizations, and the network debiased with them.

    Both trainings start from the same initial weights and have the same length.
    """
    policy = _POLICIES[config.variant]["name"]
    localization_size = int(config.image_size * _LOCALIZATION_SIZE[config.variant])
    train, val = _data(config, root, "train"), _data(config, root, "val")
    val_maps = {"with": "localize val", "without": "localize val without negative signal removal"}

    def training(fields: Mapping[str, Any]) -> PretrainConfig:
        own = {"data": train, "image_size": config.image_size, "seed": seed}
        return PretrainConfig.model_validate({**own, **_pretrain_fields(config, fields)})

    def localize(name: str, data: DataConfig, *, remove_negative_signals: bool = True) -> Step:
        def make(results: Results) -> LocalizeConfig:
            fields = merged(PRESETS["scenes"], {"localizer": {"remove_negative_signals": remove_negative_signals}})
            own = {"data": data, "checkpoint": results["baseline"].values["checkpoint"], "seed": seed}
            return LocalizeConfig.model_validate({**own, **fields, "image_size": localization_size})

        return Step(name, "localize", make, ("baseline",))

    def score(results: Results) -> LocalizationConfig:
        masks = {name: results[maps].values["masks"] for name, maps in val_maps.items()}
        # The CRF of four baselines would take some 0.06 s each per picture of 128 pixels.
        return LocalizationConfig(data=val, masks=masks, image_size=localization_size, picture_baselines=False)

    def debiased(results: Results) -> PretrainConfig:
        return training(_retrain_fields(config, results["localize train"].values["masks"]))

    def linear(network: str) -> Step:
        def make(results: Results) -> LinearConfig:
            # Objects of the scenes reach the border, and the pictures already have the network's size.
            own = {"image_size": config.image_size, "center_crop": False, "seed": seed}
            checkpoint = results[network].values["checkpoint"]
            return LinearConfig.model_validate({"checkpoint": checkpoint, **_classified(config, root), **own})

        return Step(f"linear {network}", "linear", make, (network,), f"linear evaluation {network}")

    steps = [
        Step("baseline", "pretrain", training({}), title="pretrain baseline"),
        localize(val_maps["with"], val),
        localize(val_maps["without"], val, remove_negative_signals=False),
        Step("localization", "localization", score, tuple(val_maps.values())),
        localize("localize train", train),
        Step(policy, "pretrain", debiased, ("localize train",), f"pretrain {policy}"),
        linear("baseline"),
        linear(policy),
    ]
    return [replace(step, title=f"{step.title or step.name} seed {seed}") for step in steps]


def _data(config: DemoConfig, root: str, split: Literal["train", "val"], variant: str = "original") -> DataConfig:
    if config.variant == "multi-object":
        return DataConfig(root=root, layout="coco", split=split)
    return DataConfig(root=root, layout="backgrounds-challenge", split=split, variant=variant)


def _classified(config: DemoConfig, root: str) -> dict[str, Any]:
    """Return the data of a linear evaluation: the cropped objects, or every background variant."""
    if config.variant == "multi-object":
        train, val = (DataConfig(root=root, layout="coco-crop", split=split) for split in ("train", "val"))
        return {"train": train, "tests": {"cropped_objects": val}}
    tests = {variant: _data(config, root, "val", variant) for variant in VARIANTS}
    return {"train": _data(config, root, "train"), "tests": tests}
