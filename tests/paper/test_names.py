"""What the paper names in its own order is what the data sets hold."""

from __future__ import annotations

from objectaware.data.sets import backgrounds_challenge
from objectaware.data.sets.imagenet_shifts import FACTORS
from objectaware.evaluate import linear
from objectaware.paper import figures, plan


def test_the_variants_are_those_of_the_backgrounds_challenge() -> None:
    assert sorted(figures.VARIANTS) == sorted(backgrounds_challenge.VARIANTS)
    assert tuple(name for name in linear.VARIANTS if name != "no_fg") == plan.CHALLENGE_VARIANTS


def test_the_corruptions_are_those_of_imagenet_c_in_the_order_of_the_table() -> None:
    assert tuple(plan.CORRUPTIONS.values()) == linear.CORRUPTIONS


def test_the_factors_are_those_of_si_score() -> None:
    assert tuple(plan.SHIFTED["SI-Score-9"]) == FACTORS
