"""Files of weights. Not the name but the content of a file decides how it is read, and none of it is run."""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.torch
import torch

from objectaware.errors import InputError

_HEAD_BYTES = 512
_SAFETENSORS_HEADER_BYTES = 100_000_000  # safetensors refuses longer headers
_LFS_POINTER = b"version https://git-lfs"
_LEGACY_MAGIC = torch.serialization.MAGIC_NUMBER.to_bytes(10, "little")
"""First bytes that torch.save wrote before it wrote zip archives."""
_ZIP = b"PK\x03\x04"
_PROTOCOL = 2  # of torch.save by default
_WEIGHTS_ALONE = (
    "If you trust its source, save its weights alone where it was made: "
    "torch.save({'state_dict': torch.load(FILE, weights_only=False)['state_dict']}, 'weights.pth')."
)
_OTHER_PROTOCOL = (
    "If you trust its source, save it again where it was made, without pickle_protocol: "
    "torch.save(torch.load(FILE, weights_only=False), 'weights.pth')."
)
_SCRIPT_WEIGHTS = "Save its weights alone: torch.save(torch.jit.load(FILE).state_dict(), 'weights.pth')."
_OTHER_KINDS = (
    (
        _LFS_POINTER,
        "is a Git LFS pointer, a few lines in the place of the file",
        "Run `git lfs pull` where it is from.",
    ),
    (b"\x1f\x8b", "is compressed by gzip", "Unpack it first."),
    (b"\xfd7zXZ\x00", "is compressed by xz", "Unpack it first."),
    (b"BZh", "is compressed by bzip2", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd", "Unpack it first."),
    (b"\x89HDF", "is an HDF5 file, as Keras writes them", "Give a file that torch.save or safetensors wrote."),
)
"""First bytes of other files that users often give, each with the kind of the file and the remedy."""
_PAGES = (b"<!doctype html", b"<html", b"<?xml")


def safetensors_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file; empty for any other file, and for a damaged one."""
    if not is_safetensors(path):
        return {}
    try:
        with safetensors.safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except safetensors.SafetensorError:  # `load_weights` reports the problem
        return {}


def load_weights(source: Path | bytes, *, field: str = "checkpoint", address: str | None = None) -> Any:  # noqa: ANN401 - whatever was saved
    """Read a file that `torch.save` or safetensors wrote, without running any code that may be in it.

    Args:
        source: The file, or its content.
        field: Name of the setting that gives the file, for messages.
        address: Address of the file, for messages; by default the path.

    Raises:
        InputError: The file is of another kind, is damaged, or pickles more than tensors and plain values.
    """
    head = _head(source)
    try:
        if (refusal := _other_kind(source, head)) is None:
            return _load(source, head)
        problem, remedy = refusal
        cause = None
    except OSError:
        raise
    except Exception as error:  # a damaged file can raise any error in the reader: IndexError, struct.error …
        problem, remedy = _failure(error, source, head)
        cause = error
    raise InputError(field, address or source, problem, remedy) from cause


def is_safetensors(source: Path | bytes) -> bool:
    """Return whether a file begins like safetensors: with the length of its header, then the header in JSON."""
    return _begins_as_safetensors(_head(source))


def _head(source: Path | bytes) -> bytes:
    with _opened(source) as stream:
        return stream.read(_HEAD_BYTES)


def _begins_as_safetensors(head: bytes) -> bool:
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= _SAFETENSORS_HEADER_BYTES


def _load(source: Path | bytes, head: bytes) -> Any:  # noqa: ANN401 - whatever was saved
    if _begins_as_safetensors(head):
        return safetensors.torch.load(source) if isinstance(source, bytes) else safetensors.torch.load_file(source)
    # Pass a stream: PyTorch would choose the reader of a path by its suffix. PyTorch's warning about protocols other
    # than 2 is ignored, because `_failure` names the protocol.
    with _opened(source) as stream, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected pickle protocol")
        return torch.load(stream, map_location="cpu", weights_only=True)


def _opened(source: Path | bytes) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def _other_kind(source: Path | bytes, head: bytes) -> tuple[str, str] | None:
    """Return the kind of a file that holds no weights that can be read, and the remedy; None for all other files."""
    if not head:
        return "is empty", "Copy or download it again."
    if _begins_as_safetensors(head):  # the length of its header may begin like any of the others
        return None
    for begin, problem, remedy in _OTHER_KINDS:
        if head.startswith(begin):
            return problem, remedy
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_PAGES):
        return "is a web page, perhaps an error or a login", "Download the file that the page leads to."
    if head[257:262] == b"ustar":
        return "is a tar archive", "Unpack it and give the file of weights in it."
    if head.startswith(b"\x80") and _LEGACY_MAGIC not in head:
        return "is a pickle that torch.save did not write", "Save the weights in it with torch.save."
    if _is_text(head):
        kind = "JSON" if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")) else "plain text"
        return f"is {kind}, perhaps an error in the place of the file", "Read it, and download the file again."
    return _other_archive(source) if head.startswith(_ZIP) else None


def _is_text(head: bytes) -> bool:
    text = head.decode("utf-8-sig", errors="replace").rstrip("\ufffd")  # the head may end inside a character
    return "\ufffd" not in text and all(one.isprintable() or one.isspace() for one in text)


def _other_archive(source: Path | bytes) -> tuple[str, str] | None:
    """Do the same as `_other_kind` for a zip archive, which may come from torch.save or from another program."""
    with _opened(source) as stream, zipfile.ZipFile(stream) as archive:
        names = archive.namelist()
    if any(name.endswith("/constants.pkl") for name in names):
        return "is a TorchScript archive, which holds a program", _SCRIPT_WEIGHTS
    if any(name.endswith("data.pkl") for name in names):
        return None
    inside = f"is a zip archive that torch.save did not write; it holds {', '.join(names[:3]) or 'nothing'}"
    return inside, "Unpack it and give the file of weights in it."


def _pickle_protocol(source: Path | bytes, head: bytes) -> int | None:
    """Return the protocol of the pickle in a file of `torch.save`; None if the pickle does not name one."""
    if head.startswith(_ZIP):
        with _opened(source) as stream, zipfile.ZipFile(stream) as archive:
            name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
            head = archive.read(name)
    return head[1] if head.startswith(b"\x80") else None


def _failure(error: Exception, source: Path | bytes, head: bytes) -> tuple[str, str]:
    """Return what is wrong with a file that could not be read, and the remedy."""
    # PyTorch names the function or class that the pickle would have called. It has not called it.
    needed = re.search(r"GLOBAL ([\w.]+)", str(error))
    if needed is not None:
        return f"is a pickle that would run code ({needed.group(1)}); it was not loaded", _WEIGHTS_ALONE
    if "Unsupported operand" in str(error) and (protocol := _pickle_protocol(source, head)) not in (None, _PROTOCOL):
        problem = f"is a pickle of protocol {protocol}; without running code, only protocol {_PROTOCOL} can be read"
        return problem, _OTHER_PROTOCOL
    remedy = "Copy or download it again, or give a file that torch.save or safetensors wrote."
    return "is damaged or no checkpoint", remedy
