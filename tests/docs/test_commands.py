"""Every command line that the documentation shows is one that the program takes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import ray
from PIL import Image

from objectaware.cli import run
from objectaware.commands import common, photos, stages
from objectaware.commands.registry import all_subcommands
from objectaware.data.storage import Storage
from objectaware.localize.mask_store import MaskRow, write_shard

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Also in running text; a sketch with … or capitals in place of words is no command line.
_INLINE = re.compile(r"`(objectaware [^`]*)`")
_SKETCH = re.compile(r"…|[|]|\b(RECIPE|ROOT|STORE|OUT|FILE|TABLE)\b")


def command_lines(page: Path) -> list[list[str]]:
    """The `objectaware` lines of a page, as words without the program's name."""
    text = page.read_text()
    lines = [line for block in _BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    lines += [line for line in _INLINE.findall(_BLOCK.sub("", text)) if not _SKETCH.search(line)]
    words = (shlex.split(line.removeprefix("$ "), comments=True) for line in lines)
    ours = [line[1:] for line in words if line and line[0] == "objectaware"]
    return [part for line in ours for part in _submitted(line)]


def _submitted(line: list[str]) -> list[list[str]]:
    """A line, or of one that submits another, both."""
    if "--" not in line:
        return [line]
    place = line.index("--")
    return [line[:place], line[place + 1 :]]


LINES = [pytest.param(line, id=f"{page.stem}: {' '.join(line)}") for page in PAGES for line in command_lines(page)]


class ReachedStages(BaseException):
    """The command line was parsed and its configuration is valid. `run` would catch an `Exception`."""


def _no_records(*_: object) -> None:
    raise ReachedStages


@contextmanager
def _no_stages(*_: object) -> Iterator[None]:
    raise ReachedStages
    yield


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files that the documentation speaks of."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    (tmp_path / "sweeps").symlink_to(ROOT / "sweeps")
    (tmp_path / "localize.yaml").write_text("image_size: 96\nexecution: {num_crf_actors: 1}\n")
    photos = tmp_path / "photos"
    photos.mkdir()
    random = np.random.default_rng(0)
    for number in range(6):
        Image.fromarray(random.integers(0, 255, (40, 48, 3), dtype=np.uint8)).save(photos / f"{number}.png")
    names = ", ".join(f'{{"id": {n + 10}, "file_name": "{n}.png", "width": 48, "height": 40}}' for n in range(6))
    annotations = f'{{"images": [{names}], "annotations": [], "categories": []}}'
    (tmp_path / "instances_val2017.json").write_text(annotations)
    return tmp_path


def test_the_documentation_shows_commands() -> None:
    assert len(LINES) > 10


# Those that end in a stage stop before it; of the others, `ui` never ends, and the rest is run by the next test.
@pytest.mark.parametrize("line", LINES)
def test_the_program_takes_it(line: list[str], place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (common, photos, stages):
        monkeypatch.setattr(module, "open_context", _no_stages)
    monkeypatch.setattr(stages, "open_records", _no_records)
    # The documentation's data sets are somewhere else.
    for data_set in ("dataset.Dataset", "sets.folder.Shards"):
        monkeypatch.setattr(f"objectaware.data.{data_set}.require_root", lambda data: None)
    is_name_alone = " ".join(line) in all_subcommands()
    if line[0] in ("demo", "pretrain", "localize", "evaluate", "study", "sweep") and not is_name_alone:
        with pytest.raises(ReachedStages):
            run(line)
        return
    # A word that the program does not know is refused before --help answers.
    with pytest.raises(SystemExit) as exit_status:
        run([*line, "--no-such-option"])
    assert exit_status.value.code == 2
    with pytest.raises(SystemExit) as exit_status:
        run([*line, "--help"])
    assert exit_status.value.code == 0


# README's are run one after another by its tour, which builds the folders that they name.
CHEAP = [
    pytest.param(line, id=f"{page.stem}: {' '.join(line)}")
    for page in PAGES[1:]
    for line in command_lines(page)
    if line[0] in ("export", "data")
]


@pytest.mark.parametrize("line", CHEAP)
def test_what_is_cheap_runs(line: list[str], place: Path, tiny_checkpoint: Path, tiny_detector: Path) -> None:
    store = Storage.from_uri(place / "found")
    mask = np.ones((40, 48), dtype=bool)
    boxes = np.array([[0, 0, 1, 1]], dtype=np.float32)
    write_shard(
        store,
        0,
        [MaskRow(f"{n}.png", 48, 40, cam=np.ones((8, 8), np.float32), mask=mask, boxes=boxes) for n in range(6)],
    )
    store.write_json("store.json", {"config": {"data": {"root": str(place / "photos")}}})
    stand_ins = {"DIR": "scenes-made", "CHECKPOINT": str(tiny_checkpoint), "DETECTOR": str(tiny_detector)}
    words = [stand_ins.get(word, word) for word in line]
    if words[:3] == ["data", "build", "scenes"]:
        words += ["--num-train", "18", "--num-val", "9", "--image-size", "48"]
    assert run(words) == 0
    if "--out" in words:
        assert (place / words[words.index("--out") + 1]).exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tour_of_localization_runs_from_photos_to_exports(
    place: Path, tiny_checkpoint: Path, ray_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_checkpoint, place / "CHECKPOINT")
    # ContraCAM at 224 pixels with ten iterations is what the page shows; the recipe makes it small.
    for line in command_lines(ROOT / "docs" / "localization.md"):
        if line[0] == "localize" and "--recipe" not in line:
            line += ["--recipe", "localize.yaml"]
        if line[0] in ("localize", "export"):
            assert run(line) == 0, line
    assert (place / "found" / "gallery.html").read_text().count("<figure ") == 6
    assert (place / "boxes.txt").read_text().count("\n") == 6
    assert len(list((place / "masks").glob("*.png"))) == 6


def _tour() -> tuple[str, str]:
    """README's tour as a script, and its last line, which never ends."""
    section = PAGES[0].read_text().partition("## A tour\n")[2].partition("\n## ")[0]
    (script,) = _BLOCK.findall(section)
    *lines, last = script.splitlines()
    return "\n".join(lines), last


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tour_of_the_readme_runs_as_printed(
    tmp_path: Path, ray_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The Ray of the session in place of one for each command; what is installed is found as an active venv finds it.
    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "platform"))
    script, ui = _tour()
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, check=True)
    tour = tmp_path / "tour"
    assert json.loads((tour / "found" / "annotations.json").read_text())["images"]
    assert len(list((tour / "masks").rglob("*.png"))) == 45
    assert ui == "objectaware ui"
    with subprocess.Popen(shlex.split(ui), cwd=tour, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("MLflow UI: http://127.0.0.1:")
        process.terminate()
