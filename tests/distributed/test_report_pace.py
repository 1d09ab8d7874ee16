"""A worker's report of an epoch waits until Ray Train's controller looks at it."""

from __future__ import annotations

from ray.train.v2._internal import constants

from objectaware.distributed import train


def test_epochs_do_not_wait_for_the_controller() -> None:
    """It looks every 2 s by default, by a setting that Ray must still know under the name that we set."""
    assert float(train._ENVIRONMENT[constants.HEALTH_CHECK_INTERVAL_S_ENV_VAR]) <= 0.2
    assert constants.DEFAULT_HEALTH_CHECK_INTERVAL_S >= 1
