"""Agreements on the layout that no linter knows."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "platform"


def test_the_source_root_is_no_package() -> None:
    """An __init__.py would shadow the standard library's `platform` for everything started in the repository's root."""
    assert not (ROOT / "__init__.py").exists()


@pytest.mark.parametrize(("package", "folder"), [("ray", "distributed"), ("mlflow", "tracking")])
def test_a_service_is_imported_in_one_folder_only(package: str, folder: str) -> None:
    pattern = re.compile(rf"^\s*(import|from) {package}\b", re.MULTILINE)
    importers = {
        path.relative_to(ROOT / "objectaware").parts[0]
        for path in (ROOT / "objectaware").rglob("*.py")
        if pattern.search(path.read_text())
    }
    assert importers == {folder}
