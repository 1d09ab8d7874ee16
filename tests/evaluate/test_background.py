"""BG-Gap and the variants."""

from __future__ import annotations

import pytest

from objectaware.data.sets import backgrounds_challenge
from objectaware.errors import InputError
from objectaware.evaluate.background import VARIANTS, bg_gap


def test_gap_of_the_papers_baseline() -> None:
    assert bg_gap({"original": 89.17, "mixed_same": 80.98, "mixed_rand": 60.34}) == pytest.approx(20.64)


@pytest.mark.parametrize("missing", ["mixed_same", "mixed_rand"])
def test_missing_variant_is_named(missing: str) -> None:
    accuracies = {"mixed_same": 80.0, "mixed_rand": 60.0}
    del accuracies[missing]
    with pytest.raises(InputError, match=f"lack {missing}"):
        bg_gap(accuracies)


def test_variants_are_those_of_the_data_set_in_the_order_of_the_paper() -> None:
    assert sorted(VARIANTS) == sorted(backgrounds_challenge.VARIANTS)
    assert VARIANTS[:3] == ("original", "only_bg_b", "only_bg_t")
    assert VARIANTS[-3:] == ("mixed_same", "mixed_rand", "mixed_next")
