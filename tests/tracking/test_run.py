from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_param

from objectaware.tracking.run import (
    fit_key,
    fit_text,
    flatten_config,
    table_columns,
    table_csv,
    table_json,
    tables_tag,
)

ROWS = [
    {"model": "baseline", "original": 60.0, "gap": math.nan},
    {"model": "mixup, p=0.4", "original": np.float32(44.5), "seeds": np.int64(3)},
]


def test_a_nested_configuration_becomes_flat() -> None:
    config = {
        "optimizer": {"lr": 0.03, "betas": [0.9, 0.999], "nesterov": False},
        "name": "demo",
        "none": None,
        "empty": {},
        "pairs": [{"a": 1}],
    }
    assert flatten_config(config) == {
        "optimizer.lr": "0.03",
        "optimizer.betas": "[0.9, 0.999]",
        "optimizer.nesterov": "False",
        "name": "demo",
        "none": "None",
        "empty": "{}",
        "pairs": '[{"a": 1}]',
    }


def test_long_names_are_cut_and_stay_apart() -> None:
    one, other = fit_key("x" * 300 + "1"), fit_key("x" * 300 + "2")
    assert len(one) == len(other) == 250
    assert one != other
    assert fit_key("x" * 250) == "x" * 250


def test_long_values_are_cut_visibly() -> None:
    assert flatten_config({"a": "x" * 6001})["a"] == "x" * 5997 + "..."
    assert flatten_config({"a": "x" * 6000})["a"] == "x" * 6000
    assert fit_text("abcdef", 5) == "ab..."


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), st.text() | st.integers() | st.none()))
def test_mlflow_takes_any_characters_and_lengths(config: dict[str, object]) -> None:
    for key, value in flatten_config({"section": config}).items():
        # MLflow's one other rule is about names that look like paths, which no configuration has.
        if "/" not in key:
            _validate_param(key, value)


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
