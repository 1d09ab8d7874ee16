"""One node of a plan as a stage: the function that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from objectaware.paper.nodes import (
    ClassDistance,
    Detection,
    FewShot,
    Kept,
    Linear,
    Localize,
    MaskScore,
    Node,
    Pretrain,
    Published,
)
from objectaware.stages.contextual import run_class_distance
from objectaware.stages.detection import run_detection
from objectaware.stages.evaluate import run_linear, run_localization
from objectaware.stages.few_shot import run_few_shot
from objectaware.stages.localize import run_localize
from objectaware.stages.pretrain import run_pretrain
from objectaware.stages.reproduce.workshop import Results, Workshop
from objectaware.stages.runner import Context, StageResult


def is_stage(node: Node) -> bool:
    """Whether a node is computed, and not a file of others or a checkpoint in the middle of a training."""
    return not isinstance(node, Published | Kept)


def is_built(node: Node) -> bool:
    """Whether this version of the program has the node's stage."""
    return type(node) in RUNNERS or not is_stage(node)


def run_node(context: Context, workshop: Workshop, node: Node, results: Results) -> StageResult:
    """Runs a node's stage, or reuses it where it is finished.

    Args:
        context: What the stages share.
        workshop: Makes its configuration.
        node: A node that `is_stage`.
        results: Results of all stages that it needs.
    """
    return RUNNERS[type(node)](context, workshop, node, results)


def _pretrain(context: Context, workshop: Workshop, node: Node, results: Results) -> StageResult:
    training = cast(Pretrain, node)
    masks = None if training.masks is None else workshop.address(training.masks, results)
    return run_pretrain(context, workshop.pretrain_config(training, masks), title=workshop.name(node))


def _localize(context: Context, workshop: Workshop, node: Node, results: Results) -> StageResult:
    config = workshop.localize_config(cast(Localize, node), results)
    return run_localize(context, config, title=workshop.name(node))


def _linear(context: Context, workshop: Workshop, node: Node, results: Results) -> StageResult:
    config = workshop.linear_config(cast(Linear, node), results)
    return run_linear(context, config, title=workshop.name(node))


def _score(context: Context, workshop: Workshop, node: Node, results: Results) -> StageResult:
    config = workshop.score_config(cast(MaskScore, node), results)
    return run_localization(context, config, title=workshop.name(node))


def _few_shot(context: Context, workshop: Workshop, node: Node, results: Results) -> StageResult:
    config = workshop.few_shot_config(cast(FewShot, node), results)
    return run_few_shot(context, config, title=workshop.name(node))


def _class_distance(context: Context, workshop: Workshop, node: Node, results: Results) -> StageResult:
    config = workshop.class_distance_config(cast(ClassDistance, node), results)
    return run_class_distance(context, config, title=workshop.name(node))


def _detection(context: Context, workshop: Workshop, node: Node, results: Results) -> StageResult:
    config = workshop.detection_config(cast(Detection, node), results)
    return run_detection(context, config, title=workshop.name(node))


RUNNERS: dict[type[Node], Callable[[Context, Workshop, Node, Results], StageResult]] = {
    Pretrain: _pretrain,
    Localize: _localize,
    Linear: _linear,
    MaskScore: _score,
    Detection: _detection,
    FewShot: _few_shot,
    ClassDistance: _class_distance,
}
"""What runs each kind of stage; a kind that is not here cannot run yet, and its cells say so."""
