"""Commands about the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from objectaware.commands.common import DEFAULTS, Common, CommonArguments, either_device, open_context, write_json
from objectaware.errors import InputError

if TYPE_CHECKING:
    from objectaware.distributed.cluster import Need
    from objectaware.paper.nodes import Node
    from objectaware.paper.report import TableReport
    from objectaware.stages.reproduce_nodes import Workshop
    from objectaware.stages.reproduce_scale import Scale


def list_paper(program: str, arguments: list[str]) -> None:
    """`objectaware reproduce list`."""

    def command(json: Path | None = None) -> None:
        """Lists the paper's tables and figures, what each shows, and the data sets that it takes.

        Args:
            json: File that the list is written to as data.
        """
        from objectaware.paper import TABLE_LABELS, Display, load_figures, load_table
        from objectaware.paper.show import format_list

        displays: dict[str, Display] = {label: load_table(label) for label in TABLE_LABELS}
        displays |= {f"figure:{figure.label}": figure for figure in load_figures()}
        shared = set(Display.model_fields) - {"label"}
        data = [{"name": name, **shown.model_dump(mode="json", include=shared)} for name, shown in displays.items()]
        write_json(Common(json=json), data)
        print(format_list(displays))
        print("`objectaware reproduce show TABLE` prints a table of the paper.")

    tyro.cli(command, prog=program, args=arguments)


def show_table(program: str, arguments: list[str]) -> None:
    """`objectaware reproduce show TABLE`."""

    def command(table: Annotated[str, tyro.conf.Positional], json: Path | None = None) -> None:
        """Prints a table of the paper, with gains computed from its numbers, and what it takes.

        Args:
            table: Label of the table, such as bg-main.
            json: File that the table is written to as data.
        """
        from objectaware.paper import gains, load_table
        from objectaware.paper.show import format_table

        loaded = load_table(table)
        counted = [{"row": row, "column": column, "gain": gain} for (row, column), gain in gains(loaded).items()]
        write_json(Common(json=json), {**loaded.model_dump(mode="json"), "gains": counted})
        print(format_table(loaded))

    tyro.cli(command, prog=program, args=arguments)


def reproduce(program: str, arguments: list[str]) -> None:
    """`objectaware reproduce TABLE`."""

    def command(
        table: Annotated[str, tyro.conf.Positional],
        common: CommonArguments = DEFAULTS,
        scale: Literal["full", "smoke"] = "full",
        seeds: int | None = None,
        recipes: Path | None = None,
    ) -> None:
        """Computes a table of the paper beside its numbers: what is finished is reused, what is missing is run.

        Args:
            table: Label of the table, such as bg-main; `objectaware reproduce list` shows them all.
            common: Settings of every command.
            scale: full: the paper's data sets and settings; smoke: the same plan on scenes, in minutes.
            seeds: Trainings behind a number; by default as many as in the paper, and one for smoke.
            recipes: Folder of the trainings' recipes; by default jobs/recipes of the working directory.
        """
        from objectaware.paper.plan import plan_table
        from objectaware.stages.reproduce import StagesFailedError, run_table
        from objectaware.stages.reproduce_nodes import Workshop

        planned = plan_table(table, num_seeds=1 if seeds is None and scale == "smoke" else seeds)
        workshop = Workshop(_smoke(common), recipes or Path("jobs/recipes"))
        with open_context(common, *_needs(workshop, planned.nodes())) as context:
            try:
                report = run_table(context, workshop, planned)
            except StagesFailedError as error:
                if error.report is not None:
                    _show(common, error.report)
                raise
            _show(common, report)
            print(f"MLflow UI: {context.tracking.ui_command()}")

    tyro.cli(command, prog=program, args=arguments)


def _show(common: Common, report: TableReport) -> None:
    write_json(common, {"label": report.table.label, "seeds": report.seeds, "cells": report.rows()})
    print(report.text())


def _smoke(common: Common) -> Scale:
    from objectaware.commands.common import storage_address
    from objectaware.data.storage import Storage
    from objectaware.stages.reproduce_scale import Smoke

    address = storage_address(common.storage)
    folder = Storage.from_uri(address).local_path()
    if folder is None:
        remedy = "Scenes are written to one: --storage runs."
        raise InputError("storage", address, "is not a local folder", remedy)
    return Smoke.build(folder / "scenes" / "reproduce")


def _needs(workshop: Workshop, nodes: list[Node]) -> list[list[Need]]:
    """Processes of the stages that run more than one."""
    from objectaware.config import LocalizeExecution
    from objectaware.distributed.localize import localize_needs
    from objectaware.distributed.pretrain import pretrain_needs
    from objectaware.paper.nodes import Pretrain

    trainings = [workshop.pretrain_config(node, "masks") for node in nodes if isinstance(node, Pretrain)]
    needs = [pretrain_needs(choice) for config in trainings for choice in either_device(config.execution)]
    return needs + [localize_needs(choice) for choice in either_device(LocalizeExecution())]
