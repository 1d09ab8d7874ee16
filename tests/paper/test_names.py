"""What the paper names in its own order is what the data sets hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from objectaware.data.sets import backgrounds_challenge
from objectaware.data.sets.imagenet_shifts import FACTORS
from objectaware.evaluate import linear
from objectaware.paper import figures, plan
from objectaware.recipes import read_recipe
from objectaware.stages.background import BackgroundConfig, background_linear


def test_the_variants_are_those_of_the_backgrounds_challenge() -> None:
    assert sorted(figures.VARIANTS) == sorted(backgrounds_challenge.VARIANTS)
    assert tuple(name for name in linear.VARIANTS if name != "no_fg") == plan.CHALLENGE_VARIANTS


def test_the_corruptions_are_those_of_imagenet_c_in_the_order_of_the_table() -> None:
    assert tuple(plan.CORRUPTIONS.values()) == linear.CORRUPTIONS


def test_the_factors_are_those_of_si_score() -> None:
    assert tuple(plan.SHIFTED["SI-Score-9"]) == FACTORS


def test_every_command_holds_out_the_same_share_of_imagenet_9() -> None:
    """The paper's 5% (appendix B.3): `evaluate background`, `reproduce bg-main`, the recipes and the sweep."""
    background = BackgroundConfig(root="challenge", checkpoint="network")
    planned = plan.challenge(plan.training("moco_resnet18_in9")).fields
    recipes = [read_recipe(Path("jobs/recipes", f"{name}.yaml")) for name in ("linear_in9", "shift_in9")]
    sweep: Any = read_recipe(Path("sweeps/p_mix.yaml"))
    configs = [background_linear(background).model_dump(), planned, *recipes, sweep["stages"]["linear"]["fields"]]
    assert [config["holdout_fraction"] for config in configs] == [0.05] * 5
    assert backgrounds_challenge.HOLDOUT_FRACTION == 0.05
