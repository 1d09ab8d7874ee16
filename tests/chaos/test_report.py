from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_the_table_is_written_where_folders_have_fixtures_of_their_own(tmp_path: Path) -> None:
    """As in `make chaos`, which takes tests of all folders: pytest then looks plugins up in sets."""
    folders = [str(TESTS / "data" / "test_coco_json.py"), str(TESTS / "stages" / "test_lease.py")]
    table = tmp_path / "chaos.csv"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "chaos", "--chaos-report", str(table), *folders]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader(table.open(newline="")))
    assert rows
    assert {row["seen"] for row in rows} == {"held"}
