"""Training on Ray Train. Each run costs ten seconds: few runs, some asked several things."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import safetensors.torch
import torch
from ray.train.torch import TorchTrainer
from ray.train.v2._internal import constants

from actors import actors, placement_groups
from objectaware.config import PretrainConfig, PretrainExecution
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import interface_of
from objectaware.distributed.train import (
    _explained,
    _health_checks,
    _may_pass,
    delete_unlisted,
    mend_snapshot,
    train_on_ray,
    training_needs,
    use_rays_interface,
    worker_variables,
)
from objectaware.errors import InputError
from objectaware.training.loop import TrainingDivergedError
from objectaware.training.pretraining import TrainingCollapsedError
from objectaware.training.session import EXIT_STATUS, NoProgressError, Session
from ray_training import pretrain
from tiny_training import tiny_training

pytestmark = pytest.mark.timeout(900)
slow = pytest.mark.slow
NUM_EPOCHS = 3

HANGS_AFTER_SOME_STEPS = """
import threading
from objectaware.training.session import NoProgressWatch

def wait_for_a_disk_that_is_away():
    threading.Event().wait()

with NoProgressWatch(3, lambda place: print(place, flush=True)) as watch:
    for step in range(16):
        threading.Event().wait(0.25)  # together longer than the limit
        watch.moved()
    print("all steps", flush=True)
    wait_for_a_disk_that_is_away()
"""

# Enough for the driver to swap the picture before training ends, on however slow a machine.
NUM_EPOCHS_TO_SWAP = 10

WAITS = """
import sys, threading, time, torch
from objectaware.training.session import NoProgressWatch
began = time.monotonic()
with NoProgressWatch(0.5, lambda place: print(time.monotonic() - began, flush=True), seconds_for_others=3):
    torch.futures.Future().wait() if sys.argv[1] == "for others" else threading.Event().wait()
"""

WAITS_FOR_ROOM = """
import threading
from objectaware.training.session import NoProgressWatch

def wait_for_a_disk_that_is_away():
    threading.Event().wait()

with NoProgressWatch(0.3, lambda place: print(place, flush=True)) as watch:
    with watch.paused():
        threading.Event().wait(1.5)
    print("there is room", flush=True)
    wait_for_a_disk_that_is_away()
"""

READS_MASKS = """
import threading
from objectaware.training.session import NoProgressWatch

def wait_for_a_disk_that_is_away():
    threading.Event().wait()

with NoProgressWatch(0.3, lambda place: print(place, flush=True), seconds_to_start=600) as watch:
    threading.Event().wait(1)
    watch.moved()
    threading.Event().wait(1)
    watch.stepped()
    print("the first step", flush=True)
    wait_for_a_disk_that_is_away()
"""

ENDS_IN_TIME = """
from objectaware.training.session import NoProgressWatch
with NoProgressWatch(0.2, print):
    pass
import threading
threading.Event().wait(0.6)
"""

LOOPBACK = next(name for name, known in psutil.net_if_addrs().items() if "127.0.0.1" in (one.address for one in known))


def _config(
    images: Path,
    *,
    num_epochs: int = 3,
    num_workers: int = 1,
    checkpoint_interval: int = 1,
    checkpoint_minutes: float | None = None,
) -> PretrainConfig:
    return tiny_training(
        images,
        num_epochs=num_epochs,
        num_workers=num_workers,
        checkpoint_interval=checkpoint_interval,
        keep_every=2,
        checkpoint_minutes=checkpoint_minutes,
    )


def _pretrain(
    config: PretrainConfig,
    storage: Path,
    *,
    on_record: Callable[[dict[str, Any]], None] = lambda record: None,
) -> tuple[Path, list[int]]:
    """Trains in a folder whose name a URI could not hold unquoted; gives the checkpoint and the epochs recorded."""
    epochs: list[int] = []

    def record_epochs(record: dict[str, Any]) -> None:
        if record["kind"] == "epoch":
            epochs.append(record["epoch"])
        on_record(record)

    checkpoint = pretrain(config, Storage.from_uri(storage / "50% #1"), record_epochs)
    return Path(checkpoint), epochs


def _weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(checkpoint / "backbone.safetensors")


def _distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Euclidean distance of two networks' parameters, without the statistics of batch norm."""
    names = [name for name in one if name.endswith((".weight", ".bias"))]
    squares = [(one[name] - other[name]).double().square().sum() for name in names]
    return float(torch.stack(squares).sum().sqrt())


def _next_epoch(checkpoint: Path) -> int:
    return int(torch.load(checkpoint / "state.pt", weights_only=True)["next_epoch"])


@pytest.fixture(scope="module")
def trained(
    ray_session: None, tiny_images: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, list[dict[str, Any]], list[int]]:
    """One worker, three epochs: the storage, the checkpoint, all records, the epochs recorded."""
    storage, records = tmp_path_factory.mktemp("storage"), list[dict[str, Any]]()
    checkpoint, epochs = _pretrain(_config(tiny_images, num_epochs=NUM_EPOCHS), storage, on_record=records.append)
    return storage, checkpoint, records, epochs


Trained = tuple[Path, Path, list[dict[str, Any]], list[int]]


@slow
def test_epochs_are_recorded_and_the_last_checkpoint_returned(trained: Trained) -> None:
    storage, checkpoint, records, epochs = trained
    assert checkpoint == storage / "50% #1" / "train" / "epoch_0002"
    assert _next_epoch(checkpoint) == NUM_EPOCHS
    assert _next_epoch(checkpoint.parent / "kept" / "epoch_0001") == 2
    assert epochs == [0, 1, 2]
    epoch = next(record for record in records if record["kind"] == "epoch")
    assert {"loss", "images_per_second", "learning_rate"} <= set(epoch)
    progress = next(record for record in records if record["kind"] == "progress")
    assert {"epoch", "step", "num_steps", "loss", "chance_loss", "images_per_second"} <= set(progress)


@slow
def test_a_finished_training_is_not_run_again(trained: Trained, tiny_images: Path) -> None:
    storage, checkpoint, before, _ = trained
    records: list[dict[str, Any]] = []
    again, _ = _pretrain(_config(tiny_images, num_epochs=NUM_EPOCHS), storage, on_record=records.append)
    assert again == checkpoint
    assert records == [record for record in before if record["kind"] == "epoch"]


@slow
@pytest.mark.chaos(fault="a torn list of checkpoints", holds="one epoch again, the same result")
def test_a_torn_list_of_checkpoints_costs_one_epoch(trained: Trained, tiny_images: Path) -> None:
    """A kill in the moment in which Ray Train rewrites its list leaves half of it."""
    storage, checkpoint, _, _ = trained
    before = _weights(checkpoint)
    listing = checkpoint.parent / "checkpoint_manager_snapshot.json"
    listing.write_text(listing.read_text()[:40])
    again, epochs = _pretrain(_config(tiny_images, num_epochs=NUM_EPOCHS), storage)
    assert (again, epochs) == (checkpoint, [0, 1, 2])
    after = _weights(again)
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_of_the_checkpoints_without_a_list_the_last_whole_one_before_the_newest_is_taken(tmp_path: Path) -> None:
    names = ["epoch_0001", "epoch_0002_step_00000007", "epoch_0003"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.pt").write_bytes(b"state")
        (tmp_path / name / "epochs.json").write_text("[]")
    run = Storage.from_uri(tmp_path)
    assert mend_snapshot(run) == tmp_path / names[1]  # of an earlier version, without hashes
    whole = f"{hashlib.sha256(b'state').hexdigest()}  state.pt\n"
    (tmp_path / names[0] / "state.sha256").write_text(whole)
    assert mend_snapshot(run) == tmp_path / names[0]  # a half-uploaded one may have no hash yet
    (tmp_path / names[1] / "state.sha256").write_text(whole)
    assert mend_snapshot(run) == tmp_path / names[1]
    (tmp_path / names[1] / "epochs.json").unlink()
    assert mend_snapshot(run) == tmp_path / names[0]
    (tmp_path / names[0] / "state.sha256").write_text(f"{'0' * 64}  state.pt\n")
    assert mend_snapshot(run) is None


def test_what_lost_workers_left_half_uploaded_is_deleted(tmp_path: Path) -> None:
    names = ["epoch_0001", "epoch_0001_step_00000007", "kept/epoch_0000"]
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "state.pt").write_bytes(b"state")
    delete_unlisted(Storage.from_uri(tmp_path), ["epoch_0001"])
    assert [(tmp_path / name).exists() for name in names] == [True, False, True]


def _state(checkpoint: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(checkpoint / "state.pt", weights_only=True)
    return state


@slow
@pytest.mark.chaos(fault="a training worker killed, another asked to end", holds="no step lost or recorded twice")
def test_two_workers_of_which_one_is_killed_and_one_told_to_end_lose_nothing(
    trained: Trained, tiny_images: Path, tmp_path: Path
) -> None:
    """SIGKILL in the first epoch and SIGTERM in the second: the same epochs, loss curve and state to the bit.

    They are those of a training that nobody stops, and whose images are decoded by other processes of the cluster.
    """
    alive = ("class_name", "=", "RayTrainWorker"), ("state", "=", "ALIVE")
    signals = {"progress": signal.SIGKILL, "epoch": signal.SIGTERM}
    losses: list[float] = []
    kinds: list[str] = []

    def signal_a_worker(record: dict[str, Any]) -> None:
        kinds.append(record["kind"])
        if record["kind"] == "epoch":
            losses.append(record["loss"])
        if record["kind"] in signals:
            os.kill(actors(*alive)[-1].pid, signals.pop(record["kind"]))

    # A checkpoint after every step that is not an epoch's last, uploaded while the next steps are made.
    config = _config(tiny_images, num_epochs=NUM_EPOCHS, num_workers=2, checkpoint_minutes=1e-9)
    checkpoint, epochs = _pretrain(config, tmp_path, on_record=signal_a_worker)
    assert not signals
    assert "stopped" in kinds
    assert epochs == list(range(NUM_EPOCHS))
    assert _next_epoch(checkpoint) == NUM_EPOCHS

    # The run that nobody stops has others decode for it, which changes nothing, either.
    cluster = {**config.execution.model_dump(), "decode_on": "cluster"}
    expected: list[float] = []
    whole, _ = _pretrain(
        config.model_copy(update={"execution": PretrainExecution.model_validate(cluster)}),
        tmp_path / "whole",
        on_record=lambda record: expected.append(record["loss"]) if record["kind"] == "epoch" else None,
    )
    assert losses == expected
    assert _same(_state(checkpoint), _state(whole))

    alone, together = _weights(trained[1]), _weights(checkpoint)
    an_epoch_ago = _weights(trained[1].parent / "kept" / "epoch_0001")
    # Seen: 0.014 from rounding over three epochs, beside 0.101 for the last epoch, whose learning rate is a quarter
    # of the first one's. Workers that learn each from its own half would be apart by most of an epoch.
    assert _distance(together, alone) < 0.25 * _distance(an_epoch_ago, alone)


def _same(one: object, other: object) -> bool:
    """Whether two states are equal, tensors to the bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


@slow
def test_ctrl_c_stops_the_workers_and_the_same_call_resumes(
    ray_session: None, tiny_images: Path, tmp_path: Path
) -> None:
    """No epoch is lost, and one that is recorded again has the same metrics: none was computed twice.

    The workers save where they stand before they end.
    """
    # An epoch takes a twentieth of a second. Ten were over before the driver of a busy machine had asked to stop.
    config = _config(tiny_images, num_epochs=40, checkpoint_interval=2)
    recorded: dict[int, dict[str, Any]] = {}
    kinds: list[str] = []

    def interrupt_at_first(record: dict[str, Any]) -> None:
        kinds.append(record["kind"])
        if record["kind"] == "epoch":
            assert recorded.setdefault(record["epoch"], record) == record
            if len(recorded) == 1:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        _pretrain(config, tmp_path, on_record=interrupt_at_first)
    # At once: Ray itself takes seconds, and leaves them for good where another Ray runs on the machine.
    assert placement_groups() == set()
    assert len(recorded) < 40
    assert kinds[-1] == "stopped"
    train = tmp_path / "50% #1" / "train"
    newest = json.loads((train / "checkpoint_manager_snapshot.json").read_text())["latest_checkpoint_result"]
    assert re.fullmatch(r"epoch_\d{4}_step_\d{8}", newest["checkpoint_dir_name"])
    checkpoint, _ = _pretrain(config, tmp_path, on_record=interrupt_at_first)
    assert sorted(recorded) == list(range(40))
    assert _next_epoch(checkpoint) == 40


@slow
def test_a_workers_refusal_comes_back_as_itself_and_is_not_retried(ray_session: None, tmp_path: Path) -> None:
    for number in range(16):
        (tmp_path / f"{number}.png").write_bytes(b"not a picture")
    before = len(actors(("class_name", "=", "RayTrainWorker")))
    with pytest.raises(InputError) as refusal:
        _pretrain(_config(tmp_path), tmp_path / "storage")
    assert type(refusal.value) is InputError
    assert "hold none that can be read" in str(refusal.value)
    assert len(actors(("class_name", "=", "RayTrainWorker"))) == before + 1


def test_what_the_same_work_would_meet_again_is_not_retried() -> None:
    assert not _may_pass(TrainingDivergedError("the loss is nan"))
    assert not _may_pass(TrainingCollapsedError("all the same"))
    assert not _may_pass(torch.OutOfMemoryError("too large"))
    assert _may_pass(RuntimeError("connection closed by peer"))
    assert _may_pass(OSError("storage is away"))


def test_the_death_of_a_worker_that_ended_itself_is_explained() -> None:
    death = RuntimeError("the actor died")
    assert _explained(death, None) is death
    stuck = {"rank": 3, "seconds": 90.0, "place": "in read\n"}
    for other in (InputError("data", "x", "is gone", "Mount it."), OSError(28, "full"), TrainingDivergedError("nan")):
        assert _explained(other, stuck) is other
    explained = _explained(death, {"rank": 3, "seconds": 90.0, "place": "in read\n"})
    assert isinstance(explained, NoProgressError)
    assert "worker 3 made no step for 1.5 minutes" in str(explained)
    assert "set execution.no_progress_minutes to more than 1.5." in str(explained)


@slow
def test_an_elastic_training_starts_with_the_workers_that_fit(
    ray_session: None, tiny_images: Path, tmp_path: Path
) -> None:
    """Five of the eight CPUs are one worker's: there is no room for the second."""
    config = _config(tiny_images, num_epochs=1, num_workers=2)
    num_cpus = int(ray.cluster_resources()["CPU"]) // 2 + 1
    elastic = config.execution.model_copy(update={"min_workers": 1, "num_compute_threads": num_cpus})
    checkpoint, epochs = _pretrain(config.model_copy(update={"execution": elastic}), tmp_path)
    assert epochs == [0]
    assert _next_epoch(checkpoint) == 1


def test_fewer_workers_are_needed_where_fewer_may_train() -> None:
    execution = PretrainExecution(num_workers=4, min_workers=2)
    assert training_needs(execution)[0].count == 4
    assert (training_needs(execution, least=True)[0].name, training_needs(execution, least=True)[0].count) == (
        "min_workers",
        2,
    )


def test_a_cluster_that_is_too_small_is_refused(ray_session: None, tiny_images: Path, tmp_path: Path) -> None:
    config = _config(tiny_images).model_copy(
        update={"execution": PretrainExecution(num_workers=1000, num_compute_threads=2)}
    )
    with pytest.raises(InputError, match=r"1000 num_workers × 2 = 2000 CPUs"):
        _pretrain(config, tmp_path)


def test_ray_train_still_has_the_method_that_keeps_ctrl_c_ours() -> None:
    """It is private, and there is no public one: without it Ray Train's own handler would end the process."""
    parameters = list(inspect.signature(TorchTrainer._register_sigint_handler).parameters)
    assert parameters == ["self", "controller"]
    caller = TorchTrainer._initialize_and_run_controller
    assert "_register_sigint_handler" in caller.__code__.co_names


def test_a_gpu_worker_asks_for_cpus_to_decode_with() -> None:
    (need,) = training_needs(PretrainExecution(num_workers=4, use_gpu=True, num_loader_threads=6))
    assert (need.count, need.num_cpus, need.num_gpus) == (4, 6, 1)


@pytest.fixture
def default_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name == "GLIBC_TUNABLES" or name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("default_memory")
def test_memory_is_kept_on_a_cpu_unless_the_user_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_variables(PretrainExecution())["MALLOC_ARENA_MAX"] == "1"
    assert worker_variables(PretrainExecution(use_gpu=True)) == {}
    for name in ("MALLOC_ARENA_MAX", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES"):
        with monkeypatch.context() as user:
            user.setenv(name, "2")
            assert worker_variables(PretrainExecution()) == {}


@slow
@pytest.mark.usefixtures("default_memory", "ray_session")
def test_a_worker_has_its_variables_before_it_starts(tiny_images: Path, tmp_path: Path) -> None:
    """glibc reads them at the start of a process, as /proc shows it, and not when Python sets them."""

    def refuse(config: PretrainConfig, session: Session) -> None:
        started_with = Path("/proc/self/environ").read_bytes().decode().split("\0")
        raise InputError("variables", json.dumps(started_with), "are these", "Nothing.")

    with pytest.raises(InputError) as refusal:
        train_on_ray(refuse, _config(tiny_images), storage=Storage.from_uri(tmp_path), on_record=lambda record: None)
    variables = worker_variables(PretrainExecution())
    assert variables
    assert {f"{name}={value}" for name, value in variables.items()} <= set(json.loads(refusal.value.value))


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("program", "before"),
    [(HANGS_AFTER_SOME_STEPS, "all steps"), (WAITS_FOR_ROOM, "there is room"), (READS_MASKS, "the first step")],
    ids=["after some steps", "once it has had to wait for room", "from its first step on"],
)
def test_a_process_that_does_not_move_tells_where_it_stands_and_ends(program: str, before: str) -> None:
    done = _run(program)
    assert done.returncode == EXIT_STATUS, done.stderr
    said, place = done.stdout.split("\n", 1)
    assert said == before
    assert "wait_for_a_disk_that_is_away" in place


def test_a_process_that_has_ended_its_work_is_left_alone() -> None:
    done = _run(ENDS_IN_TIME)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_process_that_waits_for_others_leaves_it_to_them_to_tell_first() -> None:
    itself, for_others = (float(_run(WAITS, what).stdout) for what in ("for itself", "for others"))
    assert 0.5 <= itself < 3.5 <= for_others


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.chaos(fault="a training worker hangs in a read", holds="it ends itself, says where, and training goes on")
def test_a_worker_that_hangs_in_a_read_is_begun_again(ray_session: None, tiny_images: Path, tmp_path: Path) -> None:
    """A picture becomes a pipe that nobody writes to, whose reading never returns, until a worker has ended over it."""
    images = tmp_path / "images"
    shutil.copytree(tiny_images, images)
    picture = next(path for path in sorted(images.rglob("*")) if path.is_file())
    content = picture.read_bytes()
    stuck: list[dict[str, Any]] = []
    epochs: list[int] = []

    def swap(record: dict[str, Any]) -> None:
        if record["kind"] == "epoch":
            epochs.append(record["epoch"])
            if len(epochs) == 1:
                os.mkfifo(tmp_path / "pipe")
                (tmp_path / "pipe").replace(picture)
        if record["kind"] == "stuck":
            stuck.append(record)
            (tmp_path / "whole").write_bytes(content)
            (tmp_path / "whole").replace(picture)

    config = tiny_training(images, num_epochs=NUM_EPOCHS_TO_SWAP, num_workers=2, cache_mib=0, no_progress_minutes=1 / 3)
    checkpoint = pretrain(config, Storage.from_uri(tmp_path / "runs"), swap)
    assert Path(checkpoint).name == f"epoch_{NUM_EPOCHS_TO_SWAP - 1:04d}"
    assert sorted(set(epochs)) == list(range(NUM_EPOCHS_TO_SWAP))
    # The one that reads, and not the one that waits for it in PyTorch.
    told = stuck[0]
    assert told["seconds"] == 20
    assert "in thread views" in told["place"]
    assert "pathlib.py" in told["place"]


def test_an_address_has_its_interface() -> None:
    for name, addresses in psutil.net_if_addrs().items():
        assert interface_of(addresses[0].address) == name


def test_an_address_of_another_machine_has_none() -> None:
    assert interface_of("192.0.2.1") is None  # reserved for examples


@pytest.fixture
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is set first goes again afterwards, whatever the test has set.
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")


@pytest.mark.usefixtures("no_choice")
def test_gloo_is_told_where_ray_is_and_not_where_the_name_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    use_rays_interface()
    assert os.environ["GLOO_SOCKET_IFNAME"] == LOOPBACK


@pytest.mark.usefixtures("no_choice")
@pytest.mark.parametrize(("address", "named"), [("127.0.0.1", "eth7"), ("192.0.2.1", None)])
def test_what_the_user_chose_stays_and_nothing_is_guessed(
    address: str, named: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named is not None:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", named)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: address)
    use_rays_interface()
    assert os.environ.get("GLOO_SOCKET_IFNAME") == named


@pytest.mark.parametrize(("num_workers", "seconds"), [(1, 0.2), (16, 0.2), (256, 3.2)])
def test_epochs_do_not_wait_for_the_controller_and_it_looks_at_no_more_than_80_workers_a_second(
    num_workers: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks every 2 s by default, by a variable that Ray passes on to it."""
    name = constants.HEALTH_CHECK_INTERVAL_S_ENV_VAR
    assert name not in os.environ
    with _health_checks(num_workers):
        assert float(constants.get_env_vars_to_propagate()[name]) == pytest.approx(seconds)
    assert name not in os.environ
    monkeypatch.setenv(name, "7")  # the user's own
    with _health_checks(num_workers):
        assert os.environ[name] == "7"
    assert os.environ[name] == "7"
