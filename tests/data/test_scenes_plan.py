from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from objectaware.data.scenes.plan import NUM_CLASSES, PARTNERS, ScenePlan, draw_plan, random_stream

NUM_PLANS = 3600


def plans(correlation: float = 0.9, variant: str = "single-object", split: str = "train") -> list[ScenePlan]:
    return [
        draw_plan(0, split, index, variant=variant, correlation=correlation)  # type: ignore[arg-type]
        for index in range(NUM_PLANS)
    ]


def agreement(pairs: list[tuple[int, int]]) -> float:
    return float(np.mean([first == second for first, second in pairs]))


# Four standard deviations of a rate over 3,600 draws.
def tolerance(rate: float) -> float:
    return 4 * float(np.sqrt(rate * (1 - rate) / NUM_PLANS))


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 1.0])
def test_background_family_follows_class_at_the_given_rate(correlation: float) -> None:
    drawn = plans(correlation)
    assert agreement([(plan.classes[0], plan.family) for plan in drawn]) == pytest.approx(
        correlation, abs=tolerance(correlation)
    )


def test_other_families_are_equally_likely() -> None:
    offsets = Counter((plan.family - plan.classes[0]) % NUM_CLASSES for plan in plans(0.0))
    assert set(offsets) == set(range(1, NUM_CLASSES))
    assert max(offsets.values()) < 1.35 * min(offsets.values())


def test_classes_are_balanced() -> None:
    assert set(Counter(plan.classes[0] for plan in plans()).values()) == {NUM_PLANS // NUM_CLASSES}


def test_donors_of_mixed_variants_follow_the_law_of_their_class() -> None:
    drawn = plans(0.9)
    assert agreement([(plan.classes[0], plan.same_family) for plan in drawn]) == pytest.approx(0.9, abs=0.02)
    assert agreement([(plan.random_class, plan.random_family) for plan in drawn]) == pytest.approx(0.9, abs=0.02)
    following = [((plan.classes[0] + 1) % NUM_CLASSES, plan.next_family) for plan in drawn]
    assert agreement(following) == pytest.approx(0.9, abs=0.02)


def test_random_donor_says_nothing_about_the_class() -> None:
    drawn = plans(1.0)
    assert agreement([(plan.classes[0], plan.random_family) for plan in drawn]) == pytest.approx(
        1 / NUM_CLASSES, abs=tolerance(1 / NUM_CLASSES)
    )


def test_donor_of_same_class_is_another_draw_than_the_picture_itself() -> None:
    uncorrelated = plans(0.0)
    assert agreement([(plan.family, plan.same_family) for plan in uncorrelated]) == pytest.approx(1 / 8, abs=0.03)


def test_objects_of_a_multi_object_picture_go_together() -> None:
    drawn = plans(0.9, "multi-object")
    usual = [(PARTNERS[plan.classes[0]], plan.classes[1]) for plan in drawn]
    assert agreement(usual) == pytest.approx(0.9, abs=tolerance(0.9))
    counts = Counter(len(plan.classes) for plan in drawn)
    assert set(counts) == {2, 3}
    assert counts[3] / NUM_PLANS == pytest.approx(0.5, abs=tolerance(0.5))
    assert all(plan.classes[2] in plan.classes[:2] for plan in drawn if len(plan.classes) == 3)


def test_every_class_has_two_usual_companions() -> None:
    assert sorted(PARTNERS) == list(range(NUM_CLASSES))
    assert all(partner != own for own, partner in enumerate(PARTNERS))


def test_streams_differ_by_each_part_of_their_key() -> None:
    streams = [
        random_stream(0, "train", 3, "plan"),
        random_stream(1, "train", 3, "plan"),
        random_stream(0, "val", 3, "plan"),
        random_stream(0, "train", 4, "plan"),
        random_stream(0, "train", 3, "objects"),
    ]
    assert len({stream.random() for stream in streams}) == len(streams)


def test_train_and_val_are_drawn_apart() -> None:
    families = [[plan.family for plan in plans(0.0, split=split)] for split in ("train", "val")]
    assert families[0] != families[1]
