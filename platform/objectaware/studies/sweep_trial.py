"""One trial of a sweep: its stages one after another, and what is kept of it."""

from __future__ import annotations

import hashlib
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from objectaware.data.storage import Storage
from objectaware.stages.progress import Progress
from objectaware.stages.registry import stage_named
from objectaware.stages.runner import Context, EpochWatch, Mode, Services, StageResult
from objectaware.studies.sweep_config import SweepConfig
from objectaware.studies.sweep_points import Trial, parameters_of, stage_config, value_of
from objectaware.tracking import Tracker, TrackingStore

TrialStatus = Literal["finished", "stopped", "failed"]
Report = Callable[[int, Mapping[str, float]], None]
"""Called with the number of an epoch, from 0, and its metrics; raises SystemExit where that has stopped the trial."""


@dataclass(frozen=True)
class TrialRecord:
    """What is kept of a trial that has ended.

    Attributes:
        trial: Its values and seed.
        status: `finished`, `stopped` by the scheduler, or `failed`.
        columns: The sweep's columns by name, where it finished.
        error: Why it failed.
        stages: Identity, folder and MLflow run of each of its finished stages.
    """

    trial: Trial
    status: TrialStatus
    columns: Mapping[str, float]
    error: str | None = None
    stages: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)


class Ledger:
    """The records of a sweep's trials, one file each, written as soon as a trial has ended.

    Args:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Storage) -> None:
        self._folder = folder.child("trials")

    def write(self, record: TrialRecord) -> None:
        """Keeps a record, in place of an earlier one of the same trial."""
        content = {**vars(record), "trial": vars(record.trial)}
        self._folder.write_json(f"{record.trial.key}.json", content)

    def read(self, trial: Trial) -> TrialRecord | None:
        """The record of a trial, if it has ended."""
        name = f"{trial.key}.json"
        return self._decode(name) if self._folder.exists(name) else None

    def all(self) -> list[TrialRecord]:
        """All records, in the order of their names."""
        return [self._decode(name) for name in self._folder.list_names()]

    def forget(self, trial: Trial) -> None:
        """Forgets the record of a trial, if there is one."""
        self._folder.delete(f"{trial.key}.json")

    def clear(self) -> None:
        """Forgets all records."""
        self._folder.delete_all()

    def _decode(self, name: str) -> TrialRecord:
        content = self._folder.read_json(name)
        return TrialRecord(**{**content, "trial": Trial(**content["trial"])})


class BegunStages:
    """The stages that a fresh sweep has begun anew, for all its trials' processes: a file each (`runner.Begun`).

    Args:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Storage) -> None:
        self._folder = folder.child("begun")

    def __contains__(self, key: object, /) -> bool:
        return self._folder.exists(self._name(key))

    def add(self, key: str, /) -> None:
        """Notes that one has been begun."""
        self._folder.write_json(self._name(key), key)

    def clear(self) -> None:
        """Forgets all."""
        self._folder.delete_all()

    def _name(self, key: object) -> str:
        return f"{hashlib.sha256(str(key).encode()).hexdigest()[:20]}.json"


@dataclass(frozen=True)
class TrialJob:
    """Runs trials; goes to the trials' processes.

    Attributes:
        config: The sweep.
        storage: Folder that all stages' folders lie in.
        tracking: MLflow store in use.
        parent: The sweep's run.
        ledger: Where it is noted how a trial ended.
        verify: Hash the inputs' content instead of their times.
        begun: Stages that are not to be computed anew; None computes none anew that is finished.
    """

    config: SweepConfig
    storage: Storage
    tracking: TrackingStore
    parent: Tracker
    ledger: Ledger
    verify: bool
    begun: BegunStages | None

    def __call__(self, values: Mapping[str, Any], report: Report) -> float:
        """Runs a trial's stages; what another trial is computing or has computed is not computed again.

        Args:
            values: Fields of the `Trial`.
            report: Told of the epochs that the scheduler compares.

        Returns:
            The sweep's metric.

        Raises:
            Exception: What a stage raised, after it was noted.
        """
        trial = Trial(**values)
        stopped = threading.Event()

        def on_epoch(epoch: int, metrics: Mapping[str, float]) -> None:
            try:
                report(epoch, metrics)
            except SystemExit:
                # The thread of the records ends; the training's own sees Ray go down under it a moment later.
                stopped.set()
                raise

        results: dict[str, StageResult] = {}
        try:
            for name in self.config.stages:
                results[name] = self._run_stage(trial, name, results, on_epoch, stopped)
            outcomes = _values(results)
            columns = {name: float(value_of(outcomes, path)) for name, path in self.config.all_columns().items()}
        except Exception as error:
            if stopped.is_set():
                raise  # the driver notes that
            text = "".join(traceback.format_exception_only(error)).strip()
            self.ledger.write(TrialRecord(trial, "failed", {}, text, _outline(results)))
            raise
        self.ledger.write(TrialRecord(trial, "finished", columns, None, _outline(results)))
        return float(value_of(outcomes, self.config.metric))

    def _run_stage(
        self,
        trial: Trial,
        name: str,
        results: Mapping[str, StageResult],
        on_epoch: Report,
        stopped: threading.Event,
    ) -> StageResult:
        config = self.config
        is_watched = config.scheduler is not None and config.scheduler.stage == name
        context = Context(
            Services(self.storage, self.tracking, Progress()),
            Mode(fresh=self.begun is not None, verify=self.verify, waits=True),
            parent=self.parent,
            computed=set() if self.begun is None else self.begun,
            watch=EpochWatch(on_epoch if is_watched else None, stopped.is_set),
        )
        varied = {parameter: trial.values[parameter] for parameter in parameters_of(config, name)}
        title = f"{name} {Trial(varied, trial.seed).title}"
        stage = stage_config(config, trial, name, _values(results))
        return stage_named(config.stages[name].stage)(context, stage, title=title)


def _values(results: Mapping[str, StageResult]) -> dict[str, Mapping[str, Any]]:
    return {name: result.values for name, result in results.items()}


def _outline(results: Mapping[str, StageResult]) -> dict[str, dict[str, str | None]]:
    return {
        name: {"identity": result.identity, "folder": result.folder.uri, "run_id": result.run_id}
        for name, result in results.items()
    }
