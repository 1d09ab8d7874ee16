"""All localizers on the same images, in one table (paper, tables of appendix B.1 on classifier CAM and saliencies)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from objectaware.config import LocalizationConfig, LocalizersConfig
from objectaware.evaluate.summary import format_table
from objectaware.stages.evaluate import run_linear, run_localization, titled
from objectaware.stages.localize import run_localize
from objectaware.stages.runner import Context, study


def run_localizers(context: Context, config: LocalizersConfig) -> dict[str, Any]:
    """Localizes the same images with each localizer and scores all masks, under one parent run.

    Args:
        context: What the stages share.
        config: Which localizers, with which network, on which images.

    Returns:
        `scores` and `boxes_per_image` as of `run_localization`; `masks`, the address of each row's masks; and
        `classifier`, that of the linear classifier, None where no row needed one.
    """
    dumped = config.model_dump(mode="json")
    key = hashlib.sha256(json.dumps(dumped, sort_keys=True).encode()).hexdigest()[:20]
    root = config.data.root
    with study(context, "localizers", name=f"localizers {root}", key=key, dataset=root, config=dumped) as parent:
        values = _run_rows(context, config)
        parent.log_table("localizers", [{"localizer": row, **cells} for row, cells in titled(values["scores"]).items()])
    return values


def _run_rows(context: Context, config: LocalizersConfig) -> dict[str, Any]:
    classifier: str | None = None
    masks: dict[str, str] = {}
    for name, fields in config.localizers.items():
        if fields.get("localizer") == "classifier_cam" and fields.get("classifier") is None and classifier is None:
            classifier = str(run_linear(context, config.linear_config()).values["classifier"])
        row = config.localize_config(name, classifier=classifier or "")
        masks[name] = str(run_localize(context, row, title=f"localize {name}").values["masks"])
    masks |= config.masks
    image_size = config.shared.get("image_size", LocalizationConfig.model_fields["image_size"].default)
    scoring = LocalizationConfig(data=config.data, masks=masks, image_size=image_size)
    values = run_localization(context, scoring).values
    return {**values, "masks": masks, "classifier": classifier}


def localizers_table(values: dict[str, Any]) -> str:
    """The table of `run_localizers` for the terminal; column titles and rows say what is an oracle."""
    scores: dict[str, dict[str, float]] = values["scores"]
    num_images = max((int(row["num_images"]) for row in scores.values() if "num_images" in row), default=0)
    # Where all have masks, a column of zeros would say nothing; the table in MLflow has every column.
    hidden = ["num_images"] + (["num_missing"] if not any(row.get("num_missing") for row in scores.values()) else [])
    shown = {name: {key: row[key] for key in row if key not in hidden} for name, row in scores.items()}
    return format_table(f"Localization, {num_images} images", titled(shown), digits=3)
