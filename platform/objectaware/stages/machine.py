"""The machines in use: which commands would work here, which device computes, how much memory a command takes."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from objectaware.data.published import PUBLISHED_SETS, check_published
from objectaware.data.storage import Storage
from objectaware.errors import Finding, InputError
from objectaware.model import Model
from objectaware.process import Background
from objectaware.stages.lease import SHARED_REMEDY

if TYPE_CHECKING:
    from objectaware.tracking import TrackingStore

Config = TypeVar("Config", bound=Model)

# The demo, with Ray and MLflow, took 5.4 GiB on 2 cores (README).
_DEMO_GIB = 6.0
# Ray's object store of a local start.
_OBJECT_STORE_GIB = 1.0
_GIB = 2**30
# A node's first process takes seconds to start.
_NODE_SECONDS = 30.0
_STORAGE_REMEDY = "Give another one with --storage or OBJECTAWARE_STORAGE, or allow this user to write there."
_SECONDS_BETWEEN_SAMPLES = 2.0
# Libraries with compiled parts, which break if they were installed on another kind of machine.
_LIBRARIES = ("torch", "torchvision", "cv2", "pyarrow", "pycocotools.mask", "pydensecrf.densecrf", "scipy")


def diagnose(storage: Storage, experiment: str, data_folder: Path) -> Iterator[Finding]:
    """Check this machine, the storage, the data sets, MLflow and Ray, the quick checks first.

    Args:
        storage: Storage in use.
        experiment: MLflow experiment in use.
        data_folder: Folder of the published data sets.
    """
    found = f"{platform.python_version()} on {platform.machine()}"
    is_tested = sys.version_info[:2] == (3, 11)
    yield _rated("Python", found, is_tested, "Python 3.11 is the version that constraints.txt is tested with.")
    yield from _check_libraries()
    count = len(os.sched_getaffinity(0))
    remedy = "Two or more cores let decoding and training overlap."
    yield _rated("CPU", f"{count} core{'' if count == 1 else 's'}", count >= 2, remedy)
    available = _available_memory() / _GIB
    remedy = f"The demo takes {_DEMO_GIB:g} GiB: close other programs, or raise the container's limit."
    yield _rated("memory", f"{available:.1f} GiB available", available >= _DEMO_GIB, remedy)
    yield _check_shared_memory(Path("/dev/shm"))
    yield _check_gpu()
    yield _check_storage(storage)
    yield from _check_data(data_folder)

    from objectaware.tracking.store import check_tracking

    yield check_tracking(storage, experiment)

    from objectaware.distributed.cluster import check_ray

    yield from check_ray(partial(_check_nodes, storage))


def _rated(name: str, found: str, is_enough: bool, remedy: str) -> Finding:
    """Return a finding that is `ok` or, with the remedy, `limited`."""
    return Finding(name, "ok", found) if is_enough else Finding(name, "limited", found, remedy)


def _check_libraries() -> Iterator[Finding]:
    is_whole = True
    for name in _LIBRARIES:
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as error:  # OSError: a shared library that is missing
            is_whole = False
            yield Finding("libraries", "broken", f"{name} cannot be imported ({error})", "Run `make clean install`.")
    if is_whole:
        import torch

        yield Finding("libraries", "ok", f"all import; torch {torch.__version__}")


def _available_memory() -> int:
    """Return the bytes that new processes can take, within the machine's memory and the container's limit."""
    available = psutil.virtual_memory().available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and limit.read_text().strip() != "max":
        available = min(available, int(limit.read_text()) - int(used.read_text()))
    return available


def _check_shared_memory(place: Path) -> Finding:
    if not place.is_dir():
        return Finding("shared memory", "not checked", f"{place} is not here")
    free = shutil.disk_usage(place).free / _GIB
    remedy = "Ray falls back to files, which is slow: start the container with --shm-size=2g."
    return _rated("shared memory", f"{free:.2f} GiB free in {place}", free >= _OBJECT_STORE_GIB, remedy)


def _check_gpu() -> Finding:
    try:
        import torch
    except (ImportError, OSError):  # reported among the libraries
        return Finding("GPU", "not checked", "torch cannot be imported")
    if not torch.cuda.is_available():
        remedy = "Enough for the demo and small sets; `execution.use_gpu` needs an NVIDIA GPU and its driver."
        return Finding("GPU", "limited", "torch finds no GPU", remedy)
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Finding("GPU", "ok", ", ".join(names))


def _check_storage(storage: Storage) -> Finding:
    name = f"doctor-{uuid.uuid4().hex}"
    local = storage.local_path()
    is_new = local is not None and not local.exists()
    try:
        storage.write_bytes(name, b"written by objectaware doctor")
        intact = storage.read_bytes(name) == b"written by objectaware doctor"
        storage.delete(name)
        if is_new and local is not None:
            local.rmdir()
    except OSError as error:
        return Finding("storage", "broken", f"{storage.uri} cannot be written to ({error})", _STORAGE_REMEDY)
    if not intact:
        return Finding("storage", "broken", f"{storage.uri} returns other bytes than were written", _STORAGE_REMEDY)
    free = "" if local is None else f", {shutil.disk_usage(local.parent if is_new else local).free / _GIB:.0f} GiB free"
    return Finding("storage", "ok", f"{storage.uri} can be written to{free}")


def _check_data(folder: Path) -> Iterator[Finding]:
    """Check each published data set that the folder has, and name the others in one line."""
    missing = []
    for published in PUBLISHED_SETS:
        root = folder / published.folder
        if not root.is_dir():
            missing.append(published.name)
            continue
        check = check_published(published.name, root, folder)
        parts = [f"{part} {check.found[part]}" for part in check.whole_parts]
        cut = [part for part in check.found if part not in check.whole_parts]
        parts += [f"{part} {check.found[part]} of {published.num_images[part]}" for part in cut]
        parts += [f"no {part}" for part in check.missing]
        remedy = f"`objectaware data check {published.name!r}` lists the files that it needs."
        yield _rated(published.name, ", ".join(parts), check.is_whole, remedy)
    if missing:
        remedy = "`objectaware data check NAME` shows where to get one; --data names another folder."
        yield Finding("other data sets", "not checked", f"not in {folder}: {', '.join(missing)}", remedy)


def _check_nodes(storage: Storage) -> Iterator[Finding]:
    """Check every node of the cluster that this process is connected to."""
    from objectaware.distributed.cluster import run_on_nodes

    name, note = f"check-{uuid.uuid4().hex}", uuid.uuid4().bytes
    storage.write_bytes(name, note)
    try:
        answers, silent = run_on_nodes(_try_node, storage, name, note, timeout_seconds=_NODE_SECONDS)
    finally:
        storage.delete(name)
    found = f"{len(answers)} answer" if not silent else f"no answer within {_NODE_SECONDS:g} s from {', '.join(silent)}"
    yield _rated("nodes", found, not silent, "Work that Ray places there would wait: stop the node, or drain it.")
    if not answers:
        return
    broken = [f"node {address} {problem}" for address, (problem, _) in answers.items() if problem]
    if broken:
        yield Finding("storage of all nodes", "broken", f"{storage.uri}: {'; '.join(broken)}", SHARED_REMEDY)
    else:
        yield Finding("storage of all nodes", "ok", f"{storage.uri} is one for {len(answers)} nodes")
    free = {address: size for address, (_, size) in answers.items()}
    small = [f"{size:.2f} GiB on {address}" for address, size in free.items() if size < _OBJECT_STORE_GIB]
    found = f"free: {', '.join(small)}" if small else f"{min(free.values()):.1f} GiB free or more"
    remedy = "Ray falls back to files, which is slow: start the containers with --shm-size=2g."
    yield _rated("shared memory of all nodes", found, not small, remedy)


def require_server(tracking: TrackingStore) -> None:
    """Refuse a database of runs that belongs to one machine, on a cluster of several.

    No node is asked whether it sees the storage, since a cluster may have hundreds of others. The processes of a stage
    find that out where they run, before they write (`lease.Claim`).

    Raises:
        InputError: The cluster has more than one machine, and runs would go to SQLite.
    """
    from objectaware.distributed.cluster import node_addresses

    if tracking.is_sqlite and len(set(node_addresses().values())) > 1:
        remedy = "Start an MLflow server that the cluster reaches (docs/cluster.md), and give its address."
        raise InputError("MLFLOW_TRACKING_URI", tracking.server.shown_address, "is a file on one node only", remedy)


def _try_node(storage: Storage, name: str, note: bytes) -> tuple[str, float]:
    """Return the node's problem with the storage as a clause, and its free shared memory in GiB."""
    return _storage_problem(storage, name, note), shutil.disk_usage("/dev/shm").free / _GIB


def _storage_problem(storage: Storage, name: str, note: bytes) -> str:
    try:
        if not storage.exists(name) or storage.read_bytes(name) != note:
            return "does not see what the driver wrote"
        answer = f"{name}-{uuid.uuid4().hex}"
        storage.write_bytes(answer, note)
        storage.delete(answer)
    except OSError as error:
        return f"cannot write there ({error})"
    return ""


def uses_gpu(config: object) -> bool | None:
    """Return whether a stage's processes take GPUs; None if its configuration leaves that open."""
    return getattr(getattr(config, "execution", None), "use_gpu", False)


def on_device(config: Config, *, has_gpus: bool) -> Config:
    """Return the configuration with `execution.use_gpu` filled in if it is open.

    Args:
        config: Configuration of a stage.
        has_gpus: Value that is filled in: whether GPUs are available.
    """
    if uses_gpu(config) is not None:  # written out, or a stage without that choice
        return config
    execution = getattr(config, "execution", None)
    assert isinstance(execution, Model)
    return config.model_copy(update={"execution": execution.model_copy(update={"use_gpu": has_gpus})})


def on_available_device(config: Config) -> Config:
    """Return the configuration with `execution.use_gpu` filled in: true if the Ray in use has GPUs or can have some.

    A cluster with fewer GPUs than the stage has processes is refused later, with the numbers in the message. Training
    on CPUs instead would silently take weeks.
    """
    from objectaware.distributed.room import num_gpus

    return config if uses_gpu(config) is not None else on_device(config, has_gpus=num_gpus() > 0)


class PeakMemory(Background):
    """A watch on the memory of a process tree while the context is open.

    Pages that several processes share (above all the object store) count once: each process is charged its
    proportional share (PSS), as reported by Linux.
    """

    def __init__(self) -> None:
        super().__init__("memory")
        self.peak_mib = 0.0

    def _run(self) -> None:
        while True:
            self.peak_mib = max(self.peak_mib, tree_memory_mib(os.getpid()))
            if self._stop.wait(_SECONDS_BETWEEN_SAMPLES):
                return


def tree_memory_mib(pid: int) -> float:
    """Return the proportional memory of a process and its descendants, in MiB."""
    root = psutil.Process(pid)
    total = 0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.Error):  # the process has ended meanwhile
            total += process.memory_full_info().pss
    return total / 2**20
