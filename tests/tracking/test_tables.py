from __future__ import annotations

import csv
import io
import json
import math

import numpy as np

from objectaware.tracking.tables import table_columns, table_csv, table_json, tables_tag

ROWS = [
    {"model": "baseline", "original": 60.0, "gap": math.nan},
    {"model": "mixup, p=0.4", "original": np.float32(44.5), "seeds": np.int64(3)},
]


def test_columns_are_those_of_all_rows() -> None:
    assert table_columns(ROWS) == ["model", "original", "gap", "seeds"]
    assert table_columns([]) == []


def test_json_is_what_mlflow_writes_and_has_no_numbers_that_a_browser_refuses() -> None:
    table = json.loads(table_json(ROWS), parse_constant=lambda name: f"not JSON: {name}")
    assert table == {
        "columns": ["model", "original", "gap", "seeds"],
        "data": [["baseline", 60.0, None, None], ["mixup, p=0.4", 44.5, None, 3]],
    }


def test_csv_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(table_csv(ROWS).decode())))
    assert rows == [
        {"model": "baseline", "original": "60.0", "gap": "nan", "seeds": ""},
        {"model": "mixup, p=0.4", "original": "44.5", "gap": "", "seeds": "3"},
    ]


def test_the_tag_lists_every_table_once() -> None:
    one = tables_tag(None, "tables/a.json")
    two = tables_tag(one, "tables/b.json")
    assert tables_tag(two, "tables/a.json") == two
    assert json.loads(two) == [
        {"path": "tables/a.json", "type": "table"},
        {"path": "tables/b.json", "type": "table"},
    ]
