"""Study `localizers`: all localizers on the same images, in one table.

Paper, tables of appendix B.1 on classifier CAM and saliencies. The kind of stage `localizers` orders the stages, so
that a sweep can vary them, too. The study adds the parent run and its table.
"""

from __future__ import annotations

from typing import Any

from objectaware.data.dataset import Dataset
from objectaware.report.tables import format_table, report_of
from objectaware.stages.features import check_sources
from objectaware.stages.identity import masks_hash
from objectaware.stages.localization import size_title, table_rows, table_rows_by_size, titled
from objectaware.stages.localize import check_localize
from objectaware.stages.localizers import LocalizersConfig
from objectaware.stages.runner import Context
from objectaware.studies.engine import Step, open_study, run


def run_localizers(context: Context, config: LocalizersConfig) -> dict[str, Any]:
    """Localize the same images with each localizer and score all masks, under one parent run.

    Args:
        context: Context of the stages.
        config: The localizers, their network and their images.

    Returns:
        `scores`, `scores_by_size` and `boxes_per_image` as in `localization`; `masks`, the address of each row's
        masks; and `classifier`, the address of the linear classifier, None if no row needed one.
    """
    _check(config)
    dumped = config.model_dump(mode="json")
    root = config.data.root
    with open_study(context, "localizers", name=f"localizers {root}", dataset=root, config=dumped) as (context, parent):
        result = run(context, [Step("localizers", "localizers", config)]).results["localizers"]
        values = dict(result.values)
        parent.log_table("localizers", table_rows(values["scores"]))
        parent.log_table("localizers by size", table_rows_by_size(values["scores_by_size"]))
        parent.log_report(report_of(f"Localizers, {root}", {"localizers": table_rows(values["scores"])}))
    return values


def _check(config: LocalizersConfig) -> None:
    """Refuse mistakes in any row before the first one is computed."""
    rows = [config.localize_config(name, classifier="") for name in config.localizers]
    # Rows with the same checkpoint and negatives use the same images and network, so one check serves them all.
    for row in {(row.checkpoint, row.localizer.only_negatives): row for row in rows}.values():
        check_localize(row, Dataset.of(row.data))
    if config.linear is not None:
        check_sources(config.linear_config())
    for address in config.masks.values():
        masks_hash(address)
    Dataset.of(config.data).truth().content_hash()


def localizers_tables(values: dict[str, Any]) -> list[str]:
    """Return the tables of `run_localizers` for the terminal: of all images, and by size of the true object.

    Column titles and rows mark oracles.
    """
    tables = {"Localization": values["scores"]}
    tables |= {size_title(size).capitalize(): scores for size, scores in values["scores_by_size"].items()}
    return [_table(title, scores) for title, scores in tables.items()]


def _table(title: str, scores: dict[str, dict[str, float]]) -> str:
    num_images = max((int(row["num_images"]) for row in scores.values() if "num_images" in row), default=0)
    # A column of zeros would be useless when no masks are missing. The table in MLflow has every column.
    hidden = ["num_images"] + (["num_missing"] if not any(row.get("num_missing") for row in scores.values()) else [])
    shown = {name: {key: row[key] for key in row if key not in hidden} for name, row in scores.items()}
    return format_table(f"{title}, {num_images} images", titled(shown), digits=3)
