"""Paths that nothing can be read from or written to: a line and status 2 of every command, before any work."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from objectaware.cli import run
from objectaware.data.storage import Storage
from objectaware.localize.mask_store import MaskRow, write_shard

LOCALIZE = ["localize", "photos", "--localizer", "full_image"]
MEASURE = ["plan", "measure", "--device", "cpu"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: photos, a mask store, a file, a folder, a link to itself and a recipe."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("objectaware.distributed.cluster.ray_cluster", _fail)
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "a.png")
    storage = Storage.from_uri(tmp_path / "masks")
    mask = np.ones((4, 4), dtype=bool)
    write_shard(storage, 0, [MaskRow("a.png", 4, 4, cam=np.ones((2, 2), dtype=np.float32), mask=mask)])
    storage.write_json("store.json", {})
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


def _fail(**_: object) -> None:
    raise AssertionError("the command starts Ray")


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Runs a command that must be refused and gives the line that it says."""
    capsys.readouterr()
    assert run(words) == 2, words
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("objectaware: ")
    return line


@pytest.mark.parametrize(
    "words",
    [
        ["data", "subset", "photos", "--fraction", "1.0", "--out"],
        ["export", "boxes", "masks", "--out"],
        ["export", "masks", "masks", "--format", "coco-results", "--out"],
        ["export", "backbone", "photos", "--out"],
        ["export", "detector", "photos", "--out"],
        ["export", "detectron2", "photos", "--out"],
        [*MEASURE, "--out"],
        [*LOCALIZE, "--json"],
        ["runs", "list", "--json"],
        ["reproduce", "list", "--json"],
        ["reproduce", "show", "bg-main", "--json"],
        ["data", "check", "CIFAR-10", "--json"],
        ["data", "pack", "photos", "--out", "pack", "--json"],
        ["doctor", "--json"],
    ],
    ids=" ".join,
)
def test_a_file_that_cannot_be_written(words: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(here.rglob("*"))
    for place in ("file/x", "folder", "loop", "n" * 300):
        assert place in refused([*words, place], capsys)
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    "words",
    [
        ["data", "pack", "photos", "--out"],
        ["data", "build", "scenes", "--out"],
        ["data", "build", "imagenet9", "photos", "--out"],
        ["data", "build", "challenge", "photos", "--layout", "coco", "--split", "val", "--out"],
        ["export", "masks", "masks", "--out"],
        [*LOCALIZE, "--out"],
        [*LOCALIZE, "--storage"],
    ],
    ids=" ".join,
)
def test_a_folder_that_cannot_be_written(words: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(here.rglob("*"))
    for place in ("file", "file/x", "loop", "n" * 300):
        assert place in refused([*words, place], capsys)
    assert sorted(here.rglob("*")) == before


def test_a_place_without_the_right_to_write(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system says it to other users than root."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "folder" and access(path, mode))
    assert "folder/new: cannot be written, since" in refused(["data", "pack", "photos", "--out", "folder/new"], capsys)
    assert "folder/x.json: cannot be written, since" in refused([*LOCALIZE, "--json", "folder/x.json"], capsys)


@pytest.mark.parametrize(
    "words",
    [["pretrain"], ["evaluate", "linear"], ["sweep"], ["demo", "--recipe"], [*LOCALIZE, "--recipe"]],
    ids=" ".join,
)
def test_a_recipe_that_cannot_be_read(words: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("folder", "loop", "file/x.yaml", "n" * 300, "nothing.yaml"):
        assert place in refused([*words, place], capsys)


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.ENOTDIR])
def test_what_the_system_refuses_later_is_a_line(
    error: int, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error), "pack/pack.json")

    monkeypatch.setattr(Storage, "write_json", refuse)
    assert run(["data", "pack", "photos", "--out", "pack"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"objectaware: pack/pack.json: {os.strerror(error)}.")
