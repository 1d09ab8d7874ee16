from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.errors import InputError
from objectaware.evaluate.px_ap import px_ap


def test_a_hand_computed_example() -> None:
    """Scores 0.9 true, 0.6 false, 0.6 true, 0.2 false, 0.1 true.

    The steps of recall are 1/3 at 0.9 (precision 1), 1/3 at 0.6 (2 of 3) and 1/3 at 0.1 (3 of 5).
    """
    scores = np.array([[0.9005, 0.6005, 0.6005, 0.2005, 0.1005]])
    truth = np.array([[True, False, True, False, True]])
    assert px_ap([scores], [truth]) == pytest.approx(100 * (1 + 2 / 3 + 3 / 5) / 3)


def test_pixels_of_all_images_are_ranked_together() -> None:
    maps = [np.array([[0.9005]]), np.array([[0.5005, 0.1005]])]
    truths = [np.array([[False]]), np.array([[True, False]])]
    assert px_ap(maps, truths) == pytest.approx(50)


def test_a_perfect_map_has_all_and_a_constant_one_the_share_of_the_foreground() -> None:
    truth = np.zeros((6, 10), dtype=bool)
    truth[:3] = True
    assert px_ap([truth.astype(np.float32)], [truth]) == 100
    assert px_ap([np.full((6, 10), 0.25)], [truth]) == pytest.approx(50)


def _brute_force(scores: np.ndarray, truth: np.ndarray) -> float:
    """wsolevaluation's curve, threshold by threshold from 2 down."""
    area, last_recall = 0.0, 0.0
    for threshold in [1.0, *np.arange(0, 1, 0.001)[::-1]]:
        chosen = scores >= threshold
        if chosen.any():
            recall = (truth & chosen).sum() / truth.sum()
            area += (truth & chosen).sum() / chosen.sum() * (recall - last_recall)
            last_recall = recall
    return 100 * area


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.floats(0.1, 0.9))
def test_it_equals_a_loop_over_the_thresholds(seed: int, share: float) -> None:
    generator = np.random.default_rng(seed)
    scores = np.rint(generator.random((7, 9)) * 255) / 255
    truth = generator.random((7, 9)) < share
    truth[0, 0] = True
    assert px_ap([scores], [truth]) == pytest.approx(_brute_force(scores, truth))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_ignored_pixels_are_as_if_they_were_not_there(seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores, truth = generator.random((6, 8)), generator.random((6, 8)) < 0.4
    ignored = generator.random((6, 8)) < 0.3
    truth[0, 0], ignored[0, 0] = True, False
    kept = ~ignored
    assert px_ap([scores], [truth], [ignored]) == px_ap([scores[kept][None]], [truth[kept][None]])


def test_wrong_arguments_are_named() -> None:
    scores, truth = np.zeros((2, 3)), np.ones((2, 3), dtype=bool)
    with pytest.raises(InputError, match="truths"):
        px_ap([scores], [truth, truth])
    with pytest.raises(InputError, match="truths"):
        px_ap([scores], [~truth])
    with pytest.raises(InputError, match="truths"):
        px_ap([scores], [truth[:1]])
    with pytest.raises(InputError, match="truths"):
        px_ap([scores, scores], [truth, truth], [truth])
    with pytest.raises(InputError, match="ignored"):
        px_ap([scores], [truth], [truth[:1]])
    with pytest.raises(InputError, match="ignored"):
        px_ap([scores], [truth], [truth.astype(np.uint8)])
    with pytest.raises(InputError, match="score_maps"):
        px_ap([scores + 2], [truth])
