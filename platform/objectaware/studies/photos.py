"""Study `photos`: the paper's idea on photographs, at a laptop's scale, against honest baselines.

It pretrains on photos of a few classes of Tiny-ImageNet, localizes held-out photos, transfers to photos of COCO, and
retrains with the masks that it found. The recipes in `jobs/recipes/tiny_imagenet` hold all settings of the stages.

Half of the held-out photos serve to choose settings, the other half to report. The study itself chooses only the size
of the centre box. `part: choosing` measures the first half. A setting that was changed by it is to be written down
before the report.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from objectaware.config import DataConfig, LocalizeConfig, Model, PretrainConfig
from objectaware.config.variants import default_names
from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder, write_subset
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.linear import mean_and_std, paired_difference, paired_differences
from objectaware.evaluate.mask_scores import is_correctly_localized
from objectaware.localize.center_box import center_box_edges
from objectaware.localize.mask_store import read_rows
from objectaware.model import Address, Fraction, Positive, Side
from objectaware.recipes import SHIPPED_RECIPES, merged, read_recipe
from objectaware.report.gallery import Look
from objectaware.report.tables import format_table, report_of, table_records
from objectaware.stages.knn import KnnConfig
from objectaware.stages.linear import LinearConfig
from objectaware.stages.localization import BEST_CENTER_BOX, LocalizationConfig, titled
from objectaware.stages.localizers import LocalizersConfig
from objectaware.stages.runner import Context, StageResult
from objectaware.studies.engine import Results, Step, open_study, run
from objectaware.tracking import Tracker

Part = Literal["choosing", "reporting"]
Scores = dict[str, dict[str, float]]

_RECIPES = SHIPPED_RECIPES / "tiny_imagenet"
_POLICIES = {"object_crop": "localize_crop", "background_mixup": "localize_mixup"}
"""The recipe of each debiased training, and that of the localization whose masks it takes."""
_STOPPED = "contracam_stopped"
_UNTRAINED = "untrained"
_CENTER_BOX = "center_box"
_HEADLINES = ("miou", "corloc")
"""Measures whose differences are reported, the first of them that a set of images has."""
_NUM_SIDES = 100


class PhotosConfig(Model):
    """The choices of the study on photographs.

    Attributes:
        data: Folder of Tiny-ImageNet (`tiny-imagenet-200`).
        coco: Folder of photos in COCO's layout with true masks, to which the trained networks are transferred. By
            default that table is left out.
        num_classes: Number of classes, drawn at random among those with true boxes.
        num_epochs: Epochs of each training. By default those of the recipe `tiny_imagenet/moco`.
        part: Half of the held-out photos that is measured. `choosing` is for changes of settings, `reporting` for
            results. COCO's `train` belongs to the first, its `val` to the second.
        num_iterations: Each T of ContraCAM that is measured.
        min_change: Smallest growth of a mask with which the iterations of the row `contracam_stopped` continue.
        max_share: Largest share of the picture that a mask of the row `contracam_stopped` covers.
        coco_size: Side in pixels at which photos of COCO are localized.
        retrains: Whether to retrain with object crop and background mixup.
        pretrain: Fields of all trainings, laid over their recipes.
        localize: Fields of all localizations, laid over their recipes.
    """

    data: Address
    coco: Address | None = None
    num_classes: Positive = 20
    num_epochs: Positive | None = None
    part: Part = "reporting"
    num_iterations: tuple[Positive, ...] = (1, 2, 5, 10)
    min_change: Fraction = 0.02
    max_share: Fraction = 0.4
    coco_size: Side = 192
    retrains: bool = True
    pretrain: dict[str, Any] = Field(default_factory=dict)
    localize: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class Photos:
    """The photos of a study.

    Attributes:
        train: Photos to train on.
        held_out: The measured half of the held-out photos.
        measured: All sets of images on which localization is measured, by name, each with the side in pixels.
        box_side: Side of the centred box that is best on the half for choosing, as a fraction of the picture's sides.
    """

    train: DataConfig
    held_out: DataConfig
    measured: Mapping[str, tuple[DataConfig, int]]
    box_side: float


def run_photos(context: Context, config: PhotosConfig, seeds: Sequence[int]) -> dict[str, Any]:
    """Run the study for each seed, under one parent run.

    Args:
        context: Context of the stages. Its storage also takes the lists of the photos.
        config: The study's choices.
        seeds: Seeds of every stage. The photos are the same for all.

    Returns:
        `localization`: by set of images, `mean` and `std` over the seeds of each measure by row (baselines have no
        `std`), `by_size` with the same for each size of the true object, and `differences`, by pair of rows, as of
        `paired_difference`; `accuracy`: by training, `mean` and `std` of `linear` and `knn` in per cent, and `change`
        of each debiased training from the baseline; `galleries`: addresses of the first seed's galleries by set of
        images; `seeds` and `part`.
    """
    described = {**config.model_dump(mode="json"), "seeds": list(seeds)}
    name = f"photos, {config.part}, seeds {' '.join(map(str, seeds))}"
    with open_study(context, "photos", name=name, dataset="tiny-imagenet", config=described) as (context, parent):
        photos = open_photos(context.services.storage, config)
        steps = [*_baseline_steps(config, photos), *(step for seed in seeds for step in _steps(config, photos, seed))]
        results = run(context, steps).results
        values = {
            "part": config.part,
            "seeds": list(seeds),
            "localization": {name: _localization(name, results, seeds) for name in photos.measured},
            "accuracy": _accuracy(trainings(config), results, seeds),
            "galleries": {name: f"{_masks(results, name, seeds[0])}/gallery.html" for name in photos.measured},
        }
        tables = {title: table_records(rows, deviations) for title, rows, deviations in _tables(values)}
        for title, records in tables.items():
            parent.log_table(title, records)
        parent.log_report(report_of(name, dict(reversed(tables.items()))))  # the accuracy first
        for name, (data, _) in photos.measured.items():
            _log_panel(parent, name, data, _masks(results, name, seeds[0]))
    return values


def trainings(config: PhotosConfig) -> list[str]:
    """Return the names of the study's trainings, the baseline first."""
    return ["moco", *(_POLICIES if config.retrains else ())]


def pretrain_config(
    config: PhotosConfig, training: str, data: DataConfig, seed: int, masks: str = ""
) -> PretrainConfig:
    """Return the configuration of one training.

    Args:
        config: The study's choices.
        training: One of `trainings`, the name of a recipe.
        data: Photos to train on.
        seed: Seed.
        masks: Address of the masks, for a training that takes some.
    """
    options = default_names(PretrainConfig)
    fields = merged(read_recipe(_RECIPES / f"{training}.yaml", options), config.pretrain, options)
    if config.num_epochs is not None:
        fields["num_epochs"] = config.num_epochs
    if masks:
        fields = merged(fields, {"policy": {"masks": masks}}, options)
    return PretrainConfig.model_validate({**fields, "data": data, "seed": seed})


def localize_fields(config: PhotosConfig, recipe: str) -> dict[str, Any]:
    """Return the fields of a localization by a recipe, without its images, its checkpoint and its seed."""
    options = default_names(LocalizeConfig)
    fields = merged(read_recipe(_RECIPES / f"{recipe}.yaml", options), config.localize, options)
    return {name: value for name, value in fields.items() if name not in ("data", "checkpoint", "seed")}


def open_photos(storage: Storage, config: PhotosConfig) -> Photos:
    """Draw the study's photos, and write their lists to the storage.

    The classes are drawn among those whose lists of boxes are there. A seeded permutation of all their held-out photos
    divides these into halves. A stage's identity holds the content of a list, not its address.

    Raises:
        InputError: There are fewer classes than the study takes.
    """
    whole = {split: DataConfig(root=config.data, layout="tiny-imagenet", split=split) for split in ("train", "val")}
    images = {split: data.open() for split, data in whole.items()}
    train = images["train"]
    assert isinstance(train, ImageFolder)
    boxed = [wnid for wnid in train.class_names if (train.root / wnid / f"{wnid}_boxes.txt").is_file()]
    if len(boxed) < config.num_classes:
        problem = f"is more than the {len(boxed)} classes with boxes in {config.data}"
        raise InputError("num_classes", config.num_classes, problem, "Give a smaller number.")
    classes = set(random.Random(0).sample(boxed, config.num_classes))

    def subset(split: str, name: str, image_ids: Sequence[str]) -> DataConfig:
        address = f"{storage.uri.rstrip('/')}/photos/{config.num_classes}-classes-{name}.txt"
        write_subset(address, image_ids)
        return whole[split].model_copy(update={"subset": DataConfig(root=config.data, subset=address).subset})

    drawn: dict[str, list[str]] = {}
    for split, one in images.items():
        assert one.labels is not None
        labels = [one.class_names[label] for label in one.labels]
        drawn[split] = [image_id for image_id, label in zip(one.image_ids, labels, strict=True) if label in classes]
    order = np.random.default_rng(0).permutation(len(drawn["val"]))
    halves = {
        name: subset("val", name, [drawn["val"][place] for place in np.sort(places)])
        for name, places in zip(("choosing", "reporting"), np.array_split(order, 2), strict=True)
    }
    measured = {"photos": (halves[config.part], int(localize_fields(config, "localize_crop")["image_size"]))}
    if config.coco is not None:
        split = "train" if config.part == "choosing" else "val"
        measured["coco"] = (DataConfig(root=config.coco, layout="coco", split=split), config.coco_size)
    truth = Dataset.of(halves["choosing"]).truth()
    box_side = best_box_side([truth.boxes(index) for index in range(len(truth))])
    return Photos(subset("train", "train", drawn["train"]), halves[config.part], measured, box_side)


def best_box_side(boxes: Sequence[NDArray[np.float64]]) -> float:
    """Return the side of the centred box with the best CorLoc, as a fraction of the picture's sides.

    Args:
        boxes: True boxes (n, 4) of each picture, relative.

    Returns:
        A hundredth of the sides or a multiple of it, the smallest of equal ones.
    """
    sides = [side / _NUM_SIDES for side in range(1, _NUM_SIDES + 1)]

    def num_correct(side: float) -> int:
        top, left, bottom, right = center_box_edges(_NUM_SIDES, _NUM_SIDES, side)
        box = np.array([left, top, right, bottom]) / _NUM_SIDES
        return sum(is_correctly_localized(box, one) for one in boxes)

    return max(sides, key=num_correct)


def localizer_rows(config: PhotosConfig) -> dict[str, dict[str, Any]]:
    """Return the rows of the table of localization that depend on the network: fields of `LocalizeConfig` by name."""
    rows: dict[str, dict[str, Any]] = {}
    for number in config.num_iterations:
        rows[f"contracam_{number}"] = {"localizer": {"num_iterations": number}}
        rows[_kept(number)] = {"localizer": {"num_iterations": number, "remove_negative_signals": False}}
    stop = {"min_change": config.min_change, "max_share": config.max_share}
    rows[_STOPPED] = {"localizer": {"num_iterations": max(config.num_iterations), **stop}}
    rows[_UNTRAINED] = {"untrained": True}
    return rows


def _kept(num_iterations: int) -> str:
    return f"contracam_{num_iterations}_without_removal"


def _baseline_steps(config: PhotosConfig, photos: Photos) -> Iterator[Step]:
    """Yield the steps that need no network, and are therefore the same for all seeds."""
    for name, (data, size) in photos.measured.items():
        fields = {**localize_fields(config, "localize_crop"), "image_size": size}
        box = {"localizer": {"name": _CENTER_BOX, "side_fraction": photos.box_side}}

        def score(results: Results, data: DataConfig = data, size: int = size) -> LocalizationConfig:
            (boxes,) = results.values()
            masks = {_CENTER_BOX: boxes.values["masks"]}
            return LocalizationConfig(data=data, masks=masks, image_size=size, picture_baselines=True)

        localized = LocalizeConfig.model_validate({"data": data, **fields, **box})
        yield Step((_CENTER_BOX, name), "localize", localized, title=f"center box, {name}")
        yield Step(("baselines", name), "localization", score, ((_CENTER_BOX, name),), f"baselines, {name}")


def _steps(config: PhotosConfig, photos: Photos, seed: int) -> Iterator[Step]:
    """Yield the steps of one seed: the baseline network, its localizations, and the networks debiased with them."""
    baseline = ("moco", seed)

    def titled_step(name: tuple[Any, ...], kind: str, make: Any, *inputs: tuple[Any, ...]) -> Step:  # noqa: ANN401
        return Step(name, kind, make, inputs, title=f"{kind} {' '.join(map(str, name[:-1]))} seed {seed}")

    yield titled_step(baseline, "pretrain", pretrain_config(config, "moco", photos.train, seed))
    for name, (data, size) in photos.measured.items():
        shared = {**localize_fields(config, "localize_crop"), "image_size": size}

        def find(results: Results, data: DataConfig = data, shared: Mapping[str, Any] = shared) -> LocalizersConfig:
            own = {"data": data, "checkpoint": _checkpoint(results, baseline), "localizers": localizer_rows(config)}
            return LocalizersConfig.model_validate({**own, "shared": shared, "picture_baselines": False, "seed": seed})

        yield titled_step(("localization", name, seed), "localizers", find, baseline)
    for policy in trainings(config)[1:]:

        def mask(results: Results, recipe: str = _POLICIES[policy]) -> LocalizeConfig:
            own = {"data": photos.train, "checkpoint": _checkpoint(results, baseline), "seed": seed}
            return LocalizeConfig.model_validate({**own, **localize_fields(config, recipe)})

        def retrain(results: Results, policy: str = policy) -> PretrainConfig:
            (masks,) = results.values()
            return pretrain_config(config, policy, photos.train, seed, masks.values["masks"])

        yield titled_step(("masks", policy, seed), "localize", mask, baseline)
        yield titled_step((policy, seed), "pretrain", retrain, ("masks", policy, seed))
    for training in trainings(config):
        for kind, model in _MEASUREMENTS.items():

            def measure(results: Results, kind: str = kind, model: type[Model] = model) -> Model:
                (trained,) = results.values()
                own = {"checkpoint": trained.values["checkpoint"], "train": photos.train, "seed": seed}
                fields = {**read_recipe(_RECIPES / f"{kind}.yaml"), **own, "tests": {"val": photos.held_out}}
                return model.model_validate({name: one for name, one in fields.items() if name in model.model_fields})

            yield titled_step((kind, training, seed), kind, measure, (training, seed))


_MEASUREMENTS: dict[str, type[Model]] = {"linear": LinearConfig, "knn": KnnConfig}
"""The measures of a network's features: each is a kind of stage and a recipe."""


def _checkpoint(results: Results, name: tuple[Any, ...]) -> str:
    return str(results[name].values["checkpoint"])


def _masks(results: Mapping[Any, StageResult], name: str, seed: int) -> str:
    """Return the address of the masks that stand for a set of images in galleries and panels."""
    return str(results["localization", name, seed].values["masks"][_STOPPED])


def _localization(name: str, results: Mapping[Any, StageResult], seeds: Sequence[int]) -> dict[str, Any]:
    """Return the scores on one set of images; see `run_photos`."""
    fixed = results["baselines", name].values
    found = [results["localization", name, seed].values for seed in seeds]
    mean, std = _over_seeds(fixed["scores"], [one["scores"] for one in found])
    by_size = {}
    for size, baselines in fixed["scores_by_size"].items():
        means, deviations = _over_seeds(baselines, [one["scores_by_size"][size] for one in found])
        by_size[size] = {"mean": means, "std": deviations}
    differences = _differences(fixed["scores"], [one["scores"] for one in found])
    return {"mean": mean, "std": std, "by_size": by_size, "differences": differences}


def _over_seeds(baselines: Scores, found: Sequence[Scores]) -> tuple[Scores, Scores]:
    """Return mean and deviation of all rows. Those of the baselines do not depend on the seed."""
    own = [{row: cells for row, cells in one.items() if row not in baselines} for one in found]
    mean, std = mean_and_std(own)
    return {**baselines, **mean}, std if len(found) > 1 else {}


def _differences(baselines: Scores, found: Sequence[Scores]) -> dict[str, dict[str, Any]]:
    """Return the difference of each row after the CRF from trivial answers and ablations, within each seed.

    Each row stands beside the centred box of its masks' own area, the best baseline (oracles apart), the same number of
    iterations without negative signal removal, and ContraCAM on the untrained network.
    """
    measure = next(one for one in _HEADLINES if all(one in row for row in baselines.values()))
    honest = {row: cells[measure] for row, cells in baselines.items() if not row.startswith(BEST_CENTER_BOX)}
    best = max(honest, key=honest.__getitem__)
    rows = [row for row in found[0] if row not in baselines and not row.endswith(" soft")]
    differences = {}
    for row in rows:
        values = [one[row][measure] for one in found]
        beside = {"same-area box": [one[row][f"same_area_{measure}"] for one in found]}
        beside[best] = [honest[best]] * len(found)
        for other in (f"{row}_without_removal", _UNTRAINED):
            if other in found[0] and other != row:
                beside[other] = [one[other][measure] for one in found]
        for other, numbers in beside.items():
            pair = paired_difference(values, numbers)._asdict()
            differences[f"{row} − {other}"] = {"measure": measure, **pair}
    return differences


def _accuracy(names: Sequence[str], results: Mapping[Any, StageResult], seeds: Sequence[int]) -> dict[str, Any]:
    """Return the accuracies of all trainings; see `run_photos`."""
    by_seed = [
        {
            name: {kind: results[kind, name, seed].values["accuracies"]["val"] for kind in _MEASUREMENTS}
            for name in names
        }
        for seed in seeds
    ]
    mean, std = mean_and_std(by_seed)
    change = {
        name: {
            kind: difference._asdict()
            for kind, difference in paired_differences(
                [one[name] for one in by_seed], [one[names[0]] for one in by_seed]
            ).items()
        }
        for name in names[1:]
    }
    return {"mean": mean, "std": std if len(seeds) > 1 else {}, "change": change}


def _log_panel(parent: Tracker, name: str, data: DataConfig, masks: str) -> None:
    """Log a panel of the first photos of a mask store, which are a seeded random sample."""
    images = data.open()
    assert isinstance(images, ImageFolder)
    look = Look(images, None)
    deque(look.watch(read_rows(Storage.from_uri(masks))), maxlen=0)
    if (panel := look.panel()) is not None:
        parent.log_png(f"{name}.png", panel)


def _tables(values: Mapping[str, Any]) -> Iterator[tuple[str, Scores, Scores]]:
    """Yield title, cells and deviations of each table of `run_photos`."""
    for name, one in values["localization"].items():
        yield f"localization {name}", titled(one["mean"]), titled(one["std"])
        for size, scores in one["by_size"].items():
            yield f"localization {name}, {size} objects", titled(scores["mean"]), titled(scores["std"])
        pairs = one["differences"]
        several = len(values["seeds"]) > 1
        rows = {row: {pair["measure"]: pair["mean"]} for row, pair in pairs.items()}
        spread = {row: {pair["measure"]: pair["std"]} for row, pair in pairs.items()} if several else {}
        yield f"differences {name}", titled(rows), titled(spread)
    accuracy = values["accuracy"]
    rows = {**accuracy["mean"]}
    spread = {**accuracy["std"]}
    for name, change in accuracy["change"].items():
        rows[f"{name} − moco"] = {kind: pair["mean"] for kind, pair in change.items()}
        if accuracy["std"]:
            spread[f"{name} − moco"] = {kind: pair["std"] for kind, pair in change.items()}
    yield "accuracy", rows, spread


def photos_tables(values: Mapping[str, Any]) -> list[str]:
    """Return the tables of `run_photos` for the terminal."""
    head = f"{values['part']} half, {len(values['seeds'])} seeds"
    return [
        format_table(f"{title.capitalize()} ({head})", rows, digits=3, deviations=deviations or None)
        for title, rows, deviations in _tables(values)
    ]
