from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from pydantic import ValidationError

from objectaware.cli import run
from objectaware.commands.fields import describe_models
from objectaware.data import dataset as dataset_module
from objectaware.data.dataset import DataConfig, find_layouts, layout_named, layouts
from objectaware.data.scenes import build_scenes
from objectaware.errors import InputError
from processes import printed_by


def test_every_layout_that_a_recipe_takes_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    names = {layout.name for layout in layouts()}
    listed = describe_models()["models"]["DataConfig"]["fields"]["layout"]["type"]
    assert set(listed.split(" | ")) == names
    assert run(["data", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)


def test_no_other_module_names_a_published_layout() -> None:
    """Studies of scenes and of the paper apart, which choose their data sets as a recipe does."""
    package = Path(dataset_module.__file__).parents[1]
    chosen_by = {"scenes", "paper", "stages", "studies", "commands", "objectaware"}
    general = {"folder", "shards", "coco", "imagenet", "voc", "cub"}  # also words, fields of messages and file formats
    names = [layout.name for layout in layouts() if layout.name not in general]
    for path in package.rglob("*.py"):
        if path.parent.name in {*chosen_by, "sets", "reproduce"}:
            continue
        if path == package / "evaluate" / "linear.py":
            continue  # the paper's hold-out sizes, which it gives by data set
        text = path.read_text()
        assert not [name for name in names if f'"{name}"' in text], path


def test_reading_a_configuration_imports_nothing_heavy() -> None:
    heavy = ["cv2", "scipy", "pyarrow", "pycocotools", "torch"]
    program = f"import sys, objectaware.config; print([name for name in {heavy} if name in sys.modules])"
    assert printed_by(program) == "[]"


def test_a_layout_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match=r"layout = tar: is not known.*class-folders"):
        layout_named("tar")
    with pytest.raises(ValidationError, match="class-folders"):
        DataConfig(root="/data", layout="tar")


def test_a_folder_of_photos_has_one_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    found = {one.data.layout: one for one in find_layouts(tmp_path)}
    assert found["folder"].num_images == 1
    assert all(one.problem for name, one in found.items() if name != "folder")
    assert "no class folders" in found["class-folders"].problem
    num_others = len(found) - 1
    assert run(["data", "list", str(tmp_path)]) == 0
    first, rest = capsys.readouterr().out.splitlines()
    assert first.split() == ["folder", "1", "images"]
    assert rest == f"none of {num_others} other layouts; --reasons says why"
    assert run(["data", "list", str(tmp_path), "--reasons"]) == 0
    first, *reasons = capsys.readouterr().out.splitlines()
    assert first.split() == ["folder", "1", "images"]
    assert len(reasons) == num_others
    assert all("no: " in reason for reason in reasons)


def test_splits_and_variants_are_told_apart(tmp_path: Path) -> None:
    build_scenes(tmp_path, variant="single-object", num_train=18, num_val=9, image_size=48)
    found = [one for one in find_layouts(tmp_path) if "back" in one.data.layout]
    sets = {(one.data.split, one.data.variant): one.num_images for one in found}
    assert sets[("train", "original")] == 18
    assert sets[("val", "mixed_rand")] == 9


def test_a_folder_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "list", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


NEW = """
from objectaware.data.folder import ImageFolder
from objectaware.data.dataset import Dataset, PublishedSet

class Lawn(Dataset):
    name = "lawn"
    content = "grass"
    splits = ("wet", "dry")

    def open_images(self) -> ImageFolder:
        return ImageFolder.scan(f"{self.root}/{self.split}")

PublishedSet("Lawn", "lawn", "none", "outside", {"wet": {"layout": "lawn", "split": "wet"}})
"""
USE = """
import sys
from objectaware.cli import run
from objectaware.data.published import published_data
assert len(published_data("lawn", "wet", sys.argv[1], {"Lawn": sys.argv[1]}).open()) == 1
sys.exit(run(["data", "list", sys.argv[1]]))
"""


def test_a_file_is_all_that_a_data_set_needs(tmp_path: Path) -> None:
    beside = "from objectaware.data import sets; import sys; sets.__path__.append(sys.argv[1])"
    assert "lawn wet" in _use_lawn(tmp_path, beside)


def test_a_data_set_of_another_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    package = tmp_path / "lawn-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: lawn\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[objectaware.variants]\nlawn = lawn\n")
    assert "lawn wet" in _use_lawn(tmp_path, "import sys; sys.path.append(sys.argv[1])")


def _use_lawn(folder: Path, first: str) -> str:
    """Write a data set with its module beside it, and list it in a process that says first where the module is."""
    (folder / "lawn.py").write_text(NEW)
    (folder / "wet").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "wet" / "a.png")
    program = [sys.executable, "-c", f"{first}\n{USE}", str(folder)]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout
