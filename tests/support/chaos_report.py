"""pytest's plugin that writes down what was seen of each fault: `--chaos-report FILE`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness import write_rows

COLUMNS = ("fault", "must hold", "seen", "seconds", "test")


@dataclass(eq=False)  # pytest keeps its plugins in sets
class ChaosReport:
    """A row for each test with the marker `chaos`.

    Attributes:
        path: Where the table goes.
        rows: What was seen so far.
    """

    path: Path
    rows: list[dict[str, str]] = field(default_factory=list)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]):  # noqa: ANN201 - a generator
        report: pytest.TestReport = yield
        marker = item.get_closest_marker("chaos")
        if marker is not None and (report.when == "call" or report.outcome != "passed"):
            seen = {"passed": "held", "skipped": f"not tried: {call.excinfo.value}" if call.excinfo else "not tried"}
            values = (
                marker.kwargs["fault"],
                marker.kwargs["holds"],
                seen.get(report.outcome, "DID NOT HOLD"),
                f"{report.duration:.1f}",
                item.nodeid,
            )
            self.rows.append(dict(zip(COLUMNS, values, strict=True)))
        return report

    def pytest_sessionfinish(self) -> None:
        if self.rows:
            write_rows(self.path, self.rows)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("faults")
        for row in self.rows:
            terminalreporter.line(f"{row['fault']}: {row['must hold']}: {row['seen']}")
        if self.rows:
            terminalreporter.line(f"written to {self.path}")
