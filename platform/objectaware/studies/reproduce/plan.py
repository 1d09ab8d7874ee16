"""The cost of a table or figure: its stages and which are finished, its data sets, and GPU hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from objectaware.data.published import published_set
from objectaware.paper.nodes import Images, Node, images_of, is_stage, title
from objectaware.planning.model import Machine, format_hours
from objectaware.planning.rates import Rates
from objectaware.studies.reproduce.estimate import Cost, cost_of
from objectaware.studies.reproduce.full import published_number
from objectaware.studies.reproduce.workshop import Workshop, obstacles

if TYPE_CHECKING:
    from objectaware.stages.runner import Context, StageResult

State = Literal["done", "to do", "cannot run"]


@dataclass(frozen=True)
class StageLine:
    """A stage of a plan.

    Attributes:
        title: Title of the stage.
        kind: Kind of the stage.
        state: Whether it is finished, can run, or cannot run.
        cost: Cost of the stage.
        reason: Why it cannot run.
    """

    title: str
    kind: str
    state: State
    cost: Cost
    reason: str = ""


@dataclass(frozen=True)
class DataLine:
    """A data set of a plan.

    Attributes:
        name: Name of the set.
        parts: Names of the parts that the plan uses.
        problem: The first problem with its parts; empty if all parts exist.
        num_images: Number of images by part, for parts that exist.
        num_published: Published number of images by part, if known.
        source: Where to get it; empty if it is built from scenes.
    """

    name: str
    parts: tuple[str, ...]
    problem: str
    num_images: tuple[int | None, ...]
    num_published: tuple[int | None, ...]
    source: str

    def state(self) -> str:
        """Return whether the set exists, and how much of it."""
        if self.problem:
            return f"missing: {self.problem} Get it: {self.source}"
        few = [
            f"{found:,} of {published:,} images of {part}"
            for part, found, published in zip(self.parts, self.num_images, self.num_published, strict=True)
            if found is not None and published is not None and found < published
        ]
        return f"there, but {', '.join(few)}" if few else "there"


@dataclass(frozen=True)
class PlanReport:
    """The cost of a table or figure.

    Attributes:
        name: Name of the table or figure.
        stages: All stages in the order in which they run.
        data: The data sets.
        rates: Rates that the hours are computed with.
        machine: Machine that elapsed hours are computed for; None if the rates do not suffice for that.
        mark: Mark of the scale, printed on every line.
    """

    name: str
    stages: tuple[StageLine, ...]
    data: tuple[DataLine, ...]
    rates: Rates
    machine: Machine | None
    mark: str = ""

    def text(self) -> str:
        """Return the plan for the terminal, with the mark on every line."""
        lines = [f"{self.name}: {len(self.stages)} stages", *self._stage_lines(), *self._data_lines()]
        lines += [*self._obstacles(), *self._sums()]
        start = f"{self.mark} | " if self.mark else ""
        return "\n".join(start + line for line in lines)

    def totals(self) -> Cost:
        """Return the total cost of the unfinished stages, including those that cannot run yet."""
        waiting = [line.cost for line in self.stages if line.state != "done"]
        return Cost(
            sum(cost.gpu_hours for cost in waiting),
            sum(cost.cpu_hours for cost in waiting),
            sum(cost.disk_bytes for cost in waiting),
            sum(cost.hours for cost in waiting),
            is_known=all(cost.is_known for cost in waiting),
        )

    def as_data(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        values = {**asdict(self), "totals": asdict(self.totals())}
        return {**values, "rates": self.rates.model_dump(mode="json")}

    def _stage_lines(self) -> list[str]:
        lines = []
        for line in self.stages:
            hours = f"  {line.cost.gpu_hours:.1f} GPU h" if line.cost.gpu_hours >= 0.05 else ""
            if self.machine is not None and line.cost.bottleneck is not None:
                hours += f"  {format_hours(3600 * line.cost.hours)}, waits for {line.cost.bottleneck}"
            lines.append(f"  {line.state:10}  {line.title}{hours}")
        return lines

    def _obstacles(self) -> list[str]:
        reasons = Counter(line.reason for line in self.stages if line.reason)
        return [f"{number} stages cannot run: {reason}" for reason, number in reasons.items()]

    def _data_lines(self) -> list[str]:
        return ["data sets:", *(f"  {line.name} ({', '.join(line.parts)}): {line.state()}" for line in self.data)]

    def _sums(self) -> list[str]:
        totals = self.totals()
        counts = {state: sum(line.state == state for line in self.stages) for state in ("done", "to do", "cannot run")}
        unknown = "" if totals.is_known else ", without stages on images that are not here to be counted"
        return [
            ", ".join(f"{number} {state}" for state, number in counts.items()),
            f"not done: about {totals.gpu_hours:.0f} GPU hours {self.rates.source}{unknown}",
            f"not done: about {totals.cpu_hours:.1f} core hours, {totals.disk_bytes / 1e9:.1f} GB of masks",
            *self._elapsed(),
        ]

    def _elapsed(self) -> list[str]:
        if self.machine is None:
            return []
        on = f"{self.machine.num_gpus} GPUs and {self.machine.num_cores} cores"
        return [f"not done: about {format_hours(3600 * self.totals().hours)} on {on}, one stage after the other"]


def plan_report(
    workshop: Workshop,
    name: str,
    nodes: Sequence[Node],
    rates: Rates,
    *,
    machine: Machine | None = None,
    done: Collection[Node],
    shown: Sequence[Images] = (),
) -> PlanReport:
    """Return the report on the cost of a plan.

    Args:
        workshop: Workshop that would make the stages' configurations.
        name: Name of the table or figure.
        nodes: All nodes of the plan, each after those that it needs.
        rates: Rates to compute hours with.
        machine: Machine to compute elapsed hours for; None leaves them out.
        done: Nodes that are `finished`.
        shown: Images that a figure shows without a stage.
    """
    missing = obstacles(workshop, nodes)
    lines = []
    for node in filter(is_stage, nodes):
        state: State = "cannot run" if node in missing else "done" if node in done else "to do"
        cost = Cost() if state == "done" else cost_of(workshop, node, rates, machine or Machine.of(rates))
        lines.append(StageLine(title(node), type(node).__name__, state, cost, missing.get(node, "")))
    return PlanReport(name, tuple(lines), data_lines(workshop, nodes, shown), rates, machine, workshop.scale.mark)


def finished(
    context: Context, workshop: Workshop, nodes: Sequence[Node], missing: dict[Node, str]
) -> dict[Node, StageResult]:
    """Find the finished stages of a plan. A stage above an unfinished one cannot be finished.

    Args:
        context: A context with `only_finished` set, so that nothing is computed.
        workshop: Workshop that would make the stages' configurations.
        nodes: The nodes, each after those that it needs.
        missing: Nodes that cannot run, with the reason.
    """
    # Imported here: a plan without finished stages would otherwise wait for Ray and MLflow.
    from objectaware.stages.runner import NotFinishedError
    from objectaware.studies.engine import run_step
    from objectaware.studies.reproduce.study import steps_of

    assert context.mode.only_finished
    found: dict[Any, StageResult] = {}
    for step in steps_of(workshop, [node for node in nodes if node not in missing]):
        if all(name in found for name in step.inputs):
            with suppress(NotFinishedError):
                found[step.name] = run_step(context, step, found)
    return found


def data_lines(workshop: Workshop, nodes: Iterable[Node], shown: Iterable[Images] = ()) -> tuple[DataLine, ...]:
    """Return the data sets of a plan and those that are shown without a stage: their parts, and what is missing."""
    parts: dict[str, list[Images]] = {}
    for images in dict.fromkeys([*(images for node in nodes for images in images_of(node)), *shown]):
        parts.setdefault(images.name, []).append(images)
    return tuple(_data_line(workshop, name, wanted) for name, wanted in parts.items())


def _data_line(workshop: Workshop, name: str, wanted: Sequence[Images]) -> DataLine:
    scale = workshop.scale
    problems = [problem for one in wanted if (problem := scale.images_problem(one)) is not None]
    return DataLine(
        name,
        parts=tuple(one.part if one.subset is None else f"{one.part}, {one.subset}" for one in wanted),
        problem=problems[0] if problems else "",
        num_images=tuple(map(scale.num_images, wanted)),
        num_published=tuple(None if scale.mark else published_number(one) for one in wanted),
        source="" if scale.mark else published_set(name).source,
    )
