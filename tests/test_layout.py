"""Agreements on the layout that no linter knows."""

import re
from pathlib import Path

import pytest

from objectaware import __version__
from objectaware.recipes import read_yaml

ROOT = Path(__file__).parents[1] / "platform"


def test_the_source_root_is_no_package() -> None:
    """An __init__.py would shadow the standard library's `platform` for everything started in the repository's root."""
    assert not (ROOT / "__init__.py").exists()


@pytest.mark.parametrize(
    ("package", "folder"), [("ray", "distributed"), ("mlflow", "tracking"), ("matplotlib", "report")]
)
def test_a_library_is_imported_in_one_folder_only(package: str, folder: str) -> None:
    pattern = re.compile(rf"^\s*(import|from) {package}\b", re.MULTILINE)
    importers = {
        path.relative_to(ROOT / "objectaware").parts[0]
        for path in (ROOT / "objectaware").rglob("*.py")
        if pattern.search(path.read_text())
    }
    assert importers == {folder}


def test_detection_stands_beside_training() -> None:
    """It takes from it what a loop needs of its surroundings, and nothing of what is above both."""
    pattern = re.compile(r"^from objectaware\.(\w+)(?:\.(\w+))? import", re.MULTILINE)
    sources = [path.read_text() for path in (ROOT / "objectaware" / "detection").glob("*.py")]
    imported = {match.groups() for source in sources for match in pattern.finditer(source)}
    assert {folder for folder, _ in imported} <= {
        "augment", "config", "data", "detection", "errors", "methods", "training",
    }  # fmt: skip
    assert {module for folder, module in imported if folder == "training"} == {"loop", "session"}
    below = [
        path for folder in ("training", "methods", "data") for path in (ROOT / "objectaware" / folder).rglob("*.py")
    ]
    assert not [path for path in below if "objectaware.detection" in path.read_text()]


def test_the_citation_is_of_this_version_and_names_the_paper() -> None:
    citation = read_yaml(ROOT.parent / "CITATION.cff", field="citation")
    assert isinstance(citation, dict)
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == __version__
    paper = citation["preferred-citation"]
    assert paper["title"] == "Object-aware Contrastive Learning for Debiased Scene Representation"
    assert [author["family-names"] for author in paper["authors"]] == ["Mo", "Kang", "Sohn", "Li", "Shin"]
