"""Rates as a file: what was written is read, anything else is refused with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from objectaware.errors import InputError
from objectaware.planning.model import Work, read_rates, write_rates
from planned import rates


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "made" / "rates.json"
    write_rates(path, rates())
    assert read_rates(path) == rates()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"source": "x", "device": "tpu"}'])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rates.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"does not hold rates .*objectaware plan measure --out FILE"):
        read_rates(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        read_rates(tmp_path / "rates.json")


def test_what_takes_less_than_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    write_rates(path, rates())
    path.write_text(path.read_text().replace('"crf": 0.09', '"crf": -0.09'))
    with pytest.raises(InputError, match="crf"):
        read_rates(path)


def test_what_was_not_measured_is_named() -> None:
    assert rates().iteration("resnet18", 2) == Work(gpu_seconds=0.004)
    with pytest.raises(InputError, match="backbone = resnet50: is not among the rates, which are of resnet18"):
        rates().network("resnet50")
    with pytest.raises(InputError, match="method = byol: is not among the rates of resnet18, which are of moco"):
        rates().training("resnet18", "byol")
    with pytest.raises(InputError, match="expansion = 4: is not among the rates of resnet18, which are of 1, 2"):
        rates().iteration("resnet18", 4)
