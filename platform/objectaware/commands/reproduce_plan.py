"""`objectaware reproduce … --plan`: the cost of a table or figure, before anything is computed."""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from objectaware.commands.common import Common, storage_address, write_json
from objectaware.errors import InputError

if TYPE_CHECKING:
    from objectaware.paper.figures import FigurePlan
    from objectaware.paper.nodes import Images, Node
    from objectaware.paper.plan import TablePlan
    from objectaware.planning.model import Machine, Rates
    from objectaware.studies.reproduce.workshop import Workshop


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


PlanArguments = tyro.conf.OmitArgPrefixes[PlanOptions]
UNMEASURED = PlanOptions()


def show_plan(
    common: Common,
    workshop: Workshop,
    name: str,
    planned: TablePlan | FigurePlan,
    using: PlanOptions,
) -> None:
    """Print the cost of a table or figure.

    Args:
        common: Settings of every command.
        workshop: Workshop that would make the stages' configurations.
        name: Name of the table or figure.
        planned: Its plan.
        using: Rates and machine for the hours.

    Raises:
        InputError: The rates cannot be read, do not fit the machine, or lack a network of the plan.
    """
    from objectaware.paper.nodes import ordered
    from objectaware.studies.reproduce.plan import plan_report
    from objectaware.studies.reproduce.workshop import obstacles

    rates, machine = _rates(using, workshop)
    adapted = ordered(map(workshop.scale.adapted, planned.nodes()))
    done = _done(common, workshop, adapted, obstacles(workshop, adapted))
    report = plan_report(workshop, name, adapted, rates, machine=machine, done=done, shown=_shown(planned))
    write_json(common, report.as_data())
    print(report.text())


def _rates(using: PlanOptions, workshop: Workshop) -> tuple[Rates, Machine | None]:
    """Return the rates of a plan and, if they were measured, the machine that it is for."""
    from objectaware.planning.model import Machine, read_rates
    from objectaware.studies.reproduce.plan import stated_rates

    if using.rates is None:
        for name, value in (("gpus", using.gpus), ("cpus", using.cpus)):
            if value is not None:
                problem = "needs measured rates: of what is stated no elapsed time follows"
                raise InputError(name, value, problem, "Give --rates, by `objectaware plan measure --out FILE`.")
        return stated_rates(using.images_per_second), None
    if using.images_per_second is not None:
        remedy = "Leave one of them out."
        raise InputError("images-per-second", using.images_per_second, "says what --rates says, too", remedy)
    if workshop.scale.mark:
        remedy = "Leave --rates out, or plan the full scale."
        raise InputError("rates", using.rates, "are of the paper's networks, which a smoke test does not run", remedy)
    rates = read_rates(using.rates)
    return rates, Machine.of(rates, num_gpus=using.gpus, num_cores=using.cpus)


def _done(common: Common, workshop: Workshop, nodes: list[Node], missing: dict[Node, str]) -> Collection[Node]:
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
    return finished(context, workshop, nodes, missing)


def _shown(planned: TablePlan | FigurePlan) -> list[Images]:
    """Return the images that a figure shows without a stage."""
    from objectaware.paper.figures import FigurePlan

    return list(planned.images.values()) if isinstance(planned, FigurePlan) else []
