"""A figure of the paper: its stages under one study, and its pictures."""

from __future__ import annotations

from dataclasses import replace

from objectaware.errors import InputError
from objectaware.paper.figures import FigurePlan
from objectaware.stages.runner import Context
from objectaware.studies.engine import run
from objectaware.studies.reproduce.drawing import DRAWINGS
from objectaware.studies.reproduce.materials import Materials
from objectaware.studies.reproduce.study import open_paper_study, steps_of
from objectaware.studies.reproduce.workshop import Workshop, obstacles


def adapted_figure(workshop: Workshop, plan: FigurePlan) -> FigurePlan:
    """Return the plan of a figure at the scale in use."""
    return replace(plan, stages={name: workshop.scale.adapted(node) for name, node in plan.stages.items()})


def figure_obstacles(workshop: Workshop, plan: FigurePlan) -> list[str]:
    """Return the reasons why a figure cannot be made: stages that cannot run, and missing images to be shown."""
    shown = (workshop.scale.images_problem(images) for images in plan.images.values())
    reasons = [*obstacles(workshop, plan.nodes()).values(), *(problem for problem in shown if problem is not None)]
    return list(dict.fromkeys(reasons))


def run_figure(context: Context, workshop: Workshop, plan: FigurePlan) -> list[str]:
    """Run a figure's stages under one study, draw it, and log its pictures there.

    Args:
        context: Context of the stages.
        workshop: Workshop that makes the stages' configurations.
        plan: Plan of the figure.

    Returns:
        Addresses of its PNGs, in the storage's folder `figures`.

    Raises:
        InputError: A required input is missing.
        StagesFailedError: Some stages failed.
    """
    plan, label = adapted_figure(workshop, plan), plan.figure.label
    missing = figure_obstacles(workshop, plan)
    if missing:
        reasons = "; ".join(missing)
        remedy = f"`objectaware reproduce figure:{label} --plan` says what it takes."
        raise InputError("figure", label, f"cannot be drawn with what is here ({reasons})", remedy)
    scale = workshop.scale
    name = f"{label}-smoke" if scale.mark else label
    with open_paper_study(context, workshop, f"figure:{label}", plan.figure.datasets, (0,)) as (context, parent):
        outcome = run(context, steps_of(workshop, plan.nodes()), keep_going=True)
        outcome.raise_failures()
        pictures = DRAWINGS[label](Materials(workshop, plan, outcome.results, context.services.tracking))
        folder = context.services.storage.child("figures").child(name)
        for file, png in pictures.items():
            folder.write_bytes(file, png)
            parent.log_png(f"{name}/{file}", png)
    return [f"{folder.uri}/{file}" for file in pictures]
