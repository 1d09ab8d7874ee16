"""The draw of the hold-out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.errors import InputError
from objectaware.evaluate.holdout import PAPER_HOLDOUT_SIZES, stratified_holdout


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    fraction=st.sampled_from([0.2, 0.5, 0.9]),
    seed=st.integers(0, 100),
)
def test_splits_each_class_by_the_share_and_empties_none(counts: list[int], fraction: float, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    expected = [min(round(fraction * count), count - 1) for count in counts]
    if not any(expected):
        with pytest.raises(InputError, match="holds out nothing"):
            stratified_holdout(labels, fraction=fraction, seed=seed)
        return
    kept, held = stratified_holdout(labels, fraction=fraction, seed=seed)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    assert list(np.bincount(labels[held], minlength=len(counts))) == expected


def test_seed_fixes_the_draw() -> None:
    labels = np.arange(40) % 2
    draws = [stratified_holdout(labels, fraction=0.2, seed=seed)[1] for seed in (3, 3, 4)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1])
def test_share_out_of_range_is_refused(fraction: float) -> None:
    with pytest.raises(InputError, match="holdout_fraction"):
        stratified_holdout(np.arange(4) % 2, fraction=fraction, seed=0)


@settings(deadline=None)
@given(counts=st.lists(st.integers(1, 12), min_size=1, max_size=5), seed=st.integers(0, 100), data=st.data())
def test_number_is_met_exactly_in_proportion(counts: list[int], seed: int, data: st.DataObject) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    most = sum(counts) - len(counts)
    size = data.draw(st.integers(1, max(most, 1)))
    if most == 0:
        with pytest.raises(InputError, match="holdout_size"):
            stratified_holdout(labels, size=size, seed=seed)
        return
    kept, held = stratified_holdout(labels, size=size, seed=seed)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    assert len(held) == size
    of_class = np.bincount(labels[held], minlength=len(counts))
    assert (of_class < counts).all()
    # No class gives more than its share, rounded up, but where another could not give its own.
    shares = size * np.array(counts) / sum(counts)
    if (np.ceil(shares) < counts).all():
        assert (np.abs(of_class - shares) < 1).all()


@pytest.mark.parametrize("size", [0, -3, 39])
def test_number_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=r"holdout_size.*1 to 38"):
        stratified_holdout(np.arange(40) % 2, size=size, seed=0)


def test_paper_holds_out_a_tenth_to_a_fifth_of_the_training_splits() -> None:
    train_sizes = {"cifar10": 50_000, "cifar100": 50_000, "cub": 5_994, "food101": 75_750, "pets": 3_680}
    for name, size in train_sizes.items():
        assert 0.1 <= round(PAPER_HOLDOUT_SIZES[name] / size, 2) <= 0.21
