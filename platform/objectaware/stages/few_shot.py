"""Stage `few_shot`: distinguish two classes that occur together, after a look at a few images of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from objectaware.evaluate.linear import few_shot_error, mean_and_std
from objectaware.model import Count, Positive
from objectaware.stages.features import (
    ContextualConfig,
    LabelledFeatures,
    compute_device,
    feature_computation,
    run_on_features,
)
from objectaware.stages.registry import stage
from objectaware.stages.runner import Computation, Context, StageRun


class FewShotConfig(ContextualConfig):
    """Error of a classifier that was shown a few images of each class (paper, table multi-bias-epoch).

    Attributes:
        num_shots: Number of images per class that the classifier is fitted to. All other images are classified.
        seeds: Seeds, one per draw of the shots.
    """

    num_shots: Positive = 1
    seeds: Annotated[tuple[Count, ...], Field(min_length=1)] = (0, 1, 2, 3, 4)


@stage("few_shot", version=2)
def few_shot(context: Context, config: FewShotConfig) -> Computation[FewShotConfig]:
    """Measure the error of a classifier that was shown `num_shots` images of each class, once for each seed.

    Returns:
        Values `error` (`mean` and `std` over the seeds, in per cent; the deviation is the sample's), `errors` (by
        seed), `num_images` (by class), `coverage` (of `data`: which images the error covers and which are left out,
        see `objectaware.evaluate.coverage.Coverage`) and `unreadable`.

    Raises:
        InputError: The data set lacks one of the two classes, or has too few images of one.

    Source:
        Paper, appendix "Analysis on the contextual bias", table multi-bias-epoch. docs/evaluation.md lists what the
        paper leaves open and how this stage fills the gaps.
    """

    def measure(run: StageRun, config: FewShotConfig, sets: Mapping[str, LabelledFeatures]) -> Mapping[str, Any]:
        found = sets["data"]
        errors = run_on_features(measure_few_shot, config, found)
        mean, std = mean_and_std([{"error": error} for error in errors])
        rows = [{"seed": seed, "error": error} for seed, error in zip(config.seeds, errors, strict=True)]
        run.tracker.log_table("few shot", rows)
        run.tracker.log_metrics({"error": mean["error"], "error_std": std["error"]}, model=config.checkpoint)
        every, num_shown = found.coverage("data", config.class_names), config.num_shots * len(config.class_names)
        left_out = {**every.left_out, "shown to the classifier": num_shown}
        coverage = replace(every, num_samples=every.num_samples - num_shown, left_out=left_out)
        return {
            "error": {"mean": mean["error"], "std": std["error"]},
            "errors": {str(row["seed"]): row["error"] for row in rows},
            "num_images": found.counts(),
            "coverage": {"data": coverage.values()},
        }

    title = f"{config.num_shots}-shot {' or '.join(config.class_names)}"
    return feature_computation(context, config, measure, title=title)


def measure_few_shot(config: FewShotConfig, found: LabelledFeatures) -> list[float]:
    """Return the error in per cent for each seed."""
    features, labels = found.load_each_class(compute_device(config), config.data.root)
    return [few_shot_error(features, labels, num_shots=config.num_shots, seed=seed) for seed in config.seeds]
