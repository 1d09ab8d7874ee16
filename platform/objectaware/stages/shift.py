"""Stage `shift`: linear evaluation on many test sets, with corruptions averaged over their severities."""

from __future__ import annotations

import math
from dataclasses import replace

from objectaware.evaluate.linear import shift_result
from objectaware.stages.linear import LinearConfig, linear
from objectaware.stages.registry import stage
from objectaware.stages.runner import Context, StageResult


class ShiftConfig(LinearConfig):
    """Linear evaluation on shifted test sets, with corruptions averaged over their severities."""


@stage("shift", parts=lambda config: [linear_evaluation(config)], outcome=linear.outcome)
def shift(context: Context, config: ShiftConfig, title: str | None) -> StageResult:
    """Evaluate one checkpoint on all test sets. The result is that of a linear evaluation.

    Returns:
        The values of `linear`, except that `accuracies` are those of `mean` in `objectaware.studies.shift.run_shift`.

    Raises:
        InputError: Corruptions differ in their severities.
    """
    require_table(config)
    result = linear(context, linear_evaluation(config), title=title)
    return replace(result, values={**result.values, "accuracies": shift_result(result.values["accuracies"])})


def linear_evaluation(config: ShiftConfig) -> LinearConfig:
    """Return the linear evaluation that a configuration describes."""
    return LinearConfig.model_validate({name: getattr(config, name) for name in config.model_fields_set})


def require_table(config: ShiftConfig) -> None:
    """Refuse test sets from which no table can be made, before hours of work."""
    shift_result(dict.fromkeys(config.tests, math.nan))
