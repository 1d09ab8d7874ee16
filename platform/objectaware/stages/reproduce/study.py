"""A table of the paper: all of its stages under one study, and its numbers beside the paper's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from objectaware.errors import ExplainedError, InputError, is_explained
from objectaware.paper.nodes import Node, is_stage, needs, ordered
from objectaware.paper.plan import TablePlan
from objectaware.paper.values import Value
from objectaware.report.paper_tables import Measured, TableReport
from objectaware.stages.progress import Progress
from objectaware.stages.registry import computing_stage
from objectaware.stages.reproduce.workshop import Results, Workshop, obstacles
from objectaware.stages.runner import Context, StageResult, study
from objectaware.tracking import Tracker


class StagesFailedError(ExplainedError):
    """Stages of a study failed; the others are finished, and the same command goes on from here.

    Args:
        reasons: What each says, with its title.

    Attributes:
        report: The table without them, where it was a table's study.
    """

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(f"{len(reasons)} stages failed: {'; '.join(reasons)}")
        self.report: TableReport | None = None


class MarkedProgress(Progress):
    """Progress whose every line says at what scale it is.

    Args:
        mark: What it says.
    """

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = mark

    def line(self, text: str) -> None:
        """Writes a line that stays, with the mark unless the text begins with it."""
        super().line(text if text.startswith(self._mark) else f"{self._mark}: {text.lstrip()}")

    def update(self, text: str) -> None:
        """Shows where the stage stands."""
        # In a file it is a line like others.
        super().update(f"{self._mark}: {text}" if self._stream.isatty() else text)


@dataclass
class Outcome:
    """What became of the stages of a plan.

    Attributes:
        results: Of those that are finished.
        failures: What went wrong, by node: of those that failed, and of those that need them.
        errors: Of those that failed themselves.
    """

    results: dict[Node, StageResult] = field(default_factory=dict)
    failures: dict[Node, str] = field(default_factory=dict)
    errors: dict[Node, Exception] = field(default_factory=dict)

    def raise_failures(self, report: TableReport | None = None) -> None:
        """Raises what went wrong, if anything did.

        Args:
            report: The table without them.

        Raises:
            StagesFailedError: From the first error that its message does not explain, if there is one.
        """
        if self.errors:
            failed = StagesFailedError([self.failures[node] for node in self.errors])
            failed.report = report
            raise failed from next((error for error in self.errors.values() if not is_explained(error)), None)


def run_node(context: Context, workshop: Workshop, node: Node, results: Results) -> StageResult:
    """Run a node's stage, or reuse it where it is finished."""
    config = workshop.config(node, results)
    return computing_stage(config)(context, config, title=workshop.name(node))


def run_nodes(context: Context, workshop: Workshop, nodes: Sequence[Node], missing: Mapping[Node, str]) -> Outcome:
    """Runs the stages of a plan; those that were finished before are reused.

    A stage that fails takes those that need it with it, and no other.

    Args:
        context: What the stages share.
        workshop: What runs them.
        nodes: Each after what it needs.
        missing: Nodes that cannot run; they are left out.
    """
    outcome = Outcome()
    without_ray: list[Exception] = []

    def start_ray() -> None:
        try:
            context.services.start_ray()
        except Exception as error:
            without_ray.append(error)
            raise

    computing = replace(context, services=replace(context.services, start_ray=start_ray))
    for node in nodes:
        failed = next((outcome.failures[one] for one in needs(node) if one in outcome.failures), None)
        if failed is not None:
            outcome.failures[node] = failed
        elif node not in missing and is_stage(node):
            try:
                outcome.results[node] = run_node(computing, workshop, node, outcome.results)
            except Exception as error:  # raised by `raise_failures`, when the other stages are done
                if error in without_ray:
                    raise  # no other stage would fare better
                outcome.errors[node] = error
                outcome.failures[node] = f"{workshop.name(node)}: {type(error).__name__}: {error}"
                context.services.progress.line(f"failed: {outcome.failures[node]}")
    return outcome


def run_table(context: Context, workshop: Workshop, plan: TablePlan) -> TableReport:
    """Computes a table under one study, and logs it there.

    Args:
        context: What the stages share.
        workshop: What runs them.
        plan: The table's plan.

    Returns:
        The table; cells that could not be computed say why.

    Raises:
        InputError: None of its cells can be computed.
        StagesFailedError: Some stages failed; the table was logged without them.
    """
    cells = {place: [adapted(workshop, value) for value in values] for place, values in plan.cells.items()}
    nodes = ordered(value.node for values in cells.values() for value in values)
    missing = obstacles(workshop, nodes)
    if all(values[0].node in missing for values in cells.values()):
        reasons = "; ".join(dict.fromkeys(missing.values()))
        remedy = f"`objectaware reproduce {plan.table.label} --plan` says what it takes."
        raise InputError("table", plan.table.label, f"cannot be computed with what is here ({reasons})", remedy)
    with open_study(context, workshop, plan.table.label, plan.table.datasets, plan.seeds) as (context, parent):
        outcome = run_nodes(context, workshop, nodes, missing)
        reasons_by_node = {**missing, **outcome.failures}
        measured = {place: _measure(values, outcome.results, reasons_by_node) for place, values in cells.items()}
        report = TableReport(plan.table, measured, plan.seeds, workshop.scale.mark)
        _record(parent, report)
        outcome.raise_failures(report)
    return report


def adapted(workshop: Workshop, value: Value) -> Value:
    """A cell's value at the scale in use."""
    scale = workshop.scale
    return Value(scale.adapted(value.node), tuple(map(scale.path, value.paths)))


@contextmanager
def open_study(
    context: Context, workshop: Workshop, label: str, datasets: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[Context, Tracker]]:
    """Open the study of a table or figure; with the context that it yields, every line of progress says the scale."""
    mark = workshop.scale.mark
    described = {"label": label, "seeds": list(seeds), "scale": mark or "full"}
    key = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:20]
    if mark:
        context = replace(context, services=replace(context.services, progress=MarkedProgress(mark)))
    name = f"{label} ({mark})" if mark else label
    with study(context, "paper", name=name, key=key, dataset=mark or ", ".join(datasets), config=described) as opened:
        yield opened


def _measure(values: Sequence[Value], results: Mapping[Node, StageResult], reasons: Mapping[Node, str]) -> Measured:
    reason = next((reasons[value.node] for value in values if value.node in reasons), None)
    if reason is not None:
        return Measured(None, reason)
    return Measured.of([value.read(results[value.node].values) for value in values])


def _record(parent: Tracker, report: TableReport) -> None:
    """Logs the table, its cells and the report."""
    name = report.table.label + (f" ({report.mark})" if report.mark else "")
    parent.log_table(name, report.rows())
    numbers = {
        ".".join((report.table.label, *row, *column)): one.cell.mean
        for (row, column), one in report.measured.items()
        if one.cell is not None
    }
    parent.log_metrics(numbers)
    parent.log_text("report.md", report.markdown())
