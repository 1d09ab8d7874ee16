import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.detection.order import BatchPlan


@given(num_wide=st.integers(0, 40), num_tall=st.integers(0, 40), batch_size=st.integers(1, 9), seed=st.integers(0, 9))
@settings(deadline=None)
def test_an_epoch_takes_every_image_once_but_less_than_a_batch(
    num_wide: int, num_tall: int, batch_size: int, seed: int
) -> None:
    is_wide = np.array([True] * num_wide + [False] * num_tall)
    if len(is_wide) < batch_size:
        return
    plan = BatchPlan(is_wide, batch_size, seed=seed)
    batches = [plan.batch(iteration) for iteration in range(plan.batches_per_epoch)]
    taken = np.concatenate(batches)
    assert len(np.unique(taken)) == len(taken) == len(is_wide) // batch_size * batch_size
    # At most one batch, what is left of both, is of both shapes.
    assert sum(0 < is_wide[batch].sum() < batch_size for batch in batches) <= 1


def test_the_order_is_a_function_of_seed_and_iteration() -> None:
    is_wide = np.arange(50) % 3 > 0
    plan = BatchPlan(is_wide, 4, seed=3)
    forward = [plan.batch(iteration).tolist() for iteration in range(30)]
    again = BatchPlan(is_wide, 4, seed=3)
    assert [again.batch(iteration).tolist() for iteration in reversed(range(30))] == forward[::-1]
    assert forward[:12] != forward[12:24]  # the next epoch
    assert BatchPlan(is_wide, 4, seed=4).batch(0).tolist() != forward[0]
