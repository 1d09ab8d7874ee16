"""Study `shift`: the linear evaluation of one or several checkpoints on many test sets, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from objectaware.config import DataConfig
from objectaware.data.published import published_data, published_set
from objectaware.errors import InputError
from objectaware.evaluate.linear import paired_differences, shift_over_seeds, shift_result
from objectaware.report.tables import format_table, report_of
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


def run_shift(
    context: Context, config: ShiftConfig, checkpoints: Sequence[str], *, baselines: Sequence[str] = ()
) -> dict[str, Any]:
    """Evaluate checkpoints, such as those of several seeds, on the same test sets, under one parent run.

    Args:
        context: Context of the stages.
        config: Training set, test sets and protocol. Its checkpoint is ignored.
        checkpoints: Addresses of the checkpoints, such as one per seed. A path must be absolute.
        baselines: Addresses of the checkpoints that these are compared with, in the same order, if any.

    Returns:
        `mean` and `std` over the checkpoints (`std` is 0 for one), for each test set, each corruption (mean over its
        severities), `corruption_mean` and, if both of its variants are among the sets, `bg_gap`; `accuracies`, by
        checkpoint and test set, with each severity separately, also of the baselines; `identities`, of the linear
        evaluations of the checkpoints. With baselines also `baseline`, with their `mean` and `std`, and `change`: by
        test set, the difference of each checkpoint from its baseline, as `by_seed`, `mean` and `std`.

    Raises:
        InputError: Corruptions differ in their severities, or a checkpoint has no baseline while others have one.
    """
    if baselines and len(baselines) != len(checkpoints):
        problem = f"are {len(baselines)}, and the checkpoints are {len(checkpoints)}"
        raise InputError("baselines", " ".join(baselines), problem, "Give one for each checkpoint, in the same order.")
    require_table(config)
    one = linear_evaluation(config)
    every = [*checkpoints, *baselines]
    check_sources(one, checkpoints=every)
    dumped = {**config.model_dump(mode="json"), "checkpoint": list(checkpoints)}
    if baselines:
        dumped["baselines"] = list(baselines)
    root = config.train.root
    steps = [
        Step(number, "linear", one.model_copy(update={"checkpoint": checkpoint}), title=f"linear evaluation {number}")
        for number, checkpoint in enumerate(every, start=1)
    ]
    with open_study(context, "shift", name=f"shift {root}", dataset=root, config=dumped) as (context, parent):
        results = list(run(context, steps).results.values())
        accuracies = [dict(result.values["accuracies"]) for result in results]
        cells = [shift_result(one) for one in accuracies]
        mean, std = shift_over_seeds(accuracies[: len(checkpoints)])
        table = [{"test set": name, "mean": mean[name], "std": std[name]} for name in mean]
        values: dict[str, Any] = {"mean": mean, "std": std}
        if baselines:
            before, before_std = shift_over_seeds(accuracies[len(checkpoints) :])
            change = paired_differences(cells[: len(checkpoints)], cells[len(checkpoints) :])
            for row in table:
                name = str(row["test set"])
                row |= {"baseline": before[name], "baseline std": before_std[name]}
                row |= {"change": change[name].mean, "change std": change[name].std}
            values["baseline"] = {"mean": before, "std": before_std}
            values["change"] = {name: difference._asdict() for name, difference in change.items()}
        parent.log_table("shift", table)
        rows = [{"checkpoint": checkpoint, **numbers} for checkpoint, numbers in zip(every, cells, strict=True)]
        parent.log_table("shift by checkpoint", rows)
        parent.log_report(report_of(f"Shift, {root}", {"shift": table, "shift by checkpoint": rows}))
        parent.log_metrics({f"accuracy.{name}": value for name, value in mean.items()})
        parent.log_metrics({f"accuracy_std.{name}": value for name, value in std.items()})
    return {
        **values,
        "accuracies": dict(zip(every, accuracies, strict=True)),
        "identities": [result.identity for result in results[: len(checkpoints)]],
    }


def shift_table(values: Mapping[str, Any]) -> str:
    """Return the table of `run_shift` for the terminal."""
    num_checkpoints = len(values["identities"])
    title = "Accuracy under shift" + (f", mean over {num_checkpoints} checkpoints" if num_checkpoints > 1 else "")
    rows = {name: {"accuracy": value} for name, value in values["mean"].items()}
    spread = {name: {"accuracy": value} for name, value in values["std"].items()}
    for name, change in values.get("change", {}).items():
        rows[name] |= {"baseline": values["baseline"]["mean"][name], "change": change["mean"]}
        spread[name] |= {"baseline": values["baseline"]["std"][name], "change": change["std"]}
    return format_table(title, rows, digits=2, deviations=spread if num_checkpoints > 1 else None)
