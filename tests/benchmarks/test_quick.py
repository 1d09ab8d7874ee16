"""Each benchmark runs at its quick size and writes what it measured; how fast it was is not looked at."""

from __future__ import annotations

import csv
import importlib
import math
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = {"floor_networks", "floor_stages", "harness", "inputs", "page", "roof"}
NUM_ROWS = {
    "augmentation": 2,
    "contracam_cost": 2,
    "contracam_peers": 2,
    "crf_throughput": 1,
    "decoding": 3,
    "driver_memory": 2,
    "floors": 14,
    "linear_evaluation": 1,
    "localization_scale": 2,
    "mask_measures": 4,
    "planner": 3,
    "pretrain_overhead": 2,
    "training_step": 4,
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(NUM_ROWS))
def test_a_benchmark_runs_at_its_quick_size(
    name: str, ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in this process and on its Ray: a process and a Ray for each cost more than what they run."""
    monkeypatch.chdir(tmp_path)
    out = tmp_path / f"{name}.csv"
    # 1 is a benchmark that misses its limit, which at this size says nothing; a crash is an exception.
    assert importlib.import_module(name).main(["--quick", "--out", str(out)]) in (0, 1)
    rows = list(csv.DictReader(out.open(newline="")))
    assert len(rows) == NUM_ROWS[name]
    assert all(math.isfinite(float(row["ratio" if "ratio" in row else "share"])) for row in rows)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_every_benchmark_is_tried_here_and_in_make_bench() -> None:
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - PARTS
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    (listed,) = (line for line in makefile.splitlines() if line.startswith("BENCHMARKS :="))
    assert scripts == set(NUM_ROWS) == set(listed.split()[2:])
