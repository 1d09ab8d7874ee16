from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_param

from objectaware.tracking.limits import fit_key, fit_text, flatten_config


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
