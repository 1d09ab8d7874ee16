import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from objectaware.data.storage import Storage
from objectaware.stages.lease import Lease, LeaseHeldError, is_live


@pytest.fixture
def folder(tmp_path: Path) -> Storage:
    return Storage.from_uri(tmp_path)


def test_a_second_command_is_told_who_holds_the_stage(folder: Storage) -> None:
    with Lease(folder), pytest.raises(LeaseHeldError, match=f"process {os.getpid()}"):
        Lease(folder).__enter__()
    with Lease(folder):
        pass
    assert not folder.exists("lease.json")


def test_every_renewal_has_one_length(folder: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads an object store asks for the length first: a renewal in between must not cut it off."""
    lengths = set()
    for now in (1.5, 1_795_876_510.1234567):
        monkeypatch.setattr("objectaware.stages.lease.time.time", lambda now=now: now)
        with Lease(folder):
            lengths.add(len(folder.read_bytes("lease.json")))
    assert len(lengths) == 1


def test_the_lease_of_a_killed_process_is_taken_over(folder: Storage, tmp_path: Path) -> None:
    script = (
        "import os, signal; from objectaware.data.storage import Storage; from objectaware.stages.lease import Lease;"
        f"Lease(Storage.from_uri({str(tmp_path)!r})).__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert folder.exists("lease.json")
    with Lease(folder):
        assert folder.read_json("lease.json")["pid"] == os.getpid()


def test_a_process_with_a_dead_ones_number_is_not_taken_for_it(folder: Storage) -> None:
    with Lease(folder):
        holder = folder.read_json("lease.json")
    assert is_live(holder)
    assert not is_live({**holder, "process_started": "1"})


def test_a_lease_of_another_host_counts_until_its_stamp_is_old(folder: Storage) -> None:
    holder = {"host": "elsewhere", "pid": 1, "process_started": "1", "renewed": time.time()}
    assert is_live(holder)
    assert not is_live({**holder, "renewed": time.time() - 1000})


def test_a_lease_taken_over_is_not_given_back_by_its_old_holder(folder: Storage) -> None:
    with Lease(folder):
        stolen = {**folder.read_json("lease.json"), "token": "thief"}
        folder.write_bytes("lease.json", json.dumps(stolen).encode())
    assert folder.read_json("lease.json")["token"] == "thief"


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
        with Lease(self._folder, on_wait=self.waits.append):
            self.events.append("taken")
            time.sleep(0.02)
            self.events.append("given back")

    def join(self) -> list[str]:
        for thread in self._threads:
            thread.join(timeout=60)
        return self.events


def test_a_second_command_may_wait_and_says_so_once(folder: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("objectaware.stages.lease._SECONDS_BETWEEN_LOOKS", 0.01)
    said = threading.Event()
    with Lease(folder):
        waiting = Lease(folder, on_wait=lambda line: said.set())
        thread = threading.Thread(target=waiting.__enter__, daemon=True)
        thread.start()
        assert said.wait(timeout=60)
        assert folder.read_json("lease.json")["token"] != waiting._token
    thread.join(timeout=60)
    assert folder.read_json("lease.json")["token"] == waiting._token
    waiting.__exit__(None, None, None)


@pytest.mark.parametrize("left_by", ["nobody", "a dead holder", "a dead holder and a dead heir"])
def test_of_many_that_wait_one_at_a_time_has_it(folder: Storage, left_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("objectaware.stages.lease._SECONDS_BETWEEN_LOOKS", 0.01)
    with Lease(folder):
        dead = {**folder.read_json("lease.json"), "process_started": "1"}
    if left_by != "nobody":
        folder.write_json("lease.json", dead)
    if left_by == "a dead holder and a dead heir":
        folder.write_json(f"lease-after-{dead['token']}.json", {**dead, "token": "heir"})
    assert _Waiters(folder, 8).join() == ["taken", "given back"] * 8
    assert folder.list_names() == []
