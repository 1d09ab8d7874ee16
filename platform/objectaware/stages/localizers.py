"""All localizers on the same images, in one table (paper, tables of appendix B.1 on classifier CAM and saliencies)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from objectaware.config import LocalizationConfig, LocalizersConfig, Model
from objectaware.evaluate.summary import format_table
from objectaware.stages.evaluate import labelled_sets, run_linear, run_localization, titled
from objectaware.stages.features import check_features
from objectaware.stages.identity import masks_hash
from objectaware.stages.localize import check_localize, run_localize
from objectaware.stages.runner import Context, StageResult, study, study_key
from objectaware.stages.truth import true_objects_hash


def run_localizers(context: Context, config: LocalizersConfig) -> dict[str, Any]:
    """Localizes the same images with each localizer and scores all masks, under one parent run.

    Args:
        context: What the stages share.
        config: Which localizers, with which network, on which images.

    Returns:
        `scores` and `boxes_per_image` as of `run_localization`; `masks`, the address of each row's masks; and
        `classifier`, that of the linear classifier, None where no row needed one.
    """
    _check(config)
    dumped = config.model_dump(mode="json")
    key = study_key(dumped)
    root = config.data.root
    with study(context, "localizers", name=f"localizers {root}", key=key, dataset=root, config=dumped) as parent:
        values = dict(run_localizer_rows(context, config).values)
        parent.log_table("localizers", [{"localizer": row, **cells} for row, cells in titled(values["scores"]).items()])
    return values


def run_localizer_rows(context: Context, config: LocalizersConfig, *, title: str | None = None) -> StageResult:
    """Localizes and scores, under whatever run the context has.

    Returns:
        The scoring of all masks, with the values of `run_localizers`.
    """
    classifier: str | None = None
    masks: dict[str, str] = {}
    prefix = "" if title is None else f"{title}: "
    for name in config.localizers:
        if config.lacks_classifier(name) and classifier is None:
            fitted = run_linear(context, config.linear_config(), title=f"{prefix}linear evaluation")
            classifier = str(fitted.values["classifier"])
        row = config.localize_config(name, classifier=classifier or "")
        masks[name] = str(run_localize(context, row, title=f"{prefix}localize {name}").values["masks"])
    masks |= config.masks
    result = run_localization(context, _scoring(config, masks), title=title)
    return replace(result, values={**result.values, "masks": masks, "classifier": classifier})


def _check(config: LocalizersConfig) -> None:
    """Refuses what the last row would refuse before the first one is computed."""
    rows = [config.localize_config(name, classifier="") for name in config.localizers]
    # Most differ in what looks at the same images through the same network.
    for row in {(row.checkpoint, row.localizer.only_negatives): row for row in rows}.values():
        check_localize(row)
    if config.linear is not None:
        linear = config.linear_config()
        check_features(linear, sets=labelled_sets(linear))
    for address in config.masks.values():
        masks_hash(address)
    true_objects_hash(config.data)


def _scoring(config: LocalizersConfig, masks: Mapping[str, str]) -> LocalizationConfig:
    image_size = config.shared.get("image_size", LocalizationConfig.model_fields["image_size"].default)
    return LocalizationConfig(data=config.data, masks=dict(masks), image_size=image_size)


def localizers_parts(config: LocalizersConfig, *, classifier: str) -> list[Model]:
    """The configurations of all that is run; of the scoring, with the masks of other systems alone.

    Args:
        config: Of all of it.
        classifier: Address in place of the classifier's that is fitted on the way.
    """
    rows = [config.localize_config(name, classifier=classifier) for name in config.localizers]
    linear = [] if config.linear is None else [config.linear_config()]
    return [*rows, *linear, _scoring(config, config.masks)]


def localizers_table(values: dict[str, Any]) -> str:
    """The table of `run_localizers` for the terminal; column titles and rows say what is an oracle."""
    scores: dict[str, dict[str, float]] = values["scores"]
    num_images = max((int(row["num_images"]) for row in scores.values() if "num_images" in row), default=0)
    # Where all have masks, a column of zeros would say nothing; the table in MLflow has every column.
    hidden = ["num_images"] + (["num_missing"] if not any(row.get("num_missing") for row in scores.values()) else [])
    shown = {name: {key: row[key] for key in row if key not in hidden} for name, row in scores.items()}
    return format_table(f"Localization, {num_images} images", titled(shown), digits=3)
