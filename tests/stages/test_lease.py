import json
import os
import subprocess
import sys
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
