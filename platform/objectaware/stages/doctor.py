"""Checks of the installation: which commands would work here, and how to fix the others."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from objectaware.data.published import PUBLISHED_SETS, check_published
from objectaware.data.storage import Storage
from objectaware.errors import Finding

# The demo, with Ray and MLflow, took 5.4 GiB on 2 cores (README).
_DEMO_GIB = 6.0
# Ray's object store of a local start.
_OBJECT_STORE_GIB = 1.0
_GIB = 2**30
_NODE_SECONDS = 120.0
# Libraries with compiled parts, which break if they were installed on another kind of machine.
_LIBRARIES = ("torch", "torchvision", "cv2", "pyarrow", "pycocotools.mask", "pydensecrf.densecrf", "scipy")


def diagnose(storage: Storage, experiment: str, data_folder: Path) -> Iterator[Finding]:
    """Check this machine, the storage, the data sets, MLflow and Ray, the quick checks first.

    Args:
        storage: Storage in use.
        experiment: MLflow experiment in use.
        data_folder: Folder of the published data sets.
    """
    yield _check_python()
    yield from _check_libraries()
    yield _check_cpus()
    yield _check_memory()
    yield _check_shared_memory(Path("/dev/shm"))
    yield _check_gpu()
    yield _check_storage(storage)
    yield from _check_data(data_folder)

    from objectaware.tracking.store import check_tracking

    yield check_tracking(storage, experiment)

    from objectaware.distributed.cluster import check_ray

    yield from check_ray(partial(_check_nodes, storage))


def _check_python() -> Finding:
    found = f"{platform.python_version()} on {platform.machine()}"
    if sys.version_info[:2] != (3, 11):
        return Finding("Python", "limited", found, "Python 3.11 is what constraints.txt is tested with.")
    return Finding("Python", "ok", found)


def _check_libraries() -> Iterator[Finding]:
    broken = False
    for name in _LIBRARIES:
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as error:  # OSError: a shared library that is missing
            broken = True
            yield Finding("libraries", "broken", f"{name} cannot be imported ({error})", "Run `make clean install`.")
    if not broken:
        import torch

        yield Finding("libraries", "ok", f"all import; torch {torch.__version__}")


def _check_cpus() -> Finding:
    count = len(os.sched_getaffinity(0))
    if count < 2:
        return Finding("CPU", "limited", f"{count} core", "Two or more cores let decoding and training overlap.")
    return Finding("CPU", "ok", f"{count} cores")


def _check_memory() -> Finding:
    available = _available_memory() / _GIB
    found = f"{available:.1f} GiB available"
    if available < _DEMO_GIB:
        remedy = f"The demo takes {_DEMO_GIB:g} GiB: close other programs, or raise the container's limit."
        return Finding("memory", "limited", found, remedy)
    return Finding("memory", "ok", found)


def _available_memory() -> int:
    """Return the bytes that new processes can take, within the machine's memory and the container's limit."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and limit.read_text().strip() != "max":
        available = min(available, int(limit.read_text()) - int(used.read_text()))
    return available


def _check_shared_memory(place: Path) -> Finding:
    if not place.is_dir():
        return Finding("shared memory", "not checked", f"{place} is not here")
    free = shutil.disk_usage(place).free / _GIB
    if free < _OBJECT_STORE_GIB:
        remedy = "Ray falls back to files, which is slow: start the container with --shm-size=2g."
        return Finding("shared memory", "limited", f"{free:.2f} GiB free in {place}", remedy)
    return Finding("shared memory", "ok", f"{free:.1f} GiB free in {place}")


def _check_gpu() -> Finding:
    try:
        import torch
    except (ImportError, OSError):  # reported among the libraries
        return Finding("GPU", "not checked", "torch cannot be imported")
    if not torch.cuda.is_available():
        remedy = "Enough for the demo and small sets; `execution.use_gpu` needs an NVIDIA GPU and its driver."
        return Finding("GPU", "limited", "none that torch can use", remedy)
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
        remedy = "Give another one by --storage or OBJECTAWARE_STORAGE, or the right to write there."
        return Finding("storage", "broken", f"{storage.uri} cannot be written to ({error})", remedy)
    if not intact:
        return Finding("storage", "broken", f"{storage.uri} gives back other bytes than were written", "Change it.")
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
        parts = [f"{found.part} {found.num_images}" for found in check.found if found.is_whole]
        short = [f"{found.part} {found.num_images} of {found.num_published}" for found in check.found]
        short = [text for text, found in zip(short, check.found, strict=True) if not found.is_whole]
        lacking = [part.part for part in check.missing]
        found = ", ".join([*parts, *short, *(f"no {part}" for part in lacking)])
        remedy = "" if check.is_whole else f"`objectaware data check {published.name!r}` says what is looked for."
        yield Finding(published.name, "ok" if check.is_whole else "limited", found, remedy)
    if missing:
        remedy = "`objectaware data check NAME` says where to get one; --data names another folder."
        yield Finding("other data sets", "not checked", f"not in {folder}: {', '.join(missing)}", remedy)


def _check_nodes(storage: Storage) -> Iterator[Finding]:
    """Check every node of the cluster that this process is connected to."""
    from objectaware.distributed.cluster import run_on_nodes
    from objectaware.stages.shared import storage_problems

    problems = storage_problems(storage)
    broken = [f"node {address} {problem}" for address, problem in problems.items() if problem]
    if broken:
        remedy = "Give a folder that all nodes share, such as s3://bucket/runs or an NFS mount."
        yield Finding("storage of all nodes", "broken", f"{storage.uri}: {'; '.join(broken)}", remedy)
    else:
        yield Finding("storage of all nodes", "ok", f"{storage.uri} is one for {len(problems)} nodes")
    free = run_on_nodes(_free_shared_memory, timeout_seconds=_NODE_SECONDS)
    small = [f"{size:.2f} GiB on {address}" for address, size in free.items() if size < _OBJECT_STORE_GIB]
    if small:
        remedy = "Ray falls back to files, which is slow: start the containers with --shm-size=2g."
        yield Finding("shared memory of all nodes", "limited", f"free: {', '.join(small)}", remedy)
    else:
        yield Finding("shared memory of all nodes", "ok", f"{min(free.values()):.1f} GiB free or more")


def _free_shared_memory() -> float:
    return shutil.disk_usage("/dev/shm").free / _GIB
