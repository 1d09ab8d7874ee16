import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from objectaware.augment.randomness import counter_uniforms


def test_numbers_are_uniform() -> None:
    draws = counter_uniforms(0, 0, np.arange(20_000), 5)
    assert draws.min() >= 0
    assert draws.max() < 1
    for column in draws.T:
        counts = np.histogram(column, bins=20, range=(0, 1))[0]
        # Chi-squared with 19 degrees of freedom exceeds 44 once in a thousand draws.
        assert ((counts - 1000) ** 2 / 1000).sum() < 44
    assert np.abs(np.corrcoef(draws.T) - np.eye(5)).max() < 0.03


@given(st.integers(0, 2**31), st.integers(0, 5000), st.lists(st.integers(0, 10**7), min_size=1, max_size=20))
def test_a_sample_draws_the_same_in_any_company(seed: int, epoch: int, indices: list[int]) -> None:
    together = counter_uniforms(seed, epoch, np.array(indices), 7)
    for row, index in zip(together, indices, strict=True):
        assert np.array_equal(counter_uniforms(seed, epoch, np.array([index]), 7)[0], row)


def test_seed_epoch_sample_stream_and_draw_each_change_the_numbers() -> None:
    draws = [
        counter_uniforms(seed, epoch, np.arange(50), 4, stream=stream)
        for seed in (0, 1, 2)
        for epoch in (0, 1, 2)
        for stream in (0, 1)
    ]
    values = np.concatenate([draw.ravel() for draw in draws])
    assert len(np.unique(values)) == len(values)
