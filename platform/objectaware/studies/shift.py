"""Study `shift`: the linear evaluation of one or several checkpoints on many test sets, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from objectaware.config import DataConfig
from objectaware.data.published import published_data, published_set
from objectaware.errors import InputError
from objectaware.evaluate.linear import shift_over_seeds, shift_result
from objectaware.report.tables import format_table
from objectaware.stages.features import check_sources
from objectaware.stages.runner import Context
from objectaware.stages.shift import ShiftConfig, linear_evaluation, require_table
from objectaware.studies.engine import Step, open_study, run


def published_tests(names: Sequence[str], data_folder: str) -> dict[str, DataConfig]:
    """Return the test sets of published data sets, named as `objectaware.evaluate.linear` takes them.

    Args:
        names: Names of the data sets (docs/data.md), such as `Backgrounds Challenge` or `ImageNet-C-9`.
        data_folder: Folder in which they lie under their usual names.

    Returns:
        Parts by their names if a data set has several, such as `mixed_rand` or `fog-3`. The single test part of a data
        set has the data set's name. A part `train` is left out.

    Raises:
        InputError: There is no such data set, or two of them have test sets of the same name.
    """
    tests: dict[str, DataConfig] = {}
    for name in names:
        found = published_set(name)
        parts = [part for part in found.parts if part != "train"]
        for part in parts:
            test = found.name if len(parts) == 1 else part
            if test in tests:
                problem = f"has a test set {test}, and so has another data set"
                raise InputError(
                    "sets", name, problem, "Name only one of them, and give the other in the recipe's tests."
                )
            tests[test] = published_data(name, part, data_folder)
    return tests


def run_shift(context: Context, config: ShiftConfig, checkpoints: Sequence[str]) -> dict[str, Any]:
    """Evaluate checkpoints, such as those of several seeds, on the same test sets, under one parent run.

    Args:
        context: Context of the stages.
        config: Training set, test sets and protocol. Its checkpoint is ignored.
        checkpoints: Addresses of the checkpoints, such as one per seed. A path must be absolute.

    Returns:
        `mean` and `std` over the checkpoints (`std` is 0 for one), for each test set, each corruption (mean over its
        severities), `corruption_mean` and, if both of its variants are among the sets, `bg_gap`; `accuracies`, by
        checkpoint and test set, with each severity separately; `identities`, of the linear evaluations.

    Raises:
        InputError: Corruptions differ in their severities.
    """
    require_table(config)
    one = linear_evaluation(config)
    check_sources(one, checkpoints=checkpoints)
    dumped = {**config.model_dump(mode="json"), "checkpoint": list(checkpoints)}
    root = config.train.root
    steps = [
        Step(number, "linear", one.model_copy(update={"checkpoint": checkpoint}), title=f"linear evaluation {number}")
        for number, checkpoint in enumerate(checkpoints, start=1)
    ]
    with open_study(context, "shift", name=f"shift {root}", dataset=root, config=dumped) as (context, parent):
        results = list(run(context, steps).results.values())
        accuracies = [dict(result.values["accuracies"]) for result in results]
        mean, std = shift_over_seeds(accuracies)
        parent.log_table("shift", [{"test set": name, "mean": mean[name], "std": std[name]} for name in mean])
        rows = [
            {"checkpoint": checkpoint, **shift_result(cells)}
            for checkpoint, cells in zip(checkpoints, accuracies, strict=True)
        ]
        parent.log_table("shift by checkpoint", rows)
        parent.log_metrics({f"accuracy.{name}": value for name, value in mean.items()})
        parent.log_metrics({f"accuracy_std.{name}": value for name, value in std.items()})
    return {
        "mean": mean,
        "std": std,
        "accuracies": dict(zip(checkpoints, accuracies, strict=True)),
        "identities": [result.identity for result in results],
    }


def shift_table(values: Mapping[str, Any]) -> str:
    """Return the table of `run_shift` for the terminal."""
    num_checkpoints = len(values["identities"])
    title = "Accuracy under shift" + (f", mean over {num_checkpoints} checkpoints" if num_checkpoints > 1 else "")
    rows = {name: {"accuracy": value} for name, value in values["mean"].items()}
    spread = {name: {"accuracy": value} for name, value in values["std"].items()}
    return format_table(title, rows, digits=2, deviations=spread if num_checkpoints > 1 else None)
