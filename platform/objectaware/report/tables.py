"""Tables as text, for the terminal and as Markdown: any numbers, the paper's beside measured ones, and the demo's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from objectaware.paper import Cell, Display, Key, Place, Table, gains

if TYPE_CHECKING:
    from objectaware.evaluate.linear import PairedDifference

Rows = Mapping[str, Mapping[str, float]]
"""Cells by row and column. Rows and columns appear in the order of their first occurrence."""

MISSING = "–"
"""Text in place of a missing number."""
NOT_COMPARABLE = "n/c"
"""Text beside a measured number that cannot be compared with the paper's."""


def aligned(lines: Sequence[Sequence[str]], is_text: Sequence[bool]) -> list[str]:
    """Lay cells out in columns.

    Args:
        lines: The texts of the cells, line by line.
        is_text: Whether each column holds text, which is aligned left, or numbers, which are aligned right.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(line, widths, is_text, strict=True)
        ).rstrip()
        for line in lines
    ]


def ruled(lines: Sequence[Sequence[str]], *, num_names: int = 1, num_headers: int = 1) -> list[str]:
    """Lay cells out in columns between rules.

    Args:
        lines: The texts of the cells, line by line.
        num_names: Columns from the left that are names; the others are numbers.
        num_headers: Lines from the top that name the columns.
    """
    text = aligned(lines, [place < num_names for place in range(len(lines[0]))])
    rule = "-" * max(map(len, text))
    return [rule, *text[:num_headers], rule, *text[num_headers:], rule]


def markdown(lines: Sequence[Sequence[str]], *, num_names: int = 1) -> str:
    """Format cells as a table in Markdown.

    Args:
        lines: The texts of the cells, line by line; the first line names the columns.
        num_names: Columns from the left that are names; the others are numbers.
    """
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    rule = [":--" if place < num_names else "--:" for place in range(len(lines[0]))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [escaped[0], rule, *escaped[1:]])


def format_table(title: str, rows: Rows, *, digits: int = 1, deviations: Rows | None = None) -> str:
    """Format numbers by row and column: the title, the columns' names, and one line for each row.

    Args:
        title: Text above the table.
        rows: The cells. A cell that is absent or NaN is shown as a dash.
        digits: Number of decimals.
        deviations: Standard deviations of the same cells, shown after `±`; some may be absent.
    """
    return "\n".join([title, *ruled(_cells(rows, digits, deviations))])


def to_markdown(rows: Rows, *, digits: int = 1, deviations: Rows | None = None) -> str:
    """Format numbers as a table in Markdown; the arguments are those of `format_table`."""
    return markdown(_cells(rows, digits, deviations))


def format_rows(rows: Sequence[Mapping[str, object]]) -> str:
    """Format rows of data, such as those of MLflow's tables: numbers aligned right, words aligned left."""
    lines, is_text = _row_cells(rows)
    return "\n".join(aligned(lines, is_text))


def report_of(title: str, tables: Mapping[str, Sequence[Mapping[str, object]]]) -> str:
    """Format rows of data as a page in Markdown: a title, and each table that has rows, under its name."""
    parts = [f"# {title}"]
    for name, rows in tables.items():
        if rows:
            parts += [f"{name}:", markdown(_row_cells(rows)[0])]
    return "\n\n".join(parts) + "\n"


def _row_cells(rows: Sequence[Mapping[str, object]]) -> tuple[list[list[str]], list[bool]]:
    """Return the texts of rows of data, the columns' names first, and whether each column holds text."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, *([_text(row.get(column)) for column in columns] for row in rows)]
    return lines, [not all(isinstance(row.get(column), int | float | None) for row in rows) for column in columns]


def table_records(rows: Rows, deviations: Rows | None = None) -> list[dict[str, Any]]:
    """Return a table as rows of data, for MLflow: `row`, its cells, and after them their deviations as `COLUMN std`."""
    spread = deviations or {}
    return [
        {"row": row, **cells, **{f"{column} std": value for column, value in spread.get(row, {}).items()}}
        for row, cells in rows.items()
    ]


def format_number(mean: float | None, std: float | None, digits: int) -> str:
    """Format a number, with its standard deviation if there is one; a dash for None and NaN."""
    if mean is None or math.isnan(mean):
        return MISSING
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def _cells(rows: Rows, digits: int, deviations: Rows | None) -> list[list[str]]:
    """Return the texts of all cells; the first line names the columns, and the first column names the rows."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = [["", *columns]]
    for name, row in rows.items():
        spread = {} if deviations is None else deviations.get(name, {})
        lines.append([name, *(format_number(row.get(column), spread.get(column), digits) for column in columns)])
    return lines


def _text(value: object) -> str:
    if value is None:
        return MISSING
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_list(displays: Mapping[str, Display], missing: Mapping[str, Sequence[str]]) -> str:
    """List tables or figures: name, caption, the data sets that each one needs, and what is missing here.

    Args:
        displays: Tables or figures by the names to show.
        missing: By the same names, the data sets and published networks that are not here.
    """
    width = max(map(len, displays))
    lines = []
    for name, display in displays.items():
        lines.append(f"{name:{width}}  {display.caption}")
        lines.append(f"{'':{width}}  data: {', '.join(display.datasets)}")
        lacking = ", ".join(missing[name])
        lines.append(f"{'':{width}}  {f'not here: {lacking}' if lacking else 'can run: all of it is here'}")
    return "\n".join(lines)


def format_paper_table(table: Table) -> str:
    """Format a table of the paper: its numbers with their gains, its data and trainings, and notes."""
    counted, lines = gains(table), _column_lines(table, table.columns)
    for row in table.rows:
        cells = zip(table.columns, row.cells, strict=True)
        texts = [_format_cell(cell, counted.get((row.name, column)), table.num_digits) for column, cell in cells]
        lines.append([*row.name, *texts])
    title = f"{table.label}: {table.caption}\n{table.measure}{'' if table.unit == '1' else f' ({table.unit})'}"
    body = ruled(lines, num_names=len(table.row_headers), num_headers=len(table.column_headers))
    return "\n".join([title, *body, *_footnotes(table)])


def _column_lines(table: Table, columns: Sequence[Key], *, extra: Sequence[str] = ()) -> list[list[str]]:
    """Return one line per column header; the last line also names the row headers.

    Args:
        table: The table.
        columns: Names of the columns to show.
        extra: Further names after those of the row headers.
    """
    last = len(table.column_headers) - 1
    names = [*table.row_headers, *extra]
    return [
        [*(names if depth == last else [""] * len(names)), *parts]
        for depth, parts in enumerate(zip(*columns, strict=True))
    ]


def _format_cell(cell: Cell | None, gain: float | None, digits: int) -> str:
    """Format a number, with its deviation and gain if it has them; a dash for None."""
    if cell is None:
        return MISSING
    return format_number(cell.mean, cell.std, digits) + ("" if gain is None else f" ({gain:+.{digits}f})")


def _footnotes(table: Table) -> list[str]:
    exceptions = f"; lower in {', '.join(table.lower_is_better)}" if table.lower_is_better else ""
    lines = [f"{table.better} is better{exceptions}", f"trainings behind a number: {table.num_trials}"]
    for misprint in table.misprinted_gains:
        place = ", ".join((*misprint.row, *misprint.column))
        lines.append(f"misprinted in the paper: the gain of {place} as {misprint.printed:+.{table.num_digits}f}")
    added = [", ".join(name) for name in (*table.added_rows, *table.added_columns)]
    lines += [f"not in the paper, but computed beside it: {name}" for name in added]
    lines.append(f"data: {', '.join(table.datasets)}")
    lines += [f"training: {training}" for training in table.trainings]
    lines += [f"published network: {network}" for network in table.published_networks]
    return lines + ([f"note: {table.notes}"] if table.notes else [])


@dataclass(frozen=True)
class TableReport:
    """A table of the paper beside measured numbers.

    Attributes:
        table: The paper's table.
        measured: By row and column, the measured number with its standard deviation (of the sample) over several
            seeds, or the reason why it is missing. There is nothing where the paper has a dash.
        seeds: Seeds of the trainings behind each number.
        mark: Name of the scale, a prefix of every line; empty at full scale.
        protocol: How linear evaluations were done, `paper` or `official`.
        gains: Differences over the same seeds from the training that a cell is compared with, by row and column.
        incomparable: By row and column, the reasons why a measured number cannot be compared with the paper's.
    """

    table: Table
    measured: Mapping[Place, Cell | str]
    seeds: tuple[int, ...]
    mark: str = ""
    protocol: str = "paper"
    gains: Mapping[Place, PairedDifference] = field(default_factory=dict)
    incomparable: Mapping[Place, Sequence[str]] = field(default_factory=dict)

    def difference(self, place: Place) -> float | None:
        """Return the measured number minus the paper's, in the table's unit.

        Returns:
            None if one of the numbers is missing, or if they cannot be compared.
        """
        printed, measured = self.table.all_cells()[place], self.measured.get(place)
        if printed is None or not isinstance(measured, Cell) or self.incomparable.get(place):
            return None
        return measured.mean - printed.mean

    def remarks(self, place: Place) -> tuple[str, ...]:
        """Return the reasons why a measured number is not compared with one of the paper's; empty if it is."""
        if not isinstance(self.measured.get(place), Cell):
            return ()
        added = ("ours, the paper has no such number",) if self.table.is_added(place) else ()
        return (*added, *self.incomparable.get(place, ()))

    def title(self) -> str:
        """Return the table's label with the protocol."""
        return f"{self.table.label}, {self.protocol} protocol"

    def text(self) -> str:
        """Format the table with three lines per row, or four if there are gains, each line with the mark."""
        table = self.table
        lines = ruled(self._lines(), num_names=len(table.row_headers) + 1, num_headers=len(table.column_headers))
        unit = "" if table.unit == "1" else f" ({table.unit})"
        head = [f"{self.title()}: {table.caption}", f"{table.measure}{unit}; {table.better} is better"]
        start = f"{self.mark} | " if self.mark else ""
        return "\n".join(start + line for line in [*head, *lines, *self.notes()])

    def markdown(self) -> str:
        """Format the same as a Markdown page."""
        table = self.table
        body = self._lines()
        header, rows = body[: len(table.column_headers)], body[len(table.column_headers) :]
        titles = [" ".join(filter(None, column)) for column in zip(*header, strict=True)]
        cells = markdown([titles, *rows], num_names=len(table.row_headers) + 1)
        mark = f" ({self.mark})" if self.mark else ""
        notes = "\n".join(f"- {note}" for note in self.notes())
        return f"# {self.title()}{mark}\n\n{table.caption}. {table.measure}.\n\n{cells}\n\n{notes}\n"

    def notes(self) -> list[str]:
        """Return the lines below the table: seeds, missing cells with their reasons, and the paper's notes."""
        seeds = ", ".join(map(str, self.seeds))
        lines = [f"seeds of the trainings: {seeds} (the paper has {self.table.num_trials})"]
        reasons = Counter(one for one in self.measured.values() if isinstance(one, str))
        lines += [f"{number} cells missing: {reason}" for reason, number in reasons.items()]
        if self.gains:
            compared = self.table.baseline or self.table.reference
            named = ", ".join(f"{header} {value}" for header, value in compared.items())
            lines.append(f"gain: difference from {named} with the same seed, mean ± standard deviation over the seeds")
        remarks = Counter(remark for place in self.table.all_cells() for remark in self.remarks(place))
        lines += [f"{number} cells {NOT_COMPARABLE} (not comparable): {one}" for one, number in remarks.items()]
        return lines + ([f"note: {self.table.notes}"] if self.table.notes else [])

    def rows(self) -> list[dict[str, Any]]:
        """Return one row of data per cell: its names, the paper's number, the measured one, their difference, and gain.

        The gain has columns of its own, also for each seed, if the table has gains. `not comparable` holds the reasons
        of cells that are not compared, and is empty for all others.
        """
        rows = []
        for (row, column), printed in self.table.all_cells().items():
            measured = self.measured.get((row, column), "the paper has none")
            paper, paper_std = printed or (None, None)
            mean, std = (None, None) if isinstance(measured, str) else measured
            rows.append(
                {
                    **({"scale": self.mark} if self.mark else {}),
                    **dict(zip(self.table.row_headers, row, strict=True)),
                    **dict(zip(self.table.column_headers, column, strict=True)),
                    "paper": paper,
                    "paper std": paper_std,
                    "measured": mean,
                    "measured std": std,
                    "difference": self.difference((row, column)),
                    **self._gain_columns((row, column)),
                    "not comparable": "; ".join(self.remarks((row, column))),
                    "missing": measured if isinstance(measured, str) else "",
                }
            )
        return rows

    def _gain_columns(self, place: Place) -> dict[str, float | None]:
        if not self.gains:
            return {}
        names = ["gain", "gain std", *(f"gain seed {seed}" for seed in self.seeds)]
        gain = self.gains.get(place)
        if gain is None:
            return dict.fromkeys(names)
        return dict(zip(names, (gain.mean, gain.std, *gain.by_seed), strict=True))

    def _lines(self) -> list[list[str]]:
        """Return the texts of all cells: the columns' names, then per row the lines paper, measured, difference, gain.

        There is no line of gains if the table has none. An added row has one line of numbers, since the paper has none
        there.
        """
        table, digits = self.table, self.table.num_digits
        lines = _column_lines(table, table.all_columns, extra=("",))
        cells = table.all_cells()
        for row in table.all_rows:
            places = [(row, column) for column in table.all_columns]
            measured = [self._text(place) for place in places]
            if row in table.added_rows:
                lines.append([*row, "measured", *measured])
                continue
            gaps = map(self.difference, places)
            differences = ["" if gap is None else f"{gap:+.{digits}f}" for gap in gaps]
            blank = [""] * len(row)
            lines.append([*row, "paper", *(_format_cell(cells[place], None, digits) for place in places)])
            lines.append([*blank, "measured", *measured])
            lines.append([*blank, "difference", *differences])
            if self.gains:
                found = map(self.gains.get, places)
                texts = ["" if gain is None else f"{gain.mean:+.{digits}f} ± {gain.std:.{digits}f}" for gain in found]
                lines.append([*blank, "gain", *texts])
        return lines

    def _text(self, place: Place) -> str:
        measured = self.measured.get(place)
        if measured is None:
            return MISSING
        if isinstance(measured, str):
            return "missing"
        text = _format_cell(measured, None, self.table.num_digits)
        return f"{text} {NOT_COMPARABLE}" if self.remarks(place) else text


class DemoTable(NamedTuple):
    """One table of the demo.

    Attributes:
        name: Its name in MLflow.
        title: Text above the table.
        rows: Cells by row and column.
        deviations: Standard deviations of the same cells; None for a single seed.
        digits: Number of decimals.
    """

    name: str
    title: str
    rows: Rows
    deviations: Rows | None
    digits: int


def demo_tables(results: Mapping[str, Any]) -> list[DemoTable]:
    """Make the tables of a demo's results.

    Args:
        results: Result of `run_demo`: for one seed, or `mean`, `std` and `change` over several seeds.

    Returns:
        One table of localization, and one of linear evaluation with the change through each debiased training.
    """
    kind = "background" if "background" in results.get("mean", results) else "object_crop"
    means = _demo_rows(results.get("mean", results), kind)
    deviations = _demo_rows(results["std"], kind) if "std" in results else {}
    for test, row in means[kind].items():
        for policy in [name for name in row if name != "baseline"]:
            row[f"{policy} change"] = row[policy] - row["baseline"]
            if deviations:
                deviations[kind][test][f"{policy} change"] = results["change"][policy][test]["std"]
    center_box = "the best center box knows the size that fits best"
    titles = {
        "localization": (f"Masks on scenes, before and after the CRF, T iterations ({center_box}: an oracle)", 3),
        kind: ("Accuracy of a linear classifier on scenes, per cent", 1),
    }
    return [
        DemoTable(name, title, means[name], deviations.get(name), digits) for name, (title, digits) in titles.items()
    ]


def _demo_rows(numbers: Mapping[str, Any], kind: str) -> dict[str, dict[str, dict[str, float]]]:
    """Arrange scores in one row per localizer, and accuracies in one row per test set and one column per training."""
    trainings = numbers[kind]
    tests = next(iter(trainings.values()))
    localization: dict[str, dict[str, float]] = {}
    for row, cells in _localizers(numbers["localization"]).items():
        localization[row] = {
            f"{title} {column}": cells[masks][measure]
            for masks, title in (("soft", "soft"), ("crf", "CRF"))
            for measure, column in (("miou", "mIoU"), ("mask_share", "share"))
        }
    return {
        "localization": localization,
        kind: {test: {name: values[test] for name, values in trainings.items()} for test in tests},
    }


def _localizers(localization: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the scores of masks by the name of their row."""
    return {
        row if localizer == "baselines" else f"{localizer} T{row}": cells
        for localizer, rows in localization.items()
        for row, cells in rows.items()
    }


def best_baseline(localization: Mapping[str, Any]) -> tuple[str, float]:
    """Return the row of the baseline with the greatest mIoU after the CRF, and this mIoU.

    Args:
        localization: The demo's scores of masks. The untrained network is one of the baselines.
    """
    baselines = _localizers({name: localization[name] for name in ("baselines", "untrained")})
    scores = {row: float(cells["crf"]["miou"]) for row, cells in baselines.items()}
    best = max(scores, key=scores.__getitem__)
    return best, scores[best]


def _comparison(results: Mapping[str, Any]) -> str:
    """Return the sentence that compares ContraCAM with the best baseline, both after the CRF."""
    numbers, deviations = results.get("mean", results), results.get("std", {}).get("ratio_to_best_baseline", {})
    row, score = best_baseline(numbers["localization"])
    ratios = ", ".join(
        f"{format_number(ratio, deviations.get(count), 2)} at {count}"
        for count, ratio in numbers["ratio_to_best_baseline"].items()
    )
    of_seed = "each seed's best baseline" if deviations else "the best baseline"
    return (
        f"ContraCAM + CRF has this many times the mIoU of {of_seed} + CRF, by iterations: {ratios}. "
        f"The best baseline{' on average' if deviations else ''} is {row} ({score:.3f})."
    )


def terminal_report(results: Mapping[str, Any]) -> str:
    """Format the tables as plain text."""
    tables = demo_tables(results)
    texts = [format_table(t.title, t.rows, digits=t.digits, deviations=t.deviations) for t in tables]
    return "\n\n".join([texts[0], _comparison(results), *texts[1:]])


def markdown_report(results: Mapping[str, Any], *, variant: str) -> str:
    """Format the tables as a Markdown page."""
    mean = results.get("mean", results)
    seeds = [result["seed"] for result in results.get("seeds", [results])]
    parts = [f"# Demo on scenes, {variant}; seeds {', '.join(map(str, seeds))}"]
    for table in demo_tables(results):
        parts += [table.title + ":", to_markdown(table.rows, digits=table.digits, deviations=table.deviations)]
        if table.name == "localization":
            parts.append(_comparison(results))
    parts.append(
        f"{mean['seconds']:.0f} s per seed, peak memory {mean['peak_memory_mib']:.0f} MiB. Scenes are made by code; "
        "these numbers are not comparable with published ones."
    )
    return "\n\n".join(parts) + "\n"
