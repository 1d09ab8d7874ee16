"""A table of the paper: all of its stages under one study, and its numbers beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from objectaware.errors import InputError
from objectaware.paper.nodes import Node, Value, is_stage, ordered, stage_kind, stages_below
from objectaware.paper.plan import TablePlan
from objectaware.report.paper_tables import Measured, TableReport
from objectaware.stages.progress import Progress
from objectaware.stages.runner import Context, StageResult
from objectaware.studies.engine import Step, open_study, run
from objectaware.studies.reproduce.workshop import Workshop, obstacles
from objectaware.tracking import Tracker


class MarkedProgress(Progress):
    """Progress whose every line names the scale.

    Args:
        mark: Text that names the scale.
    """

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = mark

    def line(self, text: str) -> None:
        """Write a line that stays, with the mark unless the text begins with it."""
        super().line(text if text.startswith(self._mark) else f"{self._mark}: {text.lstrip()}")

    def update(self, text: str) -> None:
        """Show the progress of a stage."""
        # In a file it is a line like any other, which `line` marks.
        super().update(f"{self._mark}: {text}" if self._stream.isatty() else text)


def steps_of(workshop: Workshop, nodes: Iterable[Node]) -> list[Step]:
    """Return the steps of a plan, with the nodes as their names.

    Args:
        workshop: Workshop that makes configurations of nodes.
        nodes: The nodes, each after those that it needs. Those that are not stages are left out.
    """

    def step(node: Node) -> Step:
        return Step(
            name=node,
            kind=stage_kind(node),
            config=lambda results: workshop.config(node, results),
            inputs=stages_below(node),
            title=workshop.name(node),
        )

    return [step(node) for node in nodes if is_stage(node)]


def run_table(context: Context, workshop: Workshop, plan: TablePlan) -> TableReport:
    """Compute a table under one study, and log it there.

    Args:
        context: Context of the stages.
        workshop: Workshop that makes the stages' configurations.
        plan: Plan of the table.

    Returns:
        The table. Cells that could not be computed contain the reason.

    Raises:
        InputError: None of its cells can be computed.
        StagesFailedError: Some stages failed. The table was logged without them.
    """
    cells = {place: [adapted(workshop, value) for value in values] for place, values in plan.cells.items()}
    nodes = ordered(value.node for values in cells.values() for value in values)
    missing = obstacles(workshop, nodes)
    if all(values[0].node in missing for values in cells.values()):
        reasons = "; ".join(dict.fromkeys(missing.values()))
        remedy = f"`objectaware reproduce {plan.table.label} --plan` says what it takes."
        raise InputError("table", plan.table.label, f"cannot be computed with what is here ({reasons})", remedy)
    with open_paper_study(context, workshop, plan.table.label, plan.table.datasets, plan.seeds) as (context, parent):
        outcome = run(context, steps_of(workshop, [node for node in nodes if node not in missing]), keep_going=True)
        reasons_by_node = {**missing, **outcome.failures}
        measured = {place: _measure(values, outcome.results, reasons_by_node) for place, values in cells.items()}
        report = TableReport(plan.table, measured, plan.seeds, workshop.scale.mark)
        _record(parent, report)
        outcome.raise_failures(report)
    return report


def adapted(workshop: Workshop, value: Value) -> Value:
    """Return a cell's value at the scale in use."""
    scale = workshop.scale
    return Value(scale.adapted(value.node), tuple(map(scale.path, value.paths)))


@contextmanager
def open_paper_study(
    context: Context, workshop: Workshop, label: str, datasets: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[Context, Tracker]]:
    """Open the study of a table or figure. Under the context that it yields, every line of progress names the scale."""
    mark = workshop.scale.mark
    described = {"label": label, "seeds": list(seeds), "scale": mark or "full"}
    if mark:
        context = replace(context, services=replace(context.services, progress=MarkedProgress(mark)))
    name = f"{label} ({mark})" if mark else label
    with open_study(context, "paper", name=name, dataset=mark or ", ".join(datasets), config=described) as opened:
        yield opened


def _measure(values: Sequence[Value], results: Mapping[Node, StageResult], reasons: Mapping[Node, str]) -> Measured:
    reason = next((reasons[value.node] for value in values if value.node in reasons), None)
    if reason is not None:
        return Measured(None, reason)
    return Measured.of([value.read(results[value.node].values) for value in values])


def _record(parent: Tracker, report: TableReport) -> None:
    """Log the table, its cells and the report."""
    name = report.table.label + (f" ({report.mark})" if report.mark else "")
    parent.log_table(name, report.rows())
    numbers = {
        ".".join((report.table.label, *row, *column)): one.cell.mean
        for (row, column), one in report.measured.items()
        if one.cell is not None
    }
    parent.log_metrics(numbers)
    parent.log_text("report.md", report.markdown())
