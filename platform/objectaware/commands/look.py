"""Commands that show the MLflow UI, and check the installation."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from objectaware.commands.common import Common, require_json, storage_address, write_json
from objectaware.commands.fields import command


@command("doctor", "", "Say what of the above would work here, and what to do about the rest.")
def doctor(
    storage: str | None = None,
    experiment: str = "objectaware",
    data: Path = Path("data"),
    json: Path | None = None,
) -> None:
    """Check which commands would work here. Exit with status 1 if something that all need is broken.

    Args:
        storage: Folder of the runs. By default OBJECTAWARE_STORAGE, or ./runs.
        experiment: Name of the MLflow experiment.
        data: Folder of the paper's data sets. Missing ones are allowed.
        json: File to which the findings are written as data.
    """
    from objectaware.data.storage import Storage
    from objectaware.stages.doctor import diagnose

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
