"""The plans of the paper's tables: every cell is bound to a stage, and what several need is one node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from objectaware.config import PretrainConfig
from objectaware.config.variants import default_names
from objectaware.errors import InputError
from objectaware.paper import TABLE_LABELS, load_table
from objectaware.paper.nodes import Kept, Node, Planned, Published, images_of, needs, options, title
from objectaware.paper.plan import CROP, MIXUP, PUBLISHED_NAMES, TRAINING_IMAGES, plan_table, training
from objectaware.recipes import merged, read_recipe

RECIPES = Path(__file__).parents[2] / "jobs" / "recipes"


def _trainings(nodes: list[Node]) -> list[Planned]:
    return [node for node in nodes if isinstance(node, Planned) and node.kind == "pretrain"]


def _masks(node: Planned) -> Planned | None:
    """Where a training's masks come from."""
    return node.fields["policy"].get("masks")


@pytest.mark.parametrize("label", TABLE_LABELS)
def test_every_cell_has_a_value_for_each_trial(label: str) -> None:
    table, plan = load_table(label), plan_table(label)
    assert plan.seeds == tuple(range(table.num_trials))
    printed = {place for place, cell in table.cells().items() if cell is not None}
    assert set(plan.cells) == printed | {place for place in table.all_cells() if table.is_added(place)}
    for values in plan.cells.values():
        assert len(values) == table.num_trials
        assert all(value.paths and all(value.paths) for value in values)


@pytest.mark.parametrize("label", TABLE_LABELS)
def test_no_two_cells_are_the_same_number(label: str) -> None:
    values = [value for values in plan_table(label).cells.values() for value in values]
    assert len(set(values)) == len(values)


@pytest.mark.parametrize("label", TABLE_LABELS)
def test_a_table_takes_its_own_trainings_networks_and_data_sets(label: str) -> None:
    """What the table's file says that it takes, and besides it no more than where masks come from."""
    table, nodes = load_table(label), plan_table(label).nodes()
    kinds = {node: getattr(node, "kind", "kept") for node in nodes}
    measured = {one for node in nodes if kinds[node] != "localize" for one in needs(node)}
    measured |= {one for node in nodes if kinds[node] == "localization" for one in needs(node.fields["masks"]["found"])}
    named = set()
    for words in table.trainings:
        recipe, *overrides = words.split()
        probability = float(overrides[-1]) if overrides else None
        named |= {training(recipe, seed=seed, mix_probability=probability) for seed in range(table.num_trials)}
    networks = {one.training if isinstance(one, Kept) else one for one in measured}
    assert set(_trainings(list(networks))) == named
    published = {node.name for node in nodes if isinstance(node, Published)}
    assert published == set(table.published_networks)
    assert published <= set(PUBLISHED_NAMES)
    assert {images.name for node in nodes for images in images_of(node)} == set(table.datasets)


@pytest.mark.parametrize("label", TABLE_LABELS)
def test_a_node_comes_once_and_after_what_it_needs(label: str) -> None:
    nodes = plan_table(label).nodes()
    place = {node: index for index, node in enumerate(nodes)}
    assert len(place) == len(nodes)
    assert all(place[one] < place[node] for node in nodes for one in needs(node))
    assert len({title(node) for node in _trainings(nodes)}) == len(_trainings(nodes))


def test_masks_come_once_from_the_network_of_seed_0() -> None:
    nodes = plan_table("bg-main").nodes()
    mixed = [node for node in _trainings(nodes) if _masks(node) is not None]
    assert {node.fields["seed"] for node in mixed} == {0, 1, 2}
    sources = {_masks(node) for node in mixed}
    assert len(sources) == 2
    assert {source.fields["checkpoint"] for source in sources if source is not None} == {
        training("moco_resnet18_in9"),
        training("byol_resnet18_in9"),
    }


def test_stages_are_shared_between_tables() -> None:
    main, more, probability = (set(plan_table(label).nodes()) for label in ("bg-main", "bg-more-bg", "bg-probability"))
    assert len(main & more) >= 12
    first = plan_table("bg-probability").cells[("MoCov2", "0.4"), ("Original",)][0]
    assert first == plan_table("bg-main").cells[("Original",), ("MoCov2", "BG-Mixup (CAM)")][0]
    assert len(_trainings([*probability])) == 10


def test_seeds_can_be_chosen() -> None:
    plan = plan_table("multi-main", num_seeds=2)
    assert plan.seeds == (0, 1)
    assert all(len(values) == 2 for values in plan.cells.values())
    with pytest.raises(InputError, match="seeds = 0: leaves no training"):
        plan_table("multi-main", num_seeds=0)


def test_the_class_wise_table_is_a_column_of_the_main_one() -> None:
    wise = plan_table("multi-class-wise").cells[("BYOL", "GT"), ("Ship",)][0]
    whole = plan_table("multi-main").cells[("BYOL", "ResNet-50", "GT"), ("CIFAR10",)][0]
    assert wise.node == whole.node
    assert wise.paths == (("class_accuracies", "test", "ship"),)


def test_imagenet_c_is_the_mean_over_corruptions_and_severities() -> None:
    whole = plan_table("bg-domain").cells[("BYOL", "Baseline"), ("ImageNet-C-9",)][0]
    one = plan_table("bg-imagenetc").cells[("BYOL", "Baseline"), ("Blur", "Motion")][0]
    assert whole.node.kind == "linear"
    assert whole.node == one.node
    assert len(whole.paths) == 75
    assert one.paths == tuple(("accuracies", f"motion_blur-{severity}") for severity in (1, 2, 3, 4, 5))
    assert one.read({"accuracies": {f"motion_blur-{severity}": 10.0 * severity for severity in range(1, 6)}}) == 30


def test_si_score_is_of_all_pictures_and_each_factor_has_a_column_of_its_own() -> None:
    cells = plan_table("bg-more-datasets").cells
    accuracies = {"size": 50.0, "location": 20.0, "rotation": 80.0}
    numbers = {"size": 2, "location": 12, "rotation": 1}
    coverage = {name: {"num_samples": number} for name, number in numbers.items()}
    read = {
        column[0]: cells[("BYOL", "Baseline"), column][0].read({"accuracies": accuracies, "coverage": coverage})
        for column in [(f"SI-Score-9{of}",) for of in ("", ": size", ": location", ": rotation", ": mean of factors")]
    }
    # (2 · 50 + 12 · 20 + 80) / 15
    assert list(read.values()) == [28, 50, 20, 80, 50]
    assert len({cells[("BYOL", "Baseline"), (column,)][0].node for column in read}) == 1


def test_the_classifier_cam_of_loc_cam_has_a_row_of_the_published_code() -> None:
    cells = plan_table("loc-cam").cells
    paper, ours = (
        cells[("Supervised", name), ("CUB",)][0].node.fields["masks"]["found"].fields
        for name in ("Classifier CAM", "Classifier CAM, ReLU on α")
    )
    assert {**paper["localizer"], "remove_negative_signals": True} == ours["localizer"]
    assert {**paper, "localizer": None} == {**ours, "localizer": None}


def test_multi_bias_has_the_distance_of_features_of_unit_length_beside_that_of_the_paper() -> None:
    cells = plan_table("multi-bias").cells
    paper, ours = (cells[(), (f"OA-Crop (GT){end}",)][0] for end in ("", ", unit length"))
    assert paper.node == ours.node
    assert (paper.paths, ours.paths) == ((("distance",),), (("distance_normalised",),))


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*_resnet*.yaml")), ids=lambda path: path.stem)
def test_a_training_says_of_its_masks_and_p_what_its_recipe_says(path: Path) -> None:
    recipe, name = read_recipe(path, default_names(PretrainConfig)), path.stem
    if not any(f"_{data}" in name for data in TRAINING_IMAGES):
        return  # not of the paper
    node = training(name)
    policy: Any = recipe.get("policy", {})
    masks = policy.get("masks")
    source = None if masks in (None, "ground_truth") else str(masks).removeprefix("runs/masks/")
    found = _masks(node)
    assert (None if found is None else found.fields["checkpoint"].recipe) == source
    assert node.fields["policy"].get("mix_probability") == policy.get("mix_probability")
    assert _masks(training(name, seed=2)) == found, "masks are those of seed 0"
    assert node.fields["data"] in TRAINING_IMAGES.values()


def test_options_hold_the_fields_of_a_field_and_can_be_compared() -> None:
    fields: dict[str, object] = {"localizer": {"name": "contracam", "num_iterations": 3}, "crf": True}
    assert options(fields) == options(crf=True, localizer={"num_iterations": 3, "name": "contracam"})
    assert options(fields) != options(merged(fields, {"localizer": {"num_iterations": 4}}))
    assert options(fields) == fields
    assert len({CROP, MIXUP, options(CROP)}) == 2
