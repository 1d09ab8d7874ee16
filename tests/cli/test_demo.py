"""The whole pipeline through the command line, on a tiny configuration: undisturbed, and killed at several moments."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import select
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from processes import processes_using, wait_for_end
from tiny_demo import COMMAND, RECIPE, run_demo

STAGES = {
    f"{name} seed 0"
    for name in (
        "pretrain baseline",
        "localize val contracam T1",
        "localize val contracam T2",
        "localize val without_negative_signal_removal T1",
        "localize val without_negative_signal_removal T2",
        "localize val untrained T1",
        "localize val untrained T2",
        "localization",
        "localize train for background_mixup",
        "pretrain background_mixup",
        "linear evaluation baseline",
        "linear evaluation background_mixup",
    )
}
Moment = Callable[[str], bool]


class _Demo:
    """A demo in a terminal, where progress is shown at once.

    Args:
        folder: Working directory.
        ray_folder: Where its Ray keeps its files; tells its processes from those of others.
    """

    def __init__(self, folder: Path, ray_folder: Path) -> None:
        ray_folder.mkdir()
        self._screen, terminal = pty.openpty()
        environment = {**os.environ, "RAY_TMPDIR": str(ray_folder)}
        self._process = subprocess.Popen(
            COMMAND, cwd=folder, env=environment, stdout=terminal, stderr=terminal, start_new_session=True
        )
        os.close(terminal)

    def kill_at(self, moment: Moment) -> str:
        """Kills the command, and no other process of its Ray, as soon as the moment has come; gives its output."""
        output = self._read(until=moment)
        assert moment(output), f"ended before the moment came:\n{output}"
        self._process.kill()
        self._process.wait()
        os.close(self._screen)
        return output

    def finish(self) -> str:
        """Waits for the end and gives the output."""
        output = self._read(until=lambda output: False)
        assert self._process.wait() == 0, output
        os.close(self._screen)
        return output

    def _read(self, *, until: Moment) -> str:
        content = b""
        while True:
            # Files are looked at every tenth of a second, even while nothing is written.
            if select.select([self._screen], [], [], 0.1)[0]:
                try:
                    content += os.read(self._screen, 65536)
                except OSError as error:  # nobody holds the terminal any more
                    if error.errno != errno.EIO:
                        raise
                    return content.decode()
            output = content.decode(errors="ignore")
            if until(output):
                return output


def _moments(runs: Path) -> list[Moment]:
    """Moments in the order in which they come, one or more in every kind of stage."""
    return [
        lambda output: "build scenes seed 0 …" in output,
        lambda output: any(runs.glob("pretrain/*/train/epoch_0000")),
        lambda output: "localize val contracam T1 seed 0 …" in output,
        lambda output: "64/144 images" in output,
        lambda output: "linear evaluation baseline seed 0 …" in output,
    ]


def _titles(output: str, pattern: str) -> set[str]:
    """Stages of which a line of the output speaks in this way."""
    lines = re.split(r"[\r\n]+", output)
    return {stage for stage in STAGES if any(re.match(re.escape(stage) + pattern, line) for line in lines)}


def _check_nothing_was_done_twice(outputs: list[str]) -> None:
    done: set[str] = set()
    for output in outputs:
        assert not _titles(output, " …") & done
        assert _titles(output, ": finished before, reused") >= (done if output is outputs[-1] else set())
        done |= _titles(output, ": done in")
    assert _titles(outputs[-1], ": (finished before, reused|done in)") == STAGES


def _check_records(runs: Path) -> None:
    """One finished run a stage and one for the demo, each with every step of a metric once."""
    client = MlflowClient(f"sqlite:///{runs / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("objectaware")
    assert experiment is not None
    recorded: list[Run] = list(client.search_runs([experiment.experiment_id]))
    assert {run.info.status for run in recorded} == {"FINISHED"}
    names = Counter(run.info.run_name for run in recorded)
    assert names == Counter({*STAGES, "demo single-object, seeds 0"})
    for run in recorded:
        for key in run.data.metrics:
            steps = [metric.step for metric in client.get_metric_history(run.info.run_id, key)]
            assert len(steps) == len(set(steps)), (run.info.run_name, key, steps)


def _numbers(folder: Path) -> dict[str, Any]:
    """All results that do not depend on how busy the machine was."""
    results = json.loads((folder / "out.json").read_text())
    return {name: value for name, value in results.items() if name not in ("seconds", "peak_memory_mib")}


def _wait_for_end(ray_folders: Sequence[Path]) -> None:
    """Waits until no process uses the folders of killed or finished commands."""
    for folder in ray_folders:
        # Those that look after the command end with it, the others once they notice that these are gone.
        # One that was about to start another when it was looked at has left that one behind.
        while left := processes_using(folder):
            for process_id in left:
                wait_for_end(process_id, seconds=60)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.chaos(fault="the driver killed, five times", holds="it ends as one that never was")
def test_a_demo_that_is_killed_again_and_again_ends_as_one_that_never_was(
    tmp_path: Path, clean_environment: Path, finished_demo: Path
) -> None:
    ray_folders = [clean_environment / f"k{number}" for number in range(6)]
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    # Each is started while what the one before has left is still going down, as a user would.
    outputs = [
        _Demo(tmp_path, ray_folder).kill_at(moment)
        for moment, ray_folder in zip(_moments(tmp_path / "runs"), ray_folders[:5], strict=True)
    ]
    # The last one is begun when the others' processes have gone. Ray gives its own 30 seconds to start, which five
    # dying Rays on a busy machine used up twice.
    _wait_for_end(ray_folders[:5])
    outputs.append(_Demo(tmp_path, ray_folders[5]).finish())
    _check_nothing_was_done_twice(outputs)
    _check_records(tmp_path / "runs")
    _wait_for_end(ray_folders[5:])
    assert _numbers(tmp_path) == _numbers(finished_demo)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_runs_and_its_second_run_computes_nothing(finished_demo: Path) -> None:
    first = _numbers(finished_demo)
    localization = first["localization"]
    assert list(localization) == ["contracam", "without_negative_signal_removal", "untrained", "baselines"]
    assert list(localization["contracam"]) == list(first["ratio_to_best_baseline"]) == ["1", "2"]
    assert len(localization["baselines"]) == 4
    for cells in (cells for rows in localization.values() for cells in rows.values()):
        assert [(name, set(values)) for name, values in cells.items()] == [
            ("soft", {"miou", "mask_share"}),
            ("crf", {"miou", "mask_share"}),
        ]
    background = first["background"]
    assert list(background) == ["baseline", "background_mixup"]
    assert {"original", "mixed_same", "mixed_rand", "only_fg", "bg_gap"} <= background["baseline"].keys()
    assert (finished_demo / "runs" / "demo-single-object.md").exists()
    output = run_demo(finished_demo)
    assert output.count("finished before, reused") == len(STAGES)
    assert _numbers(finished_demo) == first
    runs = finished_demo / "runs"
    *_, cells, rule, report, ui = output.splitlines()
    assert cells.split()[0] in first["background"]["baseline"]
    assert set(rule) == {"-"}
    assert report == f"report: {runs / 'demo-single-object.md'}"
    assert re.fullmatch(rf"MLflow UI: (\S*/)?objectaware ui --storage {re.escape(str(runs))}", ui)
