"""One node of a plan as a stage: the function that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from objectaware.config import Model, PretrainConfig
from objectaware.paper.nodes import (
    ClassDistance,
    Detection,
    FewShot,
    Linear,
    Localize,
    MaskScore,
    Node,
    Pretrain,
)
from objectaware.stages.contextual import run_class_distance
from objectaware.stages.detection import run_detection
from objectaware.stages.evaluate import run_linear, run_localization
from objectaware.stages.few_shot import run_few_shot
from objectaware.stages.localize import run_localize
from objectaware.stages.pretrain import run_pretrain
from objectaware.stages.reproduce.workshop import Results, Workshop
from objectaware.stages.runner import Context, StageResult


def run_node(context: Context, workshop: Workshop, node: Node, results: Results) -> StageResult:
    """Runs a node's stage, or reuses it where it is finished.

    Args:
        context: What the stages share.
        workshop: Makes its configuration.
        node: A node that `is_stage`.
        results: Results of all stages that it needs.
    """
    return RUNNERS[type(node)](context, workshop, node, results)


Runner = Callable[[Context, Workshop, Node, Results], StageResult]


def _runner(run: Callable[..., StageResult], configure: Callable[[Workshop, Any, Results], Model]) -> Runner:
    """Runs a stage with the configuration that the workshop makes of its node."""

    def run_configured(context: Context, workshop: Workshop, node: Node, results: Results) -> StageResult:
        return run(context, configure(workshop, node, results), title=workshop.name(node))

    return run_configured


def _pretrain_config(workshop: Workshop, node: Pretrain, results: Results) -> PretrainConfig:
    masks = None if node.masks is None else workshop.address(node.masks, results)
    return workshop.pretrain_config(node, masks)


RUNNERS: dict[type[Node], Runner] = {
    Pretrain: _runner(run_pretrain, _pretrain_config),
    Localize: _runner(run_localize, Workshop.localize_config),
    Linear: _runner(run_linear, Workshop.linear_config),
    MaskScore: _runner(run_localization, Workshop.score_config),
    Detection: _runner(run_detection, Workshop.detection_config),
    FewShot: _runner(run_few_shot, Workshop.few_shot_config),
    ClassDistance: _runner(run_class_distance, Workshop.class_distance_config),
}
"""What runs each kind of stage."""
