"""A Ray of this machine's own that does not come up, or has to lie in a folder with a long name."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from objectaware.distributed import local_ray
from objectaware.distributed.local_ray import fits_sockets, temporary_folder
from objectaware.errors import ExplainedError, InputError
from processes import printed_by, processes_using


class Starts:
    """In place of Ray: each of the first starts leaves processes and a folder behind, and raises."""

    def __init__(self, num_failures: int) -> None:
        self.num_failures = num_failures
        self.folders: list[Path] = []
        self.children: list[subprocess.Popen[bytes]] = []
        self.is_up = False

    def init(self, *, _temp_dir: str, **_: object) -> None:
        session = Path(_temp_dir, f"session_2026-01-01_00-00-00_{len(self.folders):06d}_{os.getpid()}")
        (session / "sockets").mkdir(parents=True)
        self.folders.append(session)
        # One that ends only when it is killed, and one below it.
        script = "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        script += "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]]);"
        script += "print(flush=True); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", script, f"--session={session}"], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        self.children.append(child)
        if len(self.folders) <= self.num_failures:
            raise Exception("The current node timed out during startup.\nThe GCS may be overloaded.")
        self.is_up = True

    def shutdown(self) -> None:
        self.is_up = False


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="oa-", dir="/tmp") as name:
        monkeypatch.setenv("RAY_TMPDIR", name)
        yield Path(name)


@pytest.fixture
def start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Starts]]:
    begun: list[Starts] = []

    def patched(num_failures: int) -> Starts:
        starts = Starts(num_failures)
        begun.append(starts)
        monkeypatch.setattr(local_ray.ray, "init", starts.init)
        monkeypatch.setattr(local_ray.ray, "shutdown", starts.shutdown)
        return starts

    yield patched
    for starts in begun:
        for child in starts.children:
            for number in processes_using(folder):
                os.kill(number, 9)
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


def test_a_start_that_fails_is_cleaned_up_and_made_once_more(folder: Path, start: Callable[[int], Starts]) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    starts = start(1)
    try:
        with local_ray.local_ray(8):
            assert starts.is_up
            failed, good = starts.folders
            assert not failed.exists()
            assert good.is_dir()
            assert not any(failed.name in command for command in processes_using(failed).values())
            assert starts.children[0].poll() is not None
            assert starts.children[1].poll() is None
            assert bystander.poll() is None
        assert not starts.is_up
    finally:
        bystander.kill()
        bystander.wait()


def test_a_second_failure_is_said_in_a_line(folder: Path, start: Callable[[int], Starts]) -> None:
    starts = start(2)
    with pytest.raises(ExplainedError) as refused, local_ray.local_ray(8):
        pass
    assert "\n" not in str(refused.value)
    assert "two tries: The current node timed out during startup." in str(refused.value)
    assert refused.value.__cause__ is None  # which would be shown as a traceback
    assert len(starts.folders) == 2
    assert not any(session.exists() for session in starts.folders)
    assert processes_using(folder) == {}


def test_an_interrupt_is_no_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []

    def interrupted(**_: object) -> None:
        starts.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(local_ray.ray, "init", interrupted)
    monkeypatch.setattr(local_ray.ray, "shutdown", lambda: None)
    with pytest.raises(KeyboardInterrupt), local_ray.local_ray(8):
        pass
    assert len(starts) == 1


@pytest.mark.parametrize(("length", "fits"), [(4, True), (36, True), (37, False), (39, False), (80, False)])
def test_what_fits_into_the_names_of_sockets(length: int, fits: bool) -> None:
    """Seen with process ids of four digits: 38 characters do, 39 do not."""
    folder = Path("/" + "x" * (length - 1))
    assert fits_sockets(folder, 100_000) == fits
    assert fits_sockets(Path(f"{folder}xx"), 1_000) == fits


@pytest.mark.parametrize("length", [38, 39, 41, 42, 80])
@pytest.mark.parametrize("variable", ["RAY_TMPDIR", "TMPDIR"])
def test_ray_reaches_a_folder_with_a_long_name_by_a_short_one(
    length: int, variable: str, folder: Path, start: Callable[[int], Starts], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = folder / ("x" * (length - len(str(folder)) - 1))
    assert len(str(long)) == length
    monkeypatch.delenv("RAY_TMPDIR")
    monkeypatch.setenv(variable, str(long))
    starts = start(0)
    with local_ray.local_ray(8):
        (session,) = starts.folders
        assert fits_sockets(session.parents[1], os.getpid())
        assert session.resolve().is_relative_to(long.resolve())
        starts.children[0].kill()
    assert not session.parents[1].exists() or session.parents[1] == long


def test_a_folder_that_cannot_be_written_to_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(folder / "file"))

    def unexpected(**_: object) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(local_ray.ray, "init", unexpected)
    with pytest.raises(InputError, match="cannot be written to"), local_ray.local_ray(8):
        pass


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"RAY_TMPDIR": "/a", "TMPDIR": "/b"}, "/a"), ({"RAY_TMPDIR": "", "TMPDIR": "/b"}, "/b"), ({}, "/tmp")],
)
def test_where_ray_keeps_its_files(environment: dict[str, Any], expected: str) -> None:
    assert temporary_folder(environment) == Path(expected)


def test_only_rays_announcement_is_left_out_of_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with local_ray._without_announcement():
        os.write(2, b"[2026 I 1 1] logging.cc:303: Set ray log level from environment variable RAY_X to 3\nmatters\n")
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "matters\nlater\n"


def test_ray_seldom_lists_the_workers_logs() -> None:
    """By its own defaults it lists all of them at each of ten looks per second, as long as there are few."""
    program = (
        "import os, time\nos.environ.pop('RAY_LOG_MONITOR_MANY_FILES_THRESHOLD', None)\n"  # the tests' own
        "from objectaware.distributed.local_ray import _ENVIRONMENT\nos.environ.update(_ENVIRONMENT)\n"
        "from types import SimpleNamespace\nfrom ray._private.log_monitor import LogMonitor\n"
        "monitor = SimpleNamespace(log_filenames=[])\n"
        "print([LogMonitor.should_update_filenames(monitor, time.time() - ago) for ago in (5, 15)])"
    )
    assert printed_by(program) == "[False, True]"
