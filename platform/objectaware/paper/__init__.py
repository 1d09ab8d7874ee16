"""The paper as data: its tables and figures."""

from objectaware.paper.content import (
    TABLE_LABELS,
    Cell,
    Display,
    Figure,
    Key,
    Row,
    Table,
    gains,
    load_figures,
    load_table,
)

__all__ = ["TABLE_LABELS", "Cell", "Display", "Figure", "Key", "Row", "Table", "gains", "load_figures", "load_table"]
