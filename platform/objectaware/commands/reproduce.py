"""Commands that list, show and reproduce the paper's tables and figures."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro
from tyro.conf import Positional

from objectaware.commands.common import (
    DEFAULTS,
    Common,
    CommonArguments,
    open_context,
    possible_needs,
    require_json,
    storage_address,
    write_json,
)
from objectaware.commands.registry import command
from objectaware.errors import InputError

if TYPE_CHECKING:
    from objectaware.distributed.room import Need
    from objectaware.paper.figures import FigurePlan
    from objectaware.paper.nodes import Node
    from objectaware.paper.plan import TablePlan
    from objectaware.planning.model import Machine, Rates
    from objectaware.report.tables import TableReport
    from objectaware.studies.reproduce.scale import Full, Scale, Smoke


@dataclass(frozen=True)
class Place:
    """The places of a table's inputs.

    Attributes:
        data: Folder in which data sets lie under their usual names (docs/data.md).
        datasets: YAML file of `name: folder` lines, for data sets that lie elsewhere.
        networks: YAML file of `name: path` lines, for networks and masks that others have published.
        recipes: Folder of the trainings' recipes.
    """

    data: Path = Path("data")
    datasets: Path | None = None
    networks: Path | None = None
    recipes: Path = Path("jobs/recipes")


@dataclass(frozen=True)
class PlanOptions:
    """The rates and the machine for the hours of a plan.

    Attributes:
        rates: File that `objectaware plan measure` wrote. By default the paper's GPU, with stated instead of measured
            rates.
        gpus: Number of GPUs for elapsed hours, with --rates. By default that of the machine of the rates.
        cpus: Number of CPU cores for elapsed hours, with --rates. By default that of the machine of the rates.
        images_per_second: Images per second on which one GPU trains, with a ResNet-18 and with a ResNet-50, without
            --rates.
    """

    rates: Path | None = None
    gpus: int | None = None
    cpus: int | None = None
    images_per_second: tuple[float, float] | None = None


PlaceArguments = tyro.conf.OmitArgPrefixes[Place]
HERE = Place()
UNMEASURED = PlanOptions()
_FIGURE = "figure:"


@command(
    "reproduce list", "[--data DIR]", "List the paper's tables and figures, and which can run with the data at hand."
)
def list_paper(at: PlaceArguments = HERE, json: Path | None = None) -> None:
    """List the paper's tables and figures, their contents and data sets, and which can run with what is here.

    Args:
        at: Places of data sets, networks and recipes.
        json: File to which the list is written as data.
    """
    from objectaware.paper import TABLE_LABELS, Display, load_figures, load_table
    from objectaware.paper.figures import plan_figure
    from objectaware.paper.plan import plan_table
    from objectaware.report.tables import format_list
    from objectaware.studies.reproduce.scale import lacking

    common = require_json(Common(json=json))
    full = _full(at)
    displays: dict[str, Display] = {label: load_table(label) for label in TABLE_LABELS}
    missing = {label: lacking(full, plan_table(label).nodes()) for label in TABLE_LABELS}
    for figure in load_figures():
        name, plan = f"{_FIGURE}{figure.label}", plan_figure(figure.label)
        displays[name] = figure
        missing[name] = lacking(full, plan.nodes(), plan.images.values())
    shared = set(Display.model_fields) - {"label"}
    data = [
        {"name": name, **shown.model_dump(mode="json", include=shared), "missing": missing[name]}
        for name, shown in displays.items()
    ]
    write_json(common, data)
    print(format_list(displays, missing))
    print("`objectaware reproduce show TABLE` prints a table, `objectaware reproduce TABLE` computes it.")


@command("reproduce show", "TABLE", "Print a table of the paper.")
def show_table(table: Positional[str], json: Path | None = None) -> None:
    """Print a table of the paper, with gains computed from its numbers, and its requirements.

    Args:
        table: Label of the table, such as bg-main.
        json: File to which the table is written as data.
    """
    from objectaware.paper import gains, load_table
    from objectaware.report.tables import format_paper_table

    common = require_json(Common(json=json))
    loaded = load_table(table)
    counted = [{"row": row, "column": column, "gain": gain} for (row, column), gain in gains(loaded).items()]
    write_json(common, {**loaded.model_dump(mode="json"), "gains": counted})
    print(format_paper_table(loaded))


@command(
    "reproduce",
    "TABLE|figure:LABEL [--plan] [--scale smoke|full] [--protocol paper|official]",
    "Compute a table or figure of the paper.",
)
def reproduce_table(
    table: Positional[str],
    common: CommonArguments = DEFAULTS,
    at: PlaceArguments = HERE,
    plan: bool = False,
    scale: Literal["full", "smoke"] = "full",
    protocol: Literal["paper", "official"] = "paper",
    seeds: int | None = None,
    using: tyro.conf.OmitArgPrefixes[PlanOptions] = UNMEASURED,
) -> None:
    """Compute a table of the paper beside its numbers, or draw a figure. Finished stages are reused.

    Args:
        table: Label of the table, such as bg-main, or figure:LABEL. `objectaware reproduce list` shows all labels.
        common: Settings of every command.
        at: Places of data sets, networks and recipes.
        plan: Only report what it takes: stages, data, GPU hours, disk.
        scale: full uses the paper's data sets and settings; smoke runs the same plan on scenes, in minutes.
        protocol: Protocol of the linear evaluations, the only stages that differ. paper is the paper's text: the exact
            minimiser of the summed cross-entropy and an L2 penalty that a hold-out of the training images chooses,
            fitted again to all of them. official is the published code: its objective and optimiser
            (compat: official) and no second fit; on Flowers102 its validation part of 1,020 images chooses the penalty.
        seeds: Number of trainings behind a number. By default as many as in the paper, and one for smoke.
        using: Rates with which a plan's hours are computed.
    """
    from objectaware.paper.figures import plan_figure
    from objectaware.paper.plan import plan_table

    chosen = _smoke(common, at) if scale == "smoke" else _full(at)
    planned: TablePlan | FigurePlan
    if table.startswith(_FIGURE):
        planned = plan_figure(table.removeprefix(_FIGURE), protocol=protocol)
    else:
        num_seeds = 1 if seeds is None and scale == "smoke" else seeds
        planned = plan_table(table, num_seeds=num_seeds, protocol=protocol)
    if plan:
        _show_plan(common, chosen, table, planned, using)
    else:
        _run(common, chosen, planned)


def _run(common: Common, scale: Scale, planned: TablePlan | FigurePlan) -> None:
    from objectaware.paper.plan import TablePlan
    from objectaware.studies.engine import StagesFailedError
    from objectaware.studies.reproduce.study import run_figure, run_table

    mark = f"{scale.mark} | " if scale.mark else ""
    with open_context(common, *_needs(scale, planned.nodes())) as context:
        try:
            if isinstance(planned, TablePlan):
                _show(common, run_table(context, scale, planned))
            else:
                pictures = run_figure(context, scale, planned)
                name = scale.mark or "full"
                described = {"label": planned.figure.label, "protocol": planned.protocol, "scale": name}
                write_json(common, {**described, "pictures": pictures})
                for address in pictures:
                    print(f"{mark}picture: {address}")
        except StagesFailedError as error:
            if error.report is not None:
                _show(common, error.report)
            raise
        print(f"{mark}MLflow UI: {context.services.tracking.ui_command()}")


def _show(common: Common, report: TableReport) -> None:
    described = {"label": report.table.label, "protocol": report.protocol, "scale": report.mark or "full"}
    write_json(common, {**described, "seeds": report.seeds, "cells": report.rows()})
    print(report.text())


def _full(at: Place) -> Full:
    from objectaware.paper.plan import PUBLISHED_NAMES
    from objectaware.studies.reproduce.scale import Full, read_names

    folders, networks = read_names(at.datasets, "datasets"), read_names(at.networks, "networks", PUBLISHED_NAMES)
    return Full(at.recipes, at.data, folders, networks)


def _smoke(common: Common, at: Place) -> Smoke:
    from objectaware.data.storage import Storage
    from objectaware.studies.reproduce.scale import Smoke

    address = storage_address(common.storage)
    folder = Storage.from_uri(address).local_path()
    if folder is None:
        raise InputError("storage", address, "is not a local folder", "Scenes need one, such as --storage runs.")
    return Smoke.build(at.recipes, folder / "scenes" / "reproduce")


def _needs(scale: Scale, nodes: list[Node]) -> list[Sequence[Need]]:
    """Return the processes of the stages that run more than one."""
    from objectaware.config import LocalizeConfig
    from objectaware.paper.nodes import Planned

    kinds = ("pretrain", "detection")
    configs = [scale.config(node, None) for node in nodes if isinstance(node, Planned) and node.kind in kinds]
    # The needs of a localization depend only on the execution.
    configs.append(LocalizeConfig.model_validate({"data": {"root": "images"}, "checkpoint": "network"}))
    return possible_needs(configs)


def _show_plan(common: Common, scale: Scale, name: str, planned: TablePlan | FigurePlan, using: PlanOptions) -> None:
    """Print the cost of a table or figure.

    Args:
        common: Settings of every command.
        scale: Scale at which it would run.
        name: Name of the table or figure.
        planned: Its plan.
        using: Rates and machine for the hours.

    Raises:
        InputError: The rates cannot be read, do not fit the machine, or lack a network of the plan.
    """
    from objectaware.paper.figures import FigurePlan
    from objectaware.paper.nodes import ordered
    from objectaware.studies.reproduce.plan import plan_report
    from objectaware.studies.reproduce.scale import obstacles

    rates, machine = _rates(using, scale)
    adapted = ordered(map(scale.adapted, planned.nodes()))
    done = _done(common, scale, adapted, obstacles(scale, adapted))
    # A figure shows these images without a stage.
    shown = list(planned.images.values()) if isinstance(planned, FigurePlan) else []
    report = plan_report(
        scale, name, adapted, rates, machine=machine, done=done, shown=shown, protocol=planned.protocol
    )
    write_json(common, report.as_data())
    print(report.text())


def _rates(using: PlanOptions, scale: Scale) -> tuple[Rates, Machine | None]:
    """Return the rates of a plan and, if they were measured, the machine that it is for."""
    from objectaware.planning.model import Machine, read_rates
    from objectaware.studies.reproduce.plan import stated_rates

    if using.rates is None:
        for name, value in (("gpus", using.gpus), ("cpus", using.cpus)):
            if value is not None:
                problem = "needs measured rates, since stated ones give no elapsed time"
                raise InputError(name, value, problem, "Give --rates, by `objectaware plan measure --out FILE`.")
        return stated_rates(using.images_per_second), None
    if using.images_per_second is not None:
        problem = "states what --rates has measured"
        raise InputError("images-per-second", using.images_per_second, problem, "Leave one of them out.")
    if scale.mark:
        remedy = "Leave --rates out, or plan the full scale."
        raise InputError("rates", using.rates, "are of the paper's networks, which a smoke test does not run", remedy)
    rates = read_rates(using.rates)
    return rates, Machine.of(rates, num_gpus=using.gpus, num_cores=using.cpus)


def _done(common: Common, scale: Scale, nodes: list[Node], missing: dict[Node, str]) -> Collection[Node]:
    """Return the stages of a plan that are finished in the storage."""
    from objectaware.data.storage import Storage

    storage = Storage.from_uri(storage_address(common.storage))
    folder = storage.local_path()
    if len(missing) == len(nodes) or not (folder is None or (folder / "pretrain").exists()):
        return ()

    from objectaware.stages.progress import Progress
    from objectaware.stages.runner import Context, Mode, Services
    from objectaware.studies.reproduce.plan import finished
    from objectaware.tracking import TrackingStore

    tracking = TrackingStore.open(storage, common.experiment)
    # The plan itself shows the reused stages, so they are not printed line by line.
    services = Services(storage, tracking, Progress(io.StringIO()))
    context = Context(services, Mode(verify=common.verify, only_finished=True))
    return finished(context, scale, nodes, missing)
