"""Commands that list, show, compare and delete runs, show them in the MLflow UI, and check the installation."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from objectaware.commands.common import DEFAULTS, Common, CommonArguments, require_json, storage_address, write_json
from objectaware.commands.registry import command

if TYPE_CHECKING:
    from objectaware.stages.runs import StoredRun
    from objectaware.tracking.store import RecordedRun


@command("runs list", "", "List the runs in the storage.")
def list_runs(common: CommonArguments = DEFAULTS, stage: str | None = None) -> None:
    """List the runs in the storage with their state in MLflow, and studies that only MLflow has.

    Args:
        common: Settings of every command.
        stage: Only list runs of this stage: pretrain, localize, linear, localization, sweep.
    """
    from objectaware.report.tables import format_rows
    from objectaware.stages.runs import listed

    rows = [row for row in listed(*_all(common)) if stage in (None, row["stage"])]
    write_json(common, rows)
    print(format_rows(rows) if rows else "There are no runs.")


@command("runs show", "RUN", "Show a run, what it was made from, and what was made from it.")
def show_run(identity: Positional[str], common: CommonArguments = DEFAULTS) -> None:
    """Show one run: its configuration, results and metrics, its sources, and the runs made from it.

    Args:
        identity: The run's identity, or its beginning, as `runs list` shows it.
        common: Settings of every command.
    """
    import yaml

    from objectaware.stages.runs import find_run, shown

    stored, recorded = _all(common)
    values = shown(stored, find_run(stored, identity), recorded)
    write_json(common, values)
    print(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120).rstrip())


@command("runs compare", "RUN RUN", "Compare two runs.")
def compare_runs(identities: Positional[tuple[str, ...]], common: CommonArguments = DEFAULTS) -> None:
    """Show runs side by side: the differences of their configurations, and their numbers.

    Args:
        identities: The runs' identities, or their beginnings.
        common: Settings of every command.
    """
    from objectaware.report.tables import format_rows
    from objectaware.stages.runs import compared, find_run

    stored, recorded = _all(common)
    rows = compared([find_run(stored, identity) for identity in identities], recorded)
    write_json(common, rows)
    print(format_rows(rows) if rows else "They do not differ, and have no numbers.")


@command("runs prune", "[--older-than DAYS] [--yes]", "Delete your runs that are unfinished or old.")
def prune_runs(
    common: CommonArguments = DEFAULTS, older_than: float | None = None, all_users: bool = False, yes: bool = False
) -> None:
    """List your runs that are unfinished, and delete them with --yes.

    Your runs are those that you began to compute last; `runs list` shows the user of each. Sources of runs that stay,
    and runs that are being computed, are never deleted. Interrupted trainings lose their checkpoints. MLflow keeps its
    records.

    Args:
        common: Settings of every command.
        older_than: Also include finished runs that have not changed for this many days.
        all_users: Include the runs of all users, and folders that do not say whose they are.
        yes: Delete the runs. Without it, nothing is deleted.
    """
    from objectaware.report.tables import format_rows
    from objectaware.stages.identity import shown_names
    from objectaware.stages.runs import format_bytes, listed, prunable, prune

    stored, recorded = _all(common)
    leaving = prunable(stored, older_than_days=older_than, all_users=all_users)
    rows = listed(leaving, [run for run in recorded if run.identity in {each.identity for each in leaving}])
    write_json(common, rows)
    if not leaving:
        print("There is nothing to delete.")
        return
    print(format_rows(rows))
    size = format_bytes(sum(run.num_bytes for run in leaving))
    if yes:
        num_runs, num_bytes, kept = prune(leaving)
        print(f"{num_runs} runs deleted, {format_bytes(num_bytes)} freed")
        for folder, names in kept.items():
            print(f"{folder} keeps files that objectaware did not write: {shown_names(names)}")
    else:
        print(f"{len(leaving)} runs, {size}. Nothing was deleted; --yes deletes them.")


@command("doctor", "", "Say what of the above would work here, and what to do about the rest.")
def doctor(
    storage: str | None = None, experiment: str = "objectaware", data: Path = Path("data"), json: Path | None = None
) -> None:
    """Check which commands would work here. Exit with status 1 if something that all need is broken.

    Args:
        storage: Folder of the runs. By default OBJECTAWARE_STORAGE, or ./runs.
        experiment: Name of the MLflow experiment.
        data: Folder of the paper's data sets. Missing ones are allowed.
        json: File to which the findings are written as data.
    """
    from objectaware.data.storage import Storage
    from objectaware.stages.machine import diagnose

    common = require_json(Common(json=json))
    findings = []
    for finding in diagnose(Storage.from_uri(storage_address(storage)), experiment, data):
        findings.append(finding)
        print(f"{finding.state:12} {finding.name}: {finding.found}", flush=True)
        if finding.remedy:
            print(f"{'':12} {finding.remedy}", flush=True)
    write_json(common, [asdict(finding) for finding in findings])
    if any(finding.state == "broken" for finding in findings):
        sys.exit(1)


@command("ui", "", "Start the MLflow UI on the store in use.")
def ui(storage: str | None = None, experiment: str = "objectaware", port: int | None = None) -> None:
    """Open the MLflow UI on the store in use, on the loopback interface.

    Args:
        storage: Folder of the runs. By default OBJECTAWARE_STORAGE, or ./runs.
        experiment: Name of the MLflow experiment.
        port: Port of the UI. By default 5000, or any free port.
    """
    from objectaware.data.storage import Storage
    from objectaware.tracking import TrackingStore, run_ui

    run_ui(TrackingStore.open(Storage.from_uri(storage_address(storage)), experiment), port)


def _all(common: Common) -> tuple[list[StoredRun], list[RecordedRun]]:
    """Return the runs in the storage, and MLflow's records of them. Without MLflow, the storage is enough."""
    from objectaware.data.storage import Storage
    from objectaware.stages.runs import stored_runs
    from objectaware.tracking import TrackingStore

    require_json(common)
    storage = Storage.from_uri(storage_address(common.storage))
    stored = stored_runs(storage)
    tracking = TrackingStore.open(storage, common.experiment)
    try:
        recorded = tracking.recorded_runs()
    except Exception as error:  # the network, the database or the server may fail in many ways
        reason = tracking.server.without_password(" ".join(str(error).split()))
        print(f"MLflow at {tracking.server.shown_address} does not answer ({reason[:200]})", file=sys.stderr)
        recorded = []
    return stored, recorded
