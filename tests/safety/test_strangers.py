"""What other people's files cannot do: run code, or lead out of their folder; and who can reach what we start."""

from __future__ import annotations

import ast
import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from objectaware.data.folder import ImageFolder, restrict
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import ray_cluster
from objectaware.errors import InputError
from objectaware.methods.checkpoint import load_classifier, load_encoder, load_state, read_classifier
from objectaware.recipes import read_recipe
from objectaware.report.gallery import Look
from objectaware.stages.localization import folder_predictions
from objectaware.tracking import TrackingStore
from replaced_ray import replace_ray

PACKAGE = Path(__file__).parents[2] / "platform" / "objectaware"
ESCAPES = ("../secret.png", "a/../../secret.png", "/etc/secret.png", "nul\0.png")
_FORBIDDEN = ("eval", "exec", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "pickle.load", "os.system")
# Errors that our own workers hand to our own driver, through Ray.
_OWN_PICKLES = {"distributed/localize.py", "distributed/localize_steps.py"}


class _Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.write_text, (self.mark, "code ran")


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    mark = tmp_path / "mark"
    yield mark
    assert not mark.exists(), "code of a stranger's file ran"


def _read_classifier(path: Path) -> object:
    read_classifier(str(path))
    return load_classifier(str(path))


@pytest.mark.chaos(fault="a hostile pickle in place of weights", holds="its code does not run; a message says why")
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("state.pt", lambda path: load_state(path.parent)),
        ("state.pt", lambda path: load_encoder(path.parent)),
        ("moco.pth.tar", load_encoder),
        ("weights.safetensors", load_encoder),
        ("classifier.pth", _read_classifier),
        ("classifier.safetensors", _read_classifier),
    ],
)
def test_a_checkpoint_runs_no_code(name: str, read: Callable[[Path], object], tmp_path: Path, mark: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps({"state_dict": _Bomb(mark)}))
    with pytest.raises(InputError):
        read(tmp_path / name)


def test_the_bomb_would_go_off(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(_Bomb(tmp_path / "mark")))
    assert (tmp_path / "mark").exists()


@pytest.mark.chaos(fault="YAML that names a function", holds="its code does not run; a message says why")
def test_a_recipe_runs_no_code(tmp_path: Path, mark: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(f"data: !!python/object/apply:os.system ['touch {mark}']\n")
    with pytest.raises(InputError, match="is not YAML"):
        read_recipe(tmp_path / "recipe.yaml")


@pytest.mark.chaos(fault="a hostile pickle in a mask", holds="its code does not run; a message says why")
def test_a_mask_runs_no_code(tmp_path: Path, mark: Path) -> None:
    content = io.BytesIO()
    np.save(content, np.array([_Bomb(mark)], dtype=object), allow_pickle=True)
    (tmp_path / "image.npy").write_bytes(content.getvalue())
    with pytest.raises(InputError, match="is not an NPY file"):
        list(folder_predictions(Storage.from_uri(tmp_path), ["image.png"]))


def _calls(file: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_reader_of_ours_runs_what_it_reads(file: Path) -> None:
    for name, call in _calls(file):
        where = f"{file}:{call.lineno}: {name}"
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert name not in _FORBIDDEN, where
        assert name != "pickle.loads" or str(file.relative_to(PACKAGE)) in _OWN_PICKLES, where
        assert keywords.get("shell") != "True", where
        assert name != "torch.load" or keywords.get("weights_only") == "True", where
        assert keywords.get("allow_pickle", "False") == "False", where


@pytest.mark.parametrize("image_id", ESCAPES)
def test_no_image_lies_outside_of_its_folder(image_id: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leads out of"):
        ImageFolder(tmp_path, ["fine..png", "a/b.png", image_id])


@pytest.mark.parametrize("image_id", ESCAPES)
def test_a_subset_names_images_of_the_data_set_alone(image_id: str, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"a.png\n{image_id}\n")
    with pytest.raises(InputError, match="which is not in"):
        restrict(ImageFolder(tmp_path, ["a.png"]), str(tmp_path / "list.txt"))


@pytest.mark.parametrize("image_id", ESCAPES)
def test_a_gallery_shows_no_picture_from_elsewhere(image_id: str, tmp_path: Path) -> None:
    from objectaware.localize.mask_store import MaskRow

    empty = np.zeros((8, 8), np.float32)
    row = MaskRow(image_id, 8, 8, cam=empty, mask=empty > 0)
    look = Look(ImageFolder(tmp_path, ["a.png"]), None)
    assert list(look.watch([row])) == [row]
    assert "leads out of" in look.gallery("masks")


def test_what_we_start_listens_on_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    replace_ray(monkeypatch, lambda **settings: started.append(settings))
    with ray_cluster():
        pass
    assert [settings["dashboard_host"] for settings in started] == ["127.0.0.1"]
    arguments = TrackingStore.open(tmp_path).ui_arguments(5000)
    assert arguments[arguments.index("--host") + 1] == "127.0.0.1"
