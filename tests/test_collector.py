from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from objectaware import collector


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_the_collector_looks_less_often_until_work_begins_and_then_only_at_what_is_new() -> None:
    gc.set_threshold(700, 10, 10)
    collector.relax()
    assert gc.get_threshold()[0] > 10_000
    frozen = gc.get_freeze_count()
    collector.restore()
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() > frozen


def test_what_others_have_set_stays() -> None:
    gc.set_threshold(123, 4, 5)
    frozen = gc.get_freeze_count()
    collector.relax()
    collector.restore()
    assert gc.get_threshold() == (123, 4, 5)
    assert gc.get_freeze_count() == frozen
