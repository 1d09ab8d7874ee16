"""Files of weights under any name, and files that hold none."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch import Tensor, nn

from objectaware.detection.detect import load_detector, load_published
from objectaware.errors import InputError
from objectaware.methods.checkpoint import load_classifier, load_encoder, load_state
from objectaware.methods.weights import load_weights

STATE = {"fc.weight": torch.arange(6.0).reshape(2, 3), "fc.bias": torch.ones(2)}
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 44761253\n"


def _torch(*, is_zip: bool, protocol: int = 2) -> bytes:
    stream = io.BytesIO()
    torch.save(STATE, stream, pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)
    return stream.getvalue()


def _script() -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.save(torch.jit.script(nn.Linear(3, 2)), stream)
    return stream.getvalue()


def _arrays() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, weight=np.zeros(2))
    return stream.getvalue()


def _tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("weights.pth"), io.BytesIO())
    return stream.getvalue()


GOOD: Mapping[str, bytes] = {
    "safetensors": save(STATE),
    "torch": _torch(is_zip=True),
    "legacy torch": _torch(is_zip=False),
}
OTHERS: Mapping[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "pointer": (LFS, "is a Git LFS pointer.*git lfs pull"),
    "page": (b"\n<!DOCTYPE html><html><body>Sign in</body></html>", "is a web page"),
    "store's error": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "is a web page"),
    "script": (_script(), r"is a TorchScript archive.*torch\.jit\.load"),
    "arrays": (_arrays(), r"is a zip archive that torch\.save did not write; it holds weight\.npy"),
    "tar": (_tar(), "is a tar archive"),
    "gzip": (gzip.compress(_torch(is_zip=True)), "is compressed by gzip"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(100), "is an HDF5 file"),
    "pickle": (pickle.dumps({"weight": 1}), r"is a pickle that torch\.save did not write"),
    "half a torch file": (_torch(is_zip=True)[:700], "is damaged"),
    "half a safetensors file": (save(STATE)[:-4], "is damaged"),
    "text": (b"not a checkpoint", "is plain text, perhaps an error"),
    "cut text": ("\u00e9".encode() * 400, "is plain text"),
    "store's answer": (b'{"error": {"code": 404}}', "is JSON, perhaps an error"),
    "xz": (lzma.compress(_torch(is_zip=True)), "is compressed by xz"),
    "bzip2": (bz2.compress(_torch(is_zip=True)), "is compressed by bzip2"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(100), "is compressed by zstd"),
    "protocol": (_torch(is_zip=True, protocol=4), r"is a pickle of protocol 4.*without pickle_protocol"),
    "legacy protocol": (_torch(is_zip=False, protocol=4), r"is a pickle of protocol 4.*without pickle_protocol"),
    "noise": (bytes(range(256)), "is damaged"),
}


@pytest.mark.parametrize("name", ["x.pth", "X.SAFETENSORS", "x.safetensors", "checkpoint", "x.pth.tar"])
@pytest.mark.parametrize("kind", GOOD)
def test_the_content_decides_and_not_the_name(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(GOOD[kind])
    for source in (path, GOOD[kind]):
        torch.testing.assert_close(dict(load_weights(source)), STATE)
    torch.testing.assert_close(load_classifier(str(path)).weight, STATE["fc.weight"])


@pytest.mark.parametrize("name", ["x.pth", "x.safetensors", "checkpoint"])
@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.filterwarnings("error")
def test_a_file_of_another_kind_is_named_without_a_warning(kind: str, name: str, tmp_path: Path) -> None:
    content, message = OTHERS[kind]
    path = tmp_path / name
    path.write_bytes(content)
    readers: tuple[tuple[str, Callable[[Path], object]], ...] = (
        ("checkpoint", load_encoder),
        ("published", load_published),
        ("classifier", lambda path: load_classifier(str(path))),
        ("checkpoint", lambda path: load_detector(str(path))),
    )
    for field, read in readers:
        with pytest.raises(InputError, match=f"(?s)^{field} = .*{message}"):
            read(path)


def test_a_folder_of_ours_that_was_never_pulled_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.pt").write_bytes(LFS)
    (tmp_path / "config.json").write_bytes(LFS)
    with pytest.raises(InputError, match="is a Git LFS pointer"):
        load_state(tmp_path)
    for read in (load_encoder, lambda path: load_detector(str(path))):
        torch.save({"method": {}}, tmp_path / "state.pt")
        with pytest.raises(InputError, match="is not valid JSON"):
            read(tmp_path)


def test_a_classifier_may_have_been_wrapped(tmp_path: Path) -> None:
    torch.save({"state_dict": {f"_orig_mod.module.{key}": value for key, value in STATE.items()}}, tmp_path / "x")
    torch.testing.assert_close(load_classifier(str(tmp_path / "x")).bias, STATE["fc.bias"])


def test_a_missing_classifier_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_classifier(str(tmp_path / "missing.pth"))
    with pytest.raises(InputError, match=r"holds no classifier\.safetensors"):
        load_classifier(str(tmp_path))


def test_a_published_detector_may_have_been_wrapped(tmp_path: Path) -> None:
    """Its names are torchvision's again: that it lacks tensors is all that is wrong."""
    state: dict[str, Tensor] = {"module.roi_heads.box_predictor._orig_mod.cls_score.bias": torch.zeros(91)}
    torch.save(state, tmp_path / "x.pth")
    with pytest.raises(InputError, match="is not a fasterrcnn_resnet50_fpn") as refused:
        load_published(tmp_path / "x.pth")
    assert "Unexpected key" not in str(refused.value.__cause__)
