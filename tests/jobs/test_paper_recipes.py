"""The recipes of the paper's trainings, each pinned to the paper's values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from objectaware.config import PretrainConfig
from objectaware.config.variants import default_names
from objectaware.paper import TABLE_LABELS, load_figures, load_table
from objectaware.recipes import override, read_recipe

RECIPES = Path(__file__).parents[2] / "jobs" / "recipes"
OPTIONS = default_names(PretrainConfig)


class Training(NamedTuple):
    """What the paper says of a training; masks are `ground_truth` or the recipe whose network finds them."""

    method: str
    backbone: str
    data: str
    policy: str = "none"
    masks: str | None = None
    mix_probability: float | None = None


TRAININGS = {
    # Contextual bias: boxes of either method are MoCo's of the same backbone (appendix B.2).
    "moco_resnet18_coco": Training("moco", "resnet18", "coco"),
    "moco_resnet18_coco_object_crop": Training("moco", "resnet18", "coco", "object_crop", "moco_resnet18_coco"),
    "moco_resnet18_coco_object_crop_ground_truth": Training("moco", "resnet18", "coco", "object_crop", "ground_truth"),
    "moco_resnet18_coco_object_crop_second": Training(
        "moco", "resnet18", "coco", "object_crop", "moco_resnet18_coco_object_crop"
    ),
    "moco_resnet50_coco": Training("moco", "resnet50", "coco"),
    "moco_resnet50_coco_object_crop": Training("moco", "resnet50", "coco", "object_crop", "moco_resnet50_coco"),
    "moco_resnet50_coco_object_crop_ground_truth": Training("moco", "resnet50", "coco", "object_crop", "ground_truth"),
    "byol_resnet18_coco": Training("byol", "resnet18", "coco"),
    "byol_resnet18_coco_object_crop": Training("byol", "resnet18", "coco", "object_crop", "moco_resnet18_coco"),
    "byol_resnet18_coco_object_crop_ground_truth": Training("byol", "resnet18", "coco", "object_crop", "ground_truth"),
    "byol_resnet18_coco_object_crop_second": Training(
        "byol", "resnet18", "coco", "object_crop", "moco_resnet18_coco_object_crop"
    ),
    "byol_resnet50_coco": Training("byol", "resnet50", "coco"),
    "byol_resnet50_coco_object_crop": Training("byol", "resnet50", "coco", "object_crop", "moco_resnet50_coco"),
    "byol_resnet50_coco_object_crop_ground_truth": Training("byol", "resnet50", "coco", "object_crop", "ground_truth"),
    "moco_resnet18_imagenet10": Training("moco", "resnet18", "imagenet10"),
    "byol_resnet18_imagenet10": Training("byol", "resnet18", "imagenet10"),
    # Background bias: each method's own masks (appendix B.3); p_mix 0.4 and 0.3 (section 3.3).
    "moco_resnet18_in9": Training("moco", "resnet18", "in9"),
    "moco_resnet18_in9_background_mixup": Training(
        "moco", "resnet18", "in9", "background_mixup", "moco_resnet18_in9", 0.4
    ),
    "moco_resnet18_in9_background_hardmix": Training(
        "moco", "resnet18", "in9", "background_hardmix", "moco_resnet18_in9", 0.4
    ),
    "moco_resnet18_in9_background_hardmix_ground_truth": Training(
        "moco", "resnet18", "in9", "background_hardmix", "ground_truth", 0.4
    ),
    "moco_resnet18_in9_mixup": Training("moco", "resnet18", "in9", "mixup"),
    "moco_resnet18_in9_cutmix": Training("moco", "resnet18", "in9", "cutmix"),
    "byol_resnet18_in9": Training("byol", "resnet18", "in9"),
    "byol_resnet18_in9_background_mixup": Training(
        "byol", "resnet18", "in9", "background_mixup", "byol_resnet18_in9", 0.3
    ),
    "byol_resnet18_in9_background_hardmix": Training(
        "byol", "resnet18", "in9", "background_hardmix", "byol_resnet18_in9", 0.3
    ),
    "byol_resnet18_in9_background_hardmix_ground_truth": Training(
        "byol", "resnet18", "in9", "background_hardmix", "ground_truth", 0.3
    ),
    "byol_resnet18_in9_mixup": Training("byol", "resnet18", "in9", "mixup"),
    "byol_resnet18_in9_cutmix": Training("byol", "resnet18", "in9", "cutmix"),
    # Localization (appendix B.1).
    "moco_resnet18_cub": Training("moco", "resnet18", "cub"),
    "moco_resnet18_flowers": Training("moco", "resnet18", "flowers"),
    "byol_resnet18_cub": Training("byol", "resnet18", "cub"),
    "byol_resnet18_flowers": Training("byol", "resnet18", "flowers"),
    "supervised_resnet18_cub": Training("supervised", "resnet18", "cub"),
    "supervised_resnet18_flowers": Training("supervised", "resnet18", "flowers"),
    "supervised_resnet18_in9": Training("supervised", "resnet18", "in9"),
}

DATA = {
    "coco": {"root": "data/COCO", "layout": "coco", "split": "train"},
    "in9": {
        "root": "data/bg_challenge",
        "layout": "backgrounds-challenge",
        "variant": "original",
        "split": "train",
    },
    "imagenet10": {
        "root": "data/imagenet/train",
        "layout": "class-folders",
        "subset": "data/lists/imagenet-10-percent.txt",
    },
    "cub": {"root": "data/CUB_200_2011", "layout": "cub", "split": "redo-train"},
    "flowers": {"root": "data/flowers102", "layout": "flowers102", "split": "redo-train"},
}


def test_there_is_a_recipe_for_every_training_and_none_besides() -> None:
    own = {path.stem for path in RECIPES.glob("*.yaml") if "base:" in path.read_text()}
    assert own == set(TRAININGS)
    assert len(TRAININGS) == 35


@pytest.mark.parametrize("name", TRAININGS)
def test_a_recipe_says_what_the_paper_says(name: str) -> None:
    fields: dict[str, Any] = read_recipe(RECIPES / f"{name}.yaml", OPTIONS)
    training = TRAININGS[name]
    policy = fields.get("policy", {"name": "none"})
    found = Training(
        str(fields["method"]["name"]),
        str(fields["backbone"]),
        training.data,
        policy["name"],
        str(policy["masks"]).removeprefix("runs/masks/") if "masks" in policy else None,
        policy.get("mix_probability"),
    )
    assert found == training
    assert fields["data"] == DATA[training.data]
    # A recipe says no more than this; all else are defaults, which the next test pins.
    assert set(fields["method"]) == {"name"}
    assert set(policy) <= {"name", "masks", "mix_probability"}
    assert set(fields) <= {*found._fields, "num_epochs", "batch_size", "execution"}


@pytest.mark.parametrize("name", TRAININGS)
def test_a_recipe_is_a_configuration_with_the_papers_values(name: str) -> None:
    config = PretrainConfig.model_validate(read_recipe(RECIPES / f"{name}.yaml"))
    training = TRAININGS[name]
    assert config.num_epochs == (2000 if training.data in ("cub", "flowers") else 800)
    assert config.batch_size == 256
    rates = {"base_learning_rate": 0.03, "final_learning_rate": 0.001, "weight_decay": 1e-4}
    assert config.optimizer.model_dump() == {"name": "sgd", "momentum": 0.9, "decays_biases": True, **rates}
    assert (config.image_size, config.min_crop_scale) == (224, 0.08)
    assert (config.color_jitter, config.grayscale_probability) == ((0.4, 0.4, 0.4, 0.1), 0.2)
    policy, method = config.policy.model_dump(), config.method.model_dump()
    assert policy.get("mix_probability") == training.mix_probability
    if training.method == "moco":
        assert (method["queue_size"], method["momentum"], method["temperature"]) == (65536, 0.999, 0.2)
    if training.method == "byol":
        assert method["momentum"] == 0.996
    if training.masks is not None and training.policy.startswith("background") and training.masks != "ground_truth":
        assert (policy["mask_field"], policy["background_threshold"]) == ("cam", 0.2)
    assert config.seed == 0
    assert config.batch_size % config.execution.num_workers == 0
    assert config.execution.num_workers == (8 if training.backbone == "resnet50" else 4)


@pytest.mark.parametrize("name", TRAININGS)
def test_masks_come_from_a_training_on_the_same_images_with_the_same_network(name: str) -> None:
    training = TRAININGS[name]
    if training.masks in (None, "ground_truth"):
        return
    source = TRAININGS[training.masks]
    assert (source.data, source.backbone) == (training.data, training.backbone)
    assert source.method == ("moco" if training.policy == "object_crop" else training.method)
    assert source.policy == ("object_crop" if name.endswith("_second") else "none")


SHOWN = [*map(load_table, TABLE_LABELS), *load_figures()]


@pytest.mark.parametrize("words", sorted({words for shown in SHOWN for words in shown.trainings}))
def test_what_a_table_or_figure_takes_is_a_recipe_with_fields_set(words: str) -> None:
    name, *overrides = words.split()
    assert name in TRAININGS
    recipe = override(read_recipe(RECIPES / f"{name}.yaml", OPTIONS), overrides, OPTIONS)
    config = PretrainConfig.model_validate(recipe)
    if overrides:
        assert config.policy.mix_probability == float(overrides[-1])


def test_every_training_is_behind_a_table_or_figure_but_for_two_that_the_text_names() -> None:
    shown = {words.split()[0] for one in SHOWN for words in one.trainings}
    assert set(TRAININGS) - shown == {"byol_resnet18_cub", "byol_resnet18_flowers"}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_seeds_of_a_table_are_set_on_the_command_line(seed: int) -> None:
    fields = override(read_recipe(RECIPES / "moco_resnet18_in9.yaml"), ["--seed", str(seed)])
    assert PretrainConfig.model_validate(fields).seed == seed
