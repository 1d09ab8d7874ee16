"""Reads tables and figures out of the paper's LaTeX: just enough of the language for that one document."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_RULES = re.compile(r"\\(?:toprule|bottomrule|hline)|\\cmidrule(?:\([lr]+\))?\{[^}]*\}|\\rowcolor\{[^}]*\}")
_NUMBER = r"\d+(?:\.\d+)?"
_CELL = re.compile(
    rf"(?:\\textbf\{{(?P<bold>{_NUMBER})\}}|(?P<mean>{_NUMBER}))"
    rf"(?:\\stdv\{{(?P<std>{_NUMBER})\}})?"
    rf"\s*(?:\\(?P<direction>up|down)\{{-?(?P<gain>{_NUMBER})\}})?"
    r"\s*(?:\\hphantom\{8\})?"
)


@dataclass(frozen=True)
class LatexCell:
    """A number of a table, with its standard deviation and the gain printed behind it, where there are any.

    A loss is a negative gain; the paper writes it `\\down{0.44}` in some tables and `\\down{-0.44}` in others.
    """

    mean: float
    std: float | None
    gain: float | None


@dataclass(frozen=True)
class LatexTable:
    """A table as printed, comments left out: lines of cells in plain text above and below the first rule."""

    header: list[list[str]]
    body: list[list[str]]


def without_comments(source: str) -> str:
    """Drops what LaTeX does not print."""
    lines = [line for line in source.splitlines() if not line.lstrip().startswith("%")]
    return "\n".join(re.sub(r"(?<!\\)%.*", "", line) for line in lines)


def read_tables(source: str) -> dict[str, LatexTable]:
    """All tables of the document by their label without `tab:`."""
    source = without_comments(source)
    return {
        found[1]: _read_tabular(source[found.end() : source.index(r"\end{tabular}", found.end())])
        for found in re.finditer(r"\\label\{tab:([^}]*)\}", source)
    }


def read_figures(source: str) -> dict[str, list[str]]:
    """Captions of the parts of each figure, by its label without `fig:`, in the document's order."""
    figures: dict[str, list[str]] = {}
    for found in re.finditer(r"\\begin\{figure\}(.*?)\\end\{figure\}", without_comments(source), re.DOTALL):
        parts = re.findall(r"\\begin\{subfigure\}(.*?)\\end\{subfigure\}", found[1], re.DOTALL)
        captions = [re.search(r"\\caption\{(.*)\}", part) for part in parts]
        # The label of the whole figure is the last one; those of its parts come before it.
        label = re.findall(r"\\label\{fig:([^}]*)\}", found[1])[-1]
        figures[label] = [plain(re.sub(r"\}\\label.*", "", caption[1])) for caption in captions if caption]
    return figures


def read_cell(text: str) -> LatexCell | None:
    """Reads a cell of numbers; `-` is none.

    Raises:
        ValueError: Something in it is not accounted for.
    """
    if text == "-":
        return None
    found = _CELL.fullmatch(text)
    if found is None:
        raise ValueError(f"this is no number: {text}")
    gain = None if found["gain"] is None else float(found["gain"]) * (1 if found["direction"] == "up" else -1)
    return LatexCell(float(found["bold"] or found["mean"]), None if found["std"] is None else float(found["std"]), gain)


def plain(text: str) -> str:
    """Text without its mark-up; the arrows for the better direction are `↑` and `↓`."""
    text = re.sub(r"\\(?:citep|phantom)\{[^}]*\}", "", text)
    text = text.replace(r"\cuparrow", "↑").replace(r"\cdownarrow", "↓")
    text = text.replace(r"$p_\texttt{mix}$", "p_mix").replace(r"$\times$", "×").replace(r"$\checkmark$", "✓")
    return " ".join(text.replace(r"\%", "%").split())


def _read_tabular(source: str) -> LatexTable:
    content = source[source.index(r"\toprule") :]
    header, body = content.split(r"\midrule", 1)
    return LatexTable(_read_lines(header, plain), _read_lines(body.replace(r"\midrule", ""), str.strip))


def _read_lines(source: str, clean: Callable[[str], str]) -> list[list[str]]:
    lines = [line for line in _RULES.sub("", source).split(r"\\") if line.strip()]
    return [[clean(cell) for part in line.split("&") for cell in _spanned(part)] for line in lines]


def _spanned(cell: str) -> list[str]:
    found = re.fullmatch(r"\s*\\multicolumn\{(\d+)\}\{[^}]*\}\{(.*)\}\s*", cell, re.DOTALL)
    return [cell] if found is None else [found[2]] * int(found[1])
