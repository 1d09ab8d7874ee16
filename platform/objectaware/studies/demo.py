"""The demo: the paper's idea from end to end on the embedded scenes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from objectaware.config import PRESETS, DataConfig, LocalizeConfig, Model, PretrainConfig
from objectaware.config.variants import default_names
from objectaware.data.dataset import Dataset
from objectaware.data.folder import write_subset
from objectaware.data.scenes import build_scenes
from objectaware.errors import InputError
from objectaware.evaluate.linear import VARIANTS, mean_and_std, paired_differences
from objectaware.model import Positive, filled
from objectaware.recipes import merged
from objectaware.report.tables import best_baseline, demo_tables, markdown_report, table_records
from objectaware.stages.linear import LinearConfig
from objectaware.stages.localization import (
    BEST_CENTER_BOX,
    CENTER_MAP,
    CONTRAST_MAP,
    FULL_IMAGE,
    WITH_CRF,
    LocalizationConfig,
)
from objectaware.stages.machine import PeakMemory
from objectaware.stages.progress import Reminder
from objectaware.stages.runner import Context
from objectaware.studies.engine import Results, Step, open_study, run

Variant = Literal["single-object", "multi-object"]
PolicyName = Literal["background_mixup", "background_hardmix", "object_crop"]


class _Debiasing(NamedTuple):
    """The way in which a policy takes masks.

    Attributes:
        localization: Fields of the localization of the training pictures.
        policy: Fields of the policy.
    """

    localization: dict[str, Any]
    policy: dict[str, Any]


_POLICIES: dict[PolicyName, _Debiasing] = {
    # The paper's soft masks. On pictures of 85 pixels the network's own maps have 3 × 3 cells. Twice that comes near to
    # the 7 × 7 cells of a picture of 224 pixels.
    "background_mixup": _Debiasing(merged(PRESETS["mixup"], {"localizer": {"expansion": 2}}), {}),
    "background_hardmix": _Debiasing(PRESETS["scenes"], {"mask_field": "mask"}),
    "object_crop": _Debiasing(PRESETS["scenes"], {}),
}
"""The policies that the demo can debias with."""
_DEFAULT_POLICY: dict[Variant, PolicyName] = {"single-object": "background_mixup", "multi-object": "object_crop"}
_KINDS: dict[Variant, str] = {"single-object": "background", "multi-object": "object_crop"}
"""The name of each variant's accuracies in the results."""
_LOCALIZATION_SIZE: dict[Variant, Fraction] = {"single-object": Fraction(4, 3), "multi-object": Fraction(5, 3)}
"""Side of the pictures for localization divided by that of the views: the setting `scenes`, and a larger one for the
smaller objects of pictures with several."""

_LOCALIZERS: dict[str, dict[str, Any]] = {
    "contracam": {},
    "without_negative_signal_removal": {"localizer": {"remove_negative_signals": False}},
    "untrained": {"untrained": True},
}
"""Fields of the localizations that are scored, beside the preset `scenes` and the number of iterations."""
_BASELINES = (CENTER_MAP, BEST_CENTER_BOX, CONTRAST_MAP, FULL_IMAGE)

_PRETRAIN: dict[str, Any] = {
    "backbone": "resnet10_narrow",
    "num_epochs": 20,
    "batch_size": 64,
    "precision": "fp32",
    "optimizer": {"name": "sgd", "base_learning_rate": 0.5},
    # There are only a few hundred steps. With slow updates, keys would stay those of a random network for most of them.
    # Fast updates need a short queue, or the loss falls because new keys are distinguishable from old ones. At a
    # temperature of 0.2 the loss stayed close to chance.
    "method": {"name": "moco", "momentum": 0.9, "queue_size": 512, "temperature": 0.1},
    # Each picture has a colour of its own. If views kept it, the network would separate pictures by colour and learn
    # neither shape nor texture. The blur of 2 pixels would remove the textures of views of 64 pixels.
    "grayscale_probability": 1.0,
    "color_jitter": [0.4, 0.4, 0.0, 0.0],
    "blur_probability": 0.0,
    "min_crop_scale": 0.5,
    # A second computing thread would wait for the one that prepares views: 290 images/s instead of 390, on two cores.
    "execution": {"num_loader_threads": 1, "num_compute_threads": 1},
}


class DemoConfig(Model):
    """The demo's choices, made for a laptop's CPU.

    Attributes:
        variant: Scenes of one object, debiased with background mixup, or of several, debiased with object crop.
        policies: Policies to retrain with, one training for each; by default the variant's own.
            `background_hardmix` takes masks after the CRF, `background_mixup` the paper's soft ones.
        num_train: Number of pictures to train on.
        num_val: Number of pictures to classify, per variant.
        num_localized: Number of these whose masks are scored.
        image_size: Side of the pictures in pixels.
        num_iterations: Numbers of iterations of ContraCAM whose masks are scored.
        pretrain: Fields of all trainings (`PretrainConfig`).
        retrain: Additional fields of the trainings after the first one.
    """

    variant: Variant = "single-object"
    policies: Annotated[tuple[PolicyName, ...], Field(min_length=1)] = ()
    num_train: int = 3000
    num_val: int = 900
    num_localized: Positive = 256
    image_size: int = 64
    num_iterations: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1, 2, 5, 10)
    pretrain: dict[str, Any] = Field(default_factory=lambda: dict(_PRETRAIN))
    retrain: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _fill_policies(cls, values: object) -> object:
        """Fill in the default that depends on another field."""
        if isinstance(values, dict):
            variant: Variant = "multi-object" if values.get("variant") == "multi-object" else "single-object"
            return filled(values, {"policies": (_DEFAULT_POLICY[variant],)})
        return values

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for field in ("policies", "num_iterations"):
            values = getattr(self, field)
            if len(set(values)) < len(values):
                raise ValueError(f"{field} names one twice: {', '.join(map(str, values))}; leave one of them out")
        return self


def demo_trainings(config: DemoConfig) -> list[dict[str, Any]]:
    """Return the fields of all trainings (`PretrainConfig`), with stand-ins for addresses that do not exist yet.

    A command checks them, and derives the processes that it needs from them, before anything has run.
    """
    stand_ins = {"data": {"root": "scenes"}, "image_size": config.image_size}
    retrained = [_retrain_fields(config, policy, "masks") for policy in config.policies]
    return [{**stand_ins, **_pretrain_fields(config, fields)} for fields in ({}, *retrained)]


def _pretrain_fields(config: DemoConfig, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of all trainings, overlaid with those of one of them."""
    return merged(config.pretrain, fields, default_names(PretrainConfig))


def _retrain_fields(config: DemoConfig, policy: PolicyName, masks: str) -> dict[str, Any]:
    """Return the fields that only the training with a policy has."""
    fields = {"policy": {"name": policy, **_POLICIES[policy].policy, "masks": masks}}
    return merged(fields, config.retrain, default_names(PretrainConfig))


def run_demo(context: Context, config: DemoConfig, seeds: Sequence[int]) -> dict[str, Any]:
    """Run the demo for each seed, under one parent run.

    Args:
        context: Context of the stages. Its storage also takes the scenes.
        config: The demo's choices.
        seeds: Seeds of the scenes and of every stage.

    Returns:
        For one seed, the result of `_run_seed`; for several, a list of these under `seeds`, `mean` and `std` (of the
        sample) in the same form, and `change`: by policy and test set, the difference of the training with the policy
        from the baseline with the same seed, as `by_seed`, `mean` and `std`.
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
            parent.log_table(table.name, table_records(table.rows, table.deviations))
            for row, cells in table.rows.items():
                parent.log_metrics({f"{table.name}.{row}.{column}": value for column, value in cells.items()})
        ratios = results.get("mean", results)["ratio_to_best_baseline"]
        parent.log_metrics({f"ratio_to_best_baseline.T{count}": value for count, value in ratios.items()})
        parent.log_report(markdown_report(results, variant=config.variant))
    return results


def _changes(config: DemoConfig, each: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the differences of the debiased trainings from the baseline over the same seeds, by policy and test."""
    trainings = [result[_KINDS[config.variant]] for result in each]
    return {
        policy: {
            test: difference._asdict()
            for test, difference in paired_differences(
                [one[policy] for one in trainings], [one["baseline"] for one in trainings]
            ).items()
        }
        for policy in config.policies
    }


def _run_seed(context: Context, config: DemoConfig, seed: int) -> dict[str, Any]:
    """Run the demo's stages for one seed.

    Returns:
        `seed`; `localization`, see `_localization_results`; `ratio_to_best_baseline`: by number of iterations, mIoU of
        ContraCAM with CRF divided by that of the best baseline with CRF; `background` or `object_crop`: accuracy in
        per cent, by training and test set; `seconds` (of this call, without the stages that were finished before) and
        `peak_memory_mib` of this process and its descendants.
    """
    started = time.monotonic()
    with PeakMemory() as memory:
        results = run(context, _steps(config, *_build(context, config, seed), seed)).results
    localization = _localization_results(config, results["localization"].values["scores"])
    _, best = best_baseline(localization)
    networks = ("baseline", *config.policies)
    return {
        "seed": seed,
        "localization": localization,
        "ratio_to_best_baseline": {
            count: cells["crf"]["miou"] / best for count, cells in localization["contracam"].items()
        },
        _KINDS[config.variant]: {name: dict(results[f"linear {name}"].values["accuracies"]) for name in networks},
        "seconds": time.monotonic() - started,
        "peak_memory_mib": memory.peak_mib,
    }


def _localization_results(config: DemoConfig, scores: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Arrange the scores of masks before (`soft`) and after the CRF (`crf`).

    Returns:
        Mean IoU `miou` and the mean share of the picture that the masks cover `mask_share`, both in [0, 1]: by
        localizer and number of iterations, and under `baselines` by baseline.
    """

    def cells(soft: str, refined: str) -> dict[str, dict[str, float]]:
        rows = {"soft": scores[soft], "crf": scores[refined]}
        return {name: {measure: row[measure] for measure in ("miou", "mask_share")} for name, row in rows.items()}

    found: dict[str, Any] = {
        name: {
            str(count): cells(f"{_masks_name(name, count)} soft", _masks_name(name, count))
            for count in config.num_iterations
        }
        for name in _LOCALIZERS
    }
    return {**found, "baselines": {name: cells(name, f"{name}{WITH_CRF}") for name in _BASELINES}}


def _masks_name(localizer: str, num_iterations: int) -> str:
    """Return the name of masks in the scoring."""
    return f"{localizer} T{num_iterations}"


def _build(context: Context, config: DemoConfig, seed: int) -> tuple[str, str]:
    """Build the scenes, or use those that exist.

    Returns:
        Their folder, and the list of the pictures whose masks are scored.
    """
    storage, progress = context.services.storage, context.services.progress
    local = storage.local_path()
    if local is None:
        remedy = "The demo writes its pictures to one: --storage runs."
        raise InputError("storage", storage.uri, "is not a local folder", remedy)
    sizes: dict[str, Any] = {"num_train": config.num_train, "num_val": config.num_val, "image_size": config.image_size}
    root = local / "scenes" / f"{config.variant}-{'-'.join(map(str, sizes.values()))}-seed{seed}"
    progress.start(f"build scenes seed {seed}")
    with Reminder(progress):
        build_scenes(root, variant=config.variant, **sizes, seed=seed)
    image_ids = Dataset.of(_data(config, str(root), "val")).image_ids
    # Evenly over the list, which is ordered by class.
    places = np.linspace(0, len(image_ids) - 1, min(config.num_localized, len(image_ids))).round().astype(int)
    chosen = f"{root}-localized-{config.num_localized}.txt"
    write_subset(chosen, [image_ids[place] for place in places])
    progress.finish(f"build scenes seed {seed}")
    return str(root), chosen


def _steps(config: DemoConfig, root: str, chosen: str, seed: int) -> list[Step]:
    """Return the demo's steps on one set of scenes: the network, its masks, and the networks debiased with them.

    All trainings start from the same initial weights and have the same length.

    Args:
        config: The demo's choices.
        root: Folder of the scenes.
        chosen: List of the pictures whose masks are scored.
        seed: Seed of every stage.
    """
    localization_size = int(config.image_size * _LOCALIZATION_SIZE[config.variant])
    train = _data(config, root, "train")
    scored = _data(config, root, "val").model_copy(update={"subset": chosen})

    def training(fields: Mapping[str, Any]) -> PretrainConfig:
        own = {"data": train, "image_size": config.image_size, "seed": seed}
        return PretrainConfig.model_validate({**own, **_pretrain_fields(config, fields)})

    def localize(name: str, data: DataConfig, fields: Mapping[str, Any]) -> Step:
        def make(results: Results) -> LocalizeConfig:
            own = {"data": data, "checkpoint": results["baseline"].values["checkpoint"], "seed": seed}
            return LocalizeConfig.model_validate({**own, **fields, "image_size": localization_size})

        return Step(name, "localize", make, ("baseline",))

    def debias(policy: PolicyName) -> Iterator[Step]:
        def make(results: Results) -> PretrainConfig:
            return training(_retrain_fields(config, policy, results[masks].values["masks"]))

        masks = f"localize train for {policy}"
        yield localize(masks, train, _POLICIES[policy].localization)
        yield Step(policy, "pretrain", make, (masks,), f"pretrain {policy}")

    def score(results: Results) -> LocalizationConfig:
        masks = {name: results[step.name].values["masks"] for name, step in localized.items()}
        return LocalizationConfig(data=scored, masks=masks, image_size=localization_size)

    def linear(network: str) -> Step:
        def make(results: Results) -> LinearConfig:
            # Objects of the scenes reach the border, and the pictures already have the network's size.
            own = {"image_size": config.image_size, "center_crop": False, "seed": seed}
            checkpoint = results[network].values["checkpoint"]
            return LinearConfig.model_validate({"checkpoint": checkpoint, **_classified(config, root), **own})

        return Step(f"linear {network}", "linear", make, (network,), f"linear evaluation {network}")

    localized: dict[str, Step] = {}
    for localizer, fields in _LOCALIZERS.items():
        for count in config.num_iterations:
            name, iterations = _masks_name(localizer, count), {"localizer": {"num_iterations": count}}
            fields_of_all = merged(PRESETS["scenes"], iterations)
            localized[name] = localize(f"localize val {name}", scored, merged(fields_of_all, fields))
    steps = [
        Step("baseline", "pretrain", training({}), title="pretrain baseline"),
        *localized.values(),
        Step("localization", "localization", score, tuple(step.name for step in localized.values())),
        *chain.from_iterable(map(debias, config.policies)),
        *(linear(network) for network in ("baseline", *config.policies)),
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
