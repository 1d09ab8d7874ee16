"""Commands about the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from objectaware.commands.common import Common, write_json


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
