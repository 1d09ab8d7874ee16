import pytest
from torch import nn

from objectaware.detection.schedule import learning_rate_at, parameter_groups


@pytest.mark.parametrize(
    ("iteration", "expected"),
    [
        (0, 0.02 * 0.001),
        (500, 0.02 * (0.0005 + 0.5)),
        (1000, 0.02),
        (119_999, 0.02),
        (120_000, 0.002),
        (160_000, 0.0002),
        (179_999, 0.0002),
    ],
)
def test_the_paper_s_schedule(iteration: int, expected: float) -> None:
    rate = learning_rate_at(iteration, 0.02, decay_iterations=(120_000, 160_000), num_warmup_iterations=1000)
    assert rate == pytest.approx(expected)


def test_batch_norm_has_no_weight_decay() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Linear(4, 2))
    decayed, spared = parameter_groups(network, 1e-4)
    assert (decayed["weight_decay"], spared["weight_decay"]) == (1e-4, 0)
    assert {id(one) for one in spared["params"]} == {id(one) for one in network[1].parameters()}
    assert len(decayed["params"]) == 4
