"""The comparison of two commits' records: what is planted is found, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import torch
from PIL import Image

import compare_commits
from compare_commits import MISSING, compare, plain_text
from examples import chosen, examples

PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
ROWS = [{"image_id": name, "cam": b"\x01\x02", "boxes": [0.0, 0.5]} for name in ("a.jpg", "b.jpg")]
CURVE = {"/tmp/oa-compare-1/a": 1.0, "/tmp/oa-compare-1/b": 2.0}
OUTPUT = {
    "curve": CURVE,
    "accuracies": {"val": 50.0},
    "loss": float("nan"),
    "identity": "1" * 20,
    "seconds": 3.0,
    "folder": "/x",
}
TABLE = {"columns": ["name", "miou"], "data": [["ours", 0.5], ["theirs", 0.25]]}
RUN = {"metrics": {"loss": [[0, 2.5], [1, 2.0]], "images_per_second": [[0, 99.0]], "system/cpu": [[3, 7.0]]}}


def write(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "output.json").write_text(json.dumps(OUTPUT))
    (folder / "table.json").write_text(json.dumps(TABLE))
    (folder / "table.csv").write_text("name,miou\nours,0.5\n")
    (folder / "run.json").write_text(json.dumps(RUN))
    (folder / "report.md").write_text(
        f"written on 2026-01-02 in 8 s\nrun {'a' * 32} of /tmp/oa-compare-1/work/runs, 12345abc\n"
    )
    Image.fromarray(PIXELS).save(folder / "mask.png")
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "shard.parquet")
    safetensors.numpy.save_file({"weight": np.ones((2, 2), np.float32)}, folder / "backbone.safetensors")
    torch.save({"method": {"queue": torch.zeros(3)}, "next_epoch": 1}, folder / "state.pt")
    np.save(folder / "part.npy", np.array([1.0, np.nan]))


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Equal records of one example, and the folder of it on the side that a difference is planted in."""
    for side in ("before", "after"):
        write(tmp_path / side / "example")
    return tmp_path, tmp_path / "after" / "example"


def found(root: Path) -> list[tuple[str, str]]:
    """Files and keys of all differences."""
    return [(each.file, each.key) for each in compare(root / "before", root / "after")]


def test_the_same_twice_has_no_difference(sides: tuple[Path, Path]) -> None:
    assert found(sides[0]) == []


def change_json(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def change_pixel(folder: Path) -> None:
    pixels = PIXELS.copy()
    pixels[2, 1, 0] += 1
    Image.fromarray(pixels).save(folder / "mask.png")


def change_row(folder: Path) -> None:
    rows = [ROWS[0], {**ROWS[1], "cam": b"\x01\x03"}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "shard.parquet")


def change_weight(folder: Path) -> None:
    weight = np.ones((2, 2), np.float32)
    weight[1, 0] = np.nextafter(np.float32(1), np.float32(2))
    safetensors.numpy.save_file({"weight": weight}, folder / "backbone.safetensors")


def change_state(folder: Path) -> None:
    torch.save({"method": {"queue": torch.tensor([0.0, 0.0, 1e-30])}, "next_epoch": 1}, folder / "state.pt")


def change_type(folder: Path) -> None:
    np.save(folder / "part.npy", np.array([1.0, np.nan], np.float32))


@pytest.mark.parametrize(
    ("plant", "file", "key"),
    [
        (change_json("output.json", "50.0", "50.000000000000007"), "output.json", "accuracies/val"),
        (change_json("output.json", "NaN", "0.0"), "output.json", "loss"),
        (change_json("output.json", "2.0", "3.0"), "output.json", "curve/<path> (2)"),
        (change_json("table.json", "0.25", "0.26"), "table.json", "theirs/miou"),
        (change_json("table.csv", "0.5", "0.50"), "table.csv", "ours/miou"),
        (change_json("run.json", "[1, 2.0]", "[2, 2.0]"), "run.json", "metrics/loss/1/0"),
        (change_json("report.md", "run ", "a run "), "report.md", "line 2"),
        (change_pixel, "mask.png", "pixels"),
        (change_row, "shard.parquet", "b.jpg/cam"),
        (change_weight, "backbone.safetensors", "weight"),
        (change_state, "state.pt", "method/queue"),
        (change_type, "part.npy", ""),
        (lambda folder: (folder / "mask.png").unlink(), "mask.png", ""),
        (lambda folder: (folder / "more.txt").write_text("more"), "more.txt", ""),
    ],
)
def test_what_is_planted_is_found(
    sides: tuple[Path, Path], plant: Callable[[Path], object], file: str, key: str
) -> None:
    root, folder = sides
    plant(folder)
    assert found(root) == [(file, key)]


@pytest.mark.parametrize(
    "plant",
    [
        change_json("output.json", "1" * 20, "2" * 20),
        change_json("output.json", '"seconds": 3.0', '"seconds": 4.0'),
        change_json("output.json", '"/x"', '"/y"'),
        change_json("output.json", "oa-compare-1/", "oa-compare-2/"),
        change_json("report.md", "in 8 s", "in 9.5 s"),
        change_json("report.md", "12345abc", "54321abc"),
        change_json("run.json", "99.0", "1.0"),
        change_json("run.json", "[[3, 7.0]]", "[]"),
        change_json("report.md", "2026-01-02", "2027-03-04"),
        change_json("report.md", "a" * 32, "b" * 32),
        change_json("report.md", "oa-compare-1/work", "oa-compare-2/other"),
    ],
)
def test_what_is_ignored_is_no_difference(sides: tuple[Path, Path], plant: Callable[[Path], object]) -> None:
    root, folder = sides
    plant(folder)
    assert found(root) == []


def test_rows_are_matched_by_their_names(sides: tuple[Path, Path]) -> None:
    root, folder = sides
    change_json("table.json", '["ours", 0.5]', '["new", 1.0], ["ours", 0.5]')(folder)
    assert found(root) == [("table.json", "new/miou"), ("table.json", "new/name")]


def test_a_difference_says_both_values_and_where(sides: tuple[Path, Path]) -> None:
    root, folder = sides
    change_pixel(folder)
    change_json("output.json", '"val": 50.0', '"test": 50.0')(folder)
    texts = [str(each) for each in compare(root / "before", root / "after")]
    assert texts == [
        "example: mask.png pixels: np.uint8(27) at [2, 1, 0] -> np.uint8(28) (1 of 48 differ)",
        f"example: output.json accuracies/test: {MISSING} -> 50.0",
        f"example: output.json accuracies/val: 50.0 -> {MISSING}",
    ]


def test_expected_differences_are_named_by_patterns(sides: tuple[Path, Path]) -> None:
    root, folder = sides
    change_pixel(folder)
    change_weight(folder)
    patterns = ["example/mask.png/*", "another/*"]
    left = [each.file for each in compare(root / "before", root / "after") if not each.is_expected(patterns)]
    assert left == ["backbone.safetensors"]


def test_an_example_of_one_side_is_a_difference(sides: tuple[Path, Path]) -> None:
    root, folder = sides
    shutil.rmtree(folder)
    (difference,) = compare(root / "before", root / "after")
    assert (difference.example, difference.file, difference.after) == ("example", "", MISSING)


def test_texts_keep_what_is_no_path_of_the_comparison() -> None:
    assert plain_text("see /data/coco, file:///tmp/oa-compare-ab/after/runs.") == "see /data/coco, <path>"


def test_examples_are_named_once_and_chosen_with_what_they_take() -> None:
    names = [example.name for example in examples()]
    assert len(names) == len(set(names))
    needed = [example.name for example in chosen(["export-masks-png"])]
    assert needed == ["scenes", "pretrain-moco", "localize", "export-masks-png"]


def test_every_stage_has_an_example() -> None:
    from objectaware.stages.registry import all_stages

    text = json.dumps([example.words for example in examples()]).replace("-", "_")
    assert not [kind for kind in all_stages() if kind != "features" and kind not in text]


def test_a_commit_without_examples_takes_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e", *words], check=True)

    monkeypatch.setattr(compare_commits, "ROOT", tmp_path)
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "-m", "none")
    place = tmp_path / "tools" / "examples.py"
    place.parent.mkdir()
    for text in ("first", "second"):
        place.write_text(text)
        git("add", "tools")
        git("commit", "--quiet", "-m", text)
    place.write_text("third")
    with compare_commits._tree("HEAD~2", tmp_path / "old") as old:
        assert compare_commits._examples(old) == "first"
    with compare_commits._tree("HEAD", tmp_path / "new") as new:
        assert compare_commits._examples(new) == "second"
    with compare_commits._tree(None, tmp_path / "none") as tree:
        assert compare_commits._examples(tree) == "third"
    assert not (tmp_path / "new").exists()
