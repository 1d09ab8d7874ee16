"""One node of a plan as a stage: the function that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from objectaware.paper.nodes import Kept, Linear, Localize, MaskScore, Node, Pretrain, Published
from objectaware.stages.evaluate import run_linear, run_localization
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


RUNNERS: dict[type[Node], Callable[[Context, Workshop, Node, Results], StageResult]] = {
    Pretrain: _pretrain,
    Localize: _localize,
    Linear: _linear,
    MaskScore: _score,
}
"""What runs each kind of stage; a kind that is not here cannot run yet, and its cells say so."""
