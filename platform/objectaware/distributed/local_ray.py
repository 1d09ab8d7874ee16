"""Start a Ray on this machine for one command."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import ray

from objectaware.errors import ExplainedError, InputError, is_full_disk, one_line

# A group of images on its way through localization is 23 MB at 224 pixels. Ray's default would set aside 30%
# of the machine's memory.
_OBJECT_STORE_BYTES = 2**30
_SECONDS_TO_END = 10.0

_BACKEND_LOG_LEVEL = "RAY_BACKEND_LOG_LEVEL"
_ENVIRONMENT = {
    # Ray's C++ code writes warnings to the command's terminal that only Ray's authors can act on.
    _BACKEND_LOG_LEVEL: "fatal",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Seconds that Ray waits for its first process. Its default of 30 is too short on a busy machine.
    "RAY_gcs_server_port_wait_time_s": "120",
    # Ray's workers do the work. By default they yield to every other process of the machine.
    "RAY_worker_niceness": "0",
    # Ray lists the workers' logs ten times per second to forward them, which our drivers do not use. The interval only
    # holds from a number of logs on, by default 1,000.
    "LOG_NAME_UPDATE_INTERVAL_S": "10",
    "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "0",
    # Nobody reclaims this machine, so the watcher would be a needless process.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}
# Ray's C++ code announces at every level that it obeys RAY_BACKEND_LOG_LEVEL.
_ANNOUNCEMENT = b"Set ray log level from environment variable"

# The longest path that the system accepts as a socket's name, and Ray's longest socket name below its folder.
_MAX_SOCKET_BYTES = 103 if sys.platform == "darwin" else 107
_LONGEST_SOCKET = "ray/session_2026-01-01_00-00-00_000000_{process_id}/sockets/dash_MetricsHead"


@contextmanager
def local_ray(num_cpus: int) -> Iterator[None]:
    """Start a Ray for the `with` block, with its dashboard bound to loopback and no output in the terminal.

    If Ray does not start, clean up and try once more. Its files lie in `RAY_TMPDIR`, `TMPDIR` or `/tmp`. If such a
    path is too long for the names of sockets, Ray's processes reach the folder by a short link.

    Args:
        num_cpus: Logical CPUs.

    Raises:
        InputError: The folder cannot be written to.
        ExplainedError: Ray did not start the second time either.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Ray warns that it protects the local Ray by a token.
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    _require_writable(temporary_folder(os.environ))
    with _short_paths():
        _start(num_cpus, temporary_folder(os.environ) / "ray")
        try:
            yield
        finally:
            ray.shutdown()


def log_level(quiet: int) -> int:
    """Return the level for one of Ray's loggers: `quiet` in a Ray that a command has started for itself.

    On a cluster it is WARNING: the people who share it need to see what Ray says of memory, of spilling and of requests
    for which there is no room. Processes that Ray starts on this machine inherit the variable that shows which it is.
    """
    return quiet if os.environ.get(_BACKEND_LOG_LEVEL) == _ENVIRONMENT[_BACKEND_LOG_LEVEL] else logging.WARNING


def temporary_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for Ray's files: `RAY_TMPDIR`, else `TMPDIR` on Linux, else `/tmp`."""
    named = environment.get("RAY_TMPDIR") or (environment.get("TMPDIR") if sys.platform == "linux" else None)
    return Path(named or "/tmp").absolute()


def fits_sockets(folder: Path, process_id: int) -> bool:
    """Return whether the names of Ray's sockets fit below a folder, for a driver with this process id."""
    longest = folder / _LONGEST_SOCKET.format(process_id=process_id)
    return len(os.fsencode(longest)) <= _MAX_SOCKET_BYTES


def _require_writable(folder: Path) -> None:
    """Refuse a folder that Ray could not write to; create it if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        if is_full_disk(error):
            raise
        problem = f"cannot be written to, and would hold Ray's files ({error.strerror})"
        raise InputError("RAY_TMPDIR or TMPDIR", folder, problem, "Name a folder that you may write to.") from error


@contextmanager
def _short_paths() -> Iterator[None]:
    """Replace folders for temporary files by short links in the `with` block, if their paths are too long for sockets.

    The dashboard's processes, which read only TMPDIR, also have sockets there.
    """
    tempfile.gettempdir()  # caches its answer, which must not be a temporary link
    before = {name: os.environ[name] for name in ("RAY_TMPDIR", "TMPDIR") if os.environ.get(name)}
    paths = {name: Path(path).absolute() for name, path in before.items()}
    long = {name: path for name, path in paths.items() if not fits_sockets(path, os.getpid())}
    if not long:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="oa-", dir="/tmp") as links:
        for name, path in long.items():
            link = Path(links, name[0])
            link.symlink_to(path)
            os.environ[name] = str(link)
        try:
            yield
        finally:
            os.environ.update(before)


def _start(num_cpus: int, folder: Path) -> None:
    for is_last in (False, True):
        before = _sessions(folder)
        try:
            with _without_announcement():
                ray.init(
                    address="local",
                    num_cpus=num_cpus,
                    object_store_memory=_OBJECT_STORE_BYTES,
                    # Ray Train cleans up after itself through the dashboard's interface.
                    include_dashboard=True,
                    dashboard_host="127.0.0.1",
                    log_to_driver=False,
                    logging_level=logging.WARNING,
                    # RAY_TMPDIR is public, but Ray takes a relative or an empty one as it is.
                    _temp_dir=str(folder),
                )
        except BaseException as error:
            ray.shutdown()
            _remove(_sessions(folder) - before)
            # Ray has no common base class for errors at its start.
            if not isinstance(error, Exception) or is_full_disk(error):
                raise
            if is_last:
                reason = one_line(error)[:300].rstrip(".")
                remedy = "If the machine is short of processors or memory, try the same command again later."
                raise ExplainedError(f"Ray did not start in {folder}, in two tries: {reason}. {remedy}") from None
        else:
            return


def _sessions(folder: Path) -> set[Path]:
    """Return the folders of the Rays that this process has started."""
    return set(folder.glob(f"session_*_{os.getpid()}"))


def _remove(sessions: set[Path]) -> None:
    """End the processes of Rays that this process has started, and delete their folders.

    A failed start leaves both behind, since Ray keeps track of its processes only once all of them run.
    """
    names = {session.name for session in sessions}
    every = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has ended
            if any(name in word for word in child.cmdline() for name in names):
                every += [child, *child.children(recursive=True)]
    for process in every:
        with suppress(psutil.NoSuchProcess):  # ended together with its parent
            process.kill()
    psutil.wait_procs(every, timeout=_SECONDS_TO_END)
    for session in sessions:
        shutil.rmtree(session, ignore_errors=True)


@contextmanager
def _without_announcement() -> Iterator[None]:
    """Hold back standard error, also that of C++, and then write all of it except one line."""
    if sys.stderr is None:  # closed by the caller
        yield
        return
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            held.seek(0)
            for line in held:
                if _ANNOUNCEMENT not in line:
                    os.write(2, line)
