"""Commands that show: the MLflow UI, and what would work here."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import tyro

from objectaware.commands.common import Common, require_json, storage_address, write_json
from objectaware.commands.registry import subcommand


@subcommand("doctor", "", "Say what of the above would work here, and what to do about the rest.")
def doctor(program: str, arguments: list[str]) -> None:
    """`objectaware doctor`."""

    def command(
        storage: str | None = None,
        experiment: str = "objectaware",
        data: Path = Path("data"),
        json: Path | None = None,
    ) -> None:
        """Checks what of the commands would work here. Exit status 1 where something that all need is broken.

        Args:
            storage: Folder of the runs; OBJECTAWARE_STORAGE, or ./runs.
            experiment: MLflow experiment.
            data: Folder of the paper's data sets, those that are there.
            json: File that the findings are written to as data.
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

    tyro.cli(command, prog=program, args=arguments)


@subcommand("ui", "", "Start the MLflow UI on the store in use.")
def ui(program: str, arguments: list[str]) -> None:
    """`objectaware ui`."""

    def command(storage: str | None = None, experiment: str = "objectaware", port: int | None = None) -> None:
        """Opens the MLflow UI on the store in use, on loopback.

        Args:
            storage: Folder of the runs; OBJECTAWARE_STORAGE, or ./runs.
            experiment: MLflow experiment.
            port: Where it listens; by default 5000, or any free port.
        """
        from objectaware.data.storage import Storage
        from objectaware.tracking import TrackingStore, run_ui

        run_ui(TrackingStore.open(Storage.from_uri(storage_address(storage)), experiment), port)

    tyro.cli(command, prog=program, args=arguments)
