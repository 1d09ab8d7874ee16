import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.stages import lease
from objectaware.stages.lease import (
    Generations,
    Holder,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    Tenancy,
    current_holder,
    is_live,
)
from s3_server import object_store


@pytest.fixture
def folder(tmp_path: Path) -> Storage:
    return Storage.from_uri(tmp_path)


@pytest.fixture
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(lease, "_RENEWAL_SECONDS", 0.01)


def newest(folder: Storage) -> Holder:
    _, holder = Generations(folder).current()
    assert holder is not None
    return holder


def take_over(folder: Storage, **fields: Any) -> Holder:
    """Put a command of another host in the place of the holder, at the first moment in which that succeeds."""
    generations = Generations(folder)
    holder = {
        "token": "thief", "host": "elsewhere", "machine": "of another kernel", "pid": 1, "process_started": "1",
        "renewed": time.time(), "released": False, **fields,
    }  # fmt: skip
    while not generations.advance(generations.newest(), holder):
        pass
    return holder


def test_a_second_command_is_told_who_holds_the_stage(folder: Storage) -> None:
    with Lease(folder), pytest.raises(LeaseHeldError, match=f"process {os.getpid()}"):
        Lease(folder).__enter__()
    assert current_holder(folder) is None
    with Lease(folder):
        assert current_holder(folder) is not None


def test_a_holder_that_renews_during_the_look_is_seen(folder: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Generations.read

    def read_late(generations: Generations, number: int) -> Holder | None:
        if number == 1:
            held._tenancy.renew()
        return read(generations, number)

    with Lease(folder) as held:
        monkeypatch.setattr(Generations, "read", read_late)
        assert current_holder(folder) is not None


def test_one_small_file_is_left_of_a_lease_however_often_it_was_renewed(folder: Storage, in_haste: None) -> None:
    with Lease(folder):
        while Generations(folder).newest() < 5:
            time.sleep(0.01)
    assert len(folder.list_files()) == 1
    with Lease(folder, for_good=True):
        pass
    assert not Path(folder.uri).exists()


def test_the_lease_of_a_killed_process_is_taken_over(folder: Storage, tmp_path: Path) -> None:
    script = (
        "import os, signal; from objectaware.data.storage import Storage; from objectaware.stages.lease import Lease;"
        f"Lease(Storage.from_uri({str(tmp_path)!r})).__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert newest(folder)["pid"] != os.getpid()
    with Lease(folder):
        assert newest(folder)["pid"] == os.getpid()


def test_a_process_that_has_ended_without_being_asked_how_is_dead(folder: Storage) -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with Lease(folder):
        holder = newest(folder)
    assert not is_live({**holder, "pid": process.pid})
    process.wait()
    assert not is_live({**holder, "pid": process.pid})


def test_a_process_with_a_dead_ones_number_is_not_taken_for_it(folder: Storage) -> None:
    with Lease(folder):
        holder = newest(folder)
    assert is_live(holder)
    assert not is_live({**holder, "process_started": "1"})
    # Of another machine, whose host has the same name, nobody can tell.
    assert is_live({**holder, "process_started": "1", "machine": "of another kernel"})


def test_a_command_of_another_host_is_refused_at_once_or_as_soon_as_it_shows_life(
    folder: Storage, in_haste: None
) -> None:
    take_over(folder)
    with pytest.raises(LeaseHeldError, match="on elsewhere"):
        Lease(folder).__enter__()
    take_over(folder, renewed=time.time() - 1000)  # its clock is behind
    lines: list[str] = []

    def renew(line: str) -> None:
        lines.append(line)
        take_over(folder, renewed=time.time() - 999)

    with pytest.raises(LeaseHeldError, match="on elsewhere"):
        Lease(folder, notify=renew).__enter__()
    assert len(lines) == 1
    assert "unless it shows life within 90 s" in lines[0]


@pytest.mark.parametrize("seconds", [-1000, 1000])
def test_a_dead_command_of_another_host_is_taken_over_whatever_its_clock_says(
    folder: Storage, seconds: float, in_haste: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_EXPIRY_SECONDS", 0.2)
    take_over(folder, renewed=time.time() + seconds)
    begun = time.monotonic()
    with Lease(folder, waits=True):
        assert time.monotonic() - begun > 0.2
        assert newest(folder)["pid"] == os.getpid()


def failing(monkeypatch: pytest.MonkeyPatch, number: int) -> Callable[[], int]:
    """Let the next requests for a new number fail, half of them after they have done their work."""
    create, left = Storage.create_exclusive, [number]

    def fail(self: Storage, *arguments: Any) -> bool:
        left[0] -= 1
        if left[0] < 0:
            return create(self, *arguments)
        if left[0] % 2:
            create(self, *arguments)
        raise OSError("SLOW_DOWN")

    monkeypatch.setattr(Storage, "create_exclusive", fail)
    return lambda: left[0]


def test_renewals_that_fail_are_tried_again(
    folder: Storage, in_haste: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Lease(folder) as held:
        left = failing(monkeypatch, 5)
        while left() > -3:
            time.sleep(0.01)
        held.claim()
        assert newest(folder)["token"] == held._tenancy.token
    assert newest(folder)["released"]
    assert "SLOW_DOWN" in caplog.text


def test_what_was_computed_stays_good_where_the_lease_cannot_be_given_back(
    folder: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Lease(folder):
        failing(monkeypatch, 1)
    assert "which will expire" in caplog.text


def test_a_holder_that_has_lost_its_lease_is_interrupted_and_writes_nothing_more(
    folder: Storage, in_haste: None
) -> None:
    held = Lease(folder)
    guarded = folder.guarded(held.claim)

    def compute() -> None:
        with held:
            guarded.write_bytes("before", b"")
            take_over(folder)
            threading.Event().wait(60)

    with pytest.raises(LeaseLostError, match="taken over"):
        compute()
    refused: list[Callable[[], object]] = [
        lambda: guarded.write_bytes("after", b""),
        lambda: guarded.child("deep").write_pieces("after", [b""]),
        lambda: guarded.create_exclusive("after", b""),
        lambda: guarded.delete("before"),
        lambda: guarded.child("deep").delete_all(),
    ]
    for write in refused:
        with pytest.raises(LeaseLostError):
            write()
    assert folder.list_names() == ["before"]
    assert newest(folder)["token"] == "thief"


def test_outside_the_main_thread_the_next_write_ends_the_holder(folder: Storage, in_haste: None) -> None:
    errors: list[BaseException] = []

    def hold() -> None:
        try:
            with Lease(folder) as held:
                take_over(folder)
                while True:
                    folder.guarded(held.claim).write_bytes("written", b"")
                    time.sleep(0.01)
        except LeaseLostError as error:
            errors.append(error)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    thread.join(timeout=60)
    assert len(errors) == 1


def test_processes_that_work_for_a_holder_stop_with_it(folder: Storage) -> None:
    with Lease(folder) as held:
        workers = pickle.loads(pickle.dumps(folder.guarded(held.claim))).child("shards")
        workers.write_bytes("before", b"")
        held._tenancy.renew()
        workers.write_bytes("before", b"again")
        take_over(folder)
        with pytest.raises(LeaseLostError):
            workers.write_bytes("after", b"")
    assert folder.child("shards").list_names() == ["before"]


def test_a_machine_that_does_not_see_the_lease_writes_nothing(tmp_path: Path) -> None:
    """A folder of the same name on another machine's own disk."""
    folder, elsewhere = tmp_path / "runs", tmp_path / "on the driver"
    with Lease(Storage.from_uri(folder)) as held:
        workers = pickle.loads(pickle.dumps(Storage.from_uri(folder).guarded(held.claim)))
        folder.rename(elsewhere)
        with pytest.raises(InputError, match="is not shared by the cluster"):
            workers.write_bytes("result.json", b"")
        assert not folder.exists()
        elsewhere.rename(folder)


def test_processes_of_a_holder_whose_files_were_pruned_stop_with_it(folder: Storage) -> None:
    with Lease(folder) as held:
        workers = pickle.loads(pickle.dumps(folder.guarded(held.claim)))
        workers.write_bytes("before", b"")
        Generations(folder).delete()
        with pytest.raises(LeaseLostError):
            workers.write_bytes("after", b"")


@pytest.mark.parametrize("is_known", [False, True])
def test_one_empty_look_ends_no_work(folder: Storage, is_known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, missed = Generations._numbers, list[list[int]]()
    with Lease(folder) as held:
        workers = pickle.loads(pickle.dumps(folder.guarded(held.claim)))
        if is_known:
            workers.require_writable()
        missed.append([])
        monkeypatch.setattr(Generations, "_numbers", lambda self: missed.pop() if missed else numbers(self))
        workers.require_writable()
        assert missed == []


def test_a_holder_that_slept_writes_only_after_it_has_renewed(folder: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    tenancy = Tenancy(folder, now=lambda: now[0])
    assert tenancy.take() is None
    now[0] = 59.0
    tenancy.check()
    assert Generations(folder).newest() == 1
    now[0] = 1e6
    tenancy.check()
    assert Generations(folder).newest() == 2
    now[0] = 2e6
    failing(monkeypatch, 1)
    with pytest.raises(OSError, match="SLOW_DOWN"):
        tenancy.check()
    tenancy.check()
    now[0] = 3e6
    take_over(folder)
    with pytest.raises(LeaseLostError):
        tenancy.check()


class _Waiters:
    """Threads that each want the lease, as commands do, and note when they have it and when they give it back."""

    def __init__(self, folder: Storage, number: int) -> None:
        self.events: list[str] = []
        self.waits: list[str] = []
        self._folder = folder
        self._threads = [threading.Thread(target=self._hold, daemon=True) for _ in range(number)]
        for thread in self._threads:
            thread.start()

    def _hold(self) -> None:
        with Lease(self._folder, waits=True, notify=self.waits.append):
            self.events.append("taken")
            time.sleep(0.02)
            self.events.append("given back")

    def join(self) -> list[str]:
        for thread in self._threads:
            thread.join(timeout=60)
        return self.events


def test_a_second_command_may_wait_and_says_so_once(folder: Storage, in_haste: None) -> None:
    said = threading.Event()
    with Lease(folder) as held:
        waiting = Lease(folder, waits=True, notify=lambda line: said.set())
        thread = threading.Thread(target=waiting.__enter__, daemon=True)
        thread.start()
        assert said.wait(timeout=60)
        assert newest(folder)["token"] == held._tenancy.token
    thread.join(timeout=60)
    assert newest(folder)["token"] == waiting._tenancy.token
    waiting.__exit__(None, None, None)


def test_a_command_that_waits_outlasts_a_store_that_fails(
    folder: Storage, in_haste: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([False, True, True])
    look = Generations.newest

    def fail(self: Generations) -> int:
        if next(looks, False):
            raise OSError("SLOW_DOWN")
        return look(self)

    take_over(folder)
    monkeypatch.setattr(Generations, "newest", fail)
    with Lease(folder, waits=True, notify=lambda line: Generations(folder).delete()):
        assert newest(folder)["pid"] == os.getpid()


@pytest.mark.parametrize("left_by", ["nobody", "a dead holder"])
@pytest.mark.parametrize("place", ["disk", "S3"])
def test_of_many_that_wait_one_at_a_time_has_it(tmp_path: Path, place: str, left_by: str, in_haste: None) -> None:
    """On S3 by its own conditional requests, from moto's server."""
    with object_store() as form:
        folder = Storage.from_uri(tmp_path if place == "disk" else form.format("folder"))
        if left_by == "a dead holder":
            with Lease(folder):
                dead = {**newest(folder), "process_started": "1"}
            take_over(folder, **dead)
        assert _Waiters(folder, 6).join() == ["taken", "given back"] * 6
        assert len(folder.list_files()) == 1
