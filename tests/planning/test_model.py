"""Time, cost and bottleneck: by hand, and what holds for whatever work."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.config import PretrainExecution
from objectaware.config.localize import Cost
from objectaware.errors import InputError
from objectaware.planning.model import (
    Machine,
    Part,
    Prices,
    StageWork,
    Work,
    linear_work,
    localize_work,
    pretrain_work,
    soft_mask_work,
)
from planned import rates

SECONDS = st.floats(0, 1e4)
COUNTS = st.integers(1, 10_000)
MACHINES = st.builds(Machine, st.integers(1, 64), st.integers(1, 512))
WORKS = st.builds(Work, core_seconds=SECONDS, gpu_seconds=SECONDS)
PARTS = st.builds(Part, COUNTS, WORKS, SECONDS, st.none() | st.integers(1, 100))
STAGES = st.builds(StageWork, st.just("stage"), SECONDS, st.lists(PARTS, min_size=1, max_size=4))


def test_a_training_by_hand() -> None:
    """4,096 pictures of 1 MiB, of which 1,024 are kept: 4 epochs decode 1 + 3 · 3/4 times as many."""
    work = pretrain_work(
        rates(),
        backbone="resnet18",
        method="moco",
        num_images=4096,
        num_epochs=4,
        execution=PretrainExecution(cache_mib=1024, checkpoint_interval=2),
    )
    cores = 4 * 4096 * 0.01 + 3.25 * 4096 * 0.02  # 430.08 core-seconds, on four cores less than the GPU's 163.84 s
    assert work.total().core_seconds == pytest.approx(cores + 2 * 2.0)
    time = work.on(Machine(1, 4), Prices(gpu_hour=2.0, core_hour=0.1))
    assert time.seconds == pytest.approx(10 + 5 + 4 * 4096 * 0.01 + 2 * 2.0)
    assert time.bottleneck == "GPU"
    assert time.cost == pytest.approx(time.seconds / 3600 * (2.0 + 4 * 0.1))
    starved = work.on(Machine(8, 2))
    assert starved.seconds == pytest.approx(10 + 5 + cores / 2 + 4)
    assert starved.bottleneck == "CPU cores"


def test_a_localization_by_hand() -> None:
    """640 images of which a group of 64 is read before all else and refined after it."""
    soft_mask = soft_mask_work(rates(), backbone="resnet18", cost=Cost(10, expansion=2))
    work = localize_work(rates(), num_images=640, soft_mask=soft_mask, crf=True, group_size=64)
    beside = 0.9 * 640 * (0.03 + 0.1) / 4  # 18.72 s of four cores, less than the GPU's 25.6 s
    assert beside < 640 * 0.04
    serial = 64 * 0.03 + 64 * 0.1 + 640 * 0.001 + 200 * 0.05
    assert work.on(Machine(1, 4)).seconds == pytest.approx(6 + 640 * 0.04 + serial)
    assert work.on(Machine(4, 2)).bottleneck == "CPU cores"
    without = localize_work(rates(), num_images=640, soft_mask=soft_mask, crf=False, group_size=64)
    assert without.total().core_seconds == pytest.approx(640 * (0.04 + 0.001) + 200 * 0.05)


def test_a_linear_evaluation_by_hand() -> None:
    """Decoding and the network take turns; the fit is one process's."""
    work = linear_work(rates(), backbone="resnet18", num_train=4000, num_tests=1000, num_classes=10)
    fit = 3.0 + 4000 * 512 * 10 * 1e-7
    assert work.on(Machine(1, 4)).seconds == pytest.approx(4 + 5000 * 0.03 / 4 + 5000 * 0.002 + fit)
    # Three parts of 2,048 images: of two GPUs one takes two of them.
    assert work.on(Machine(2, 4)).seconds == pytest.approx(4 + 5000 * 0.03 / 4 + 4096 * 0.002 + fit)


def test_without_a_gpu_the_cores_do_its_work() -> None:
    work = StageWork("stage", 0.0, [Part(100, Work(core_seconds=0.4).and_cores(0.1))])
    time = work.on(Machine(0, 2))
    assert (time.seconds, time.bottleneck, time.gpu_hours) == (pytest.approx(25.0), "CPU cores", 0.0)


@settings(deadline=None)
@given(PARTS, MACHINES)
def test_more_of_what_is_no_bottleneck_changes_nothing(part: Part, machine: Machine) -> None:
    seconds = part.seconds(machine)
    longest = max(seconds.values())
    slowest = max(seconds, key=seconds.__getitem__)
    more = {"GPU": Machine(machine.num_gpus, 2 * machine.num_cores)}
    other = more.get(slowest, Machine(2 * machine.num_gpus, machine.num_cores))
    if slowest == "one process":
        other = Machine(2 * machine.num_gpus, 2 * machine.num_cores)
    assert max(part.seconds(other).values()) == pytest.approx(longest)


@settings(deadline=None)
@given(STAGES, MACHINES, st.integers(0, 64), st.integers(0, 512))
def test_a_larger_machine_is_never_slower(stage: StageWork, machine: Machine, gpus: int, cores: int) -> None:
    larger = Machine(machine.num_gpus + gpus, machine.num_cores + cores)
    assert stage.on(larger).seconds <= stage.on(machine).seconds * (1 + 1e-9)


@settings(deadline=None)
@given(STAGES, MACHINES, st.floats(0, 100), st.floats(0, 100))
def test_the_cost_is_hours_times_prices(stage: StageWork, machine: Machine, gpu: float, core: float) -> None:
    time = stage.on(machine, Prices(gpu, core))
    assert time.gpu_hours == pytest.approx(machine.num_gpus * time.seconds / 3600)
    assert time.core_hours == pytest.approx(machine.num_cores * time.seconds / 3600)
    assert time.cost == pytest.approx(time.gpu_hours * gpu + time.core_hours * core)


@settings(deadline=None)
@given(MACHINES, st.integers(1, 200_000), st.integers(1, 10_000))
def test_more_images_take_longer(machine: Machine, num_images: int, more: int) -> None:
    def times(number: int) -> list[float]:
        pretrain = pretrain_work(
            rates(),
            backbone="resnet18",
            method="moco",
            num_images=number,
            num_epochs=3,
            execution=PretrainExecution(cache_mib=1024, checkpoint_interval=1),
        )
        mask = soft_mask_work(rates(), backbone="resnet18", cost=Cost(2, expansion=1))
        localize = localize_work(rates(), num_images=number, soft_mask=mask, crf=True, group_size=64)
        linear = linear_work(rates(), backbone="resnet18", num_train=number, num_tests=10, num_classes=5)
        return [work.on(machine).seconds for work in (pretrain, localize, linear)]

    assert all(late > early for early, late in zip(times(num_images), times(num_images + more), strict=True))


def test_a_machine_that_the_rates_say_nothing_of_is_refused() -> None:
    assert Machine.of(rates()) == Machine(1, 4)
    assert Machine.of(rates(), num_gpus=8, num_cores=64) == Machine(8, 64)
    with pytest.raises(InputError, match="gpus = 0: does not fit rates of the device cuda"):
        Machine.of(rates(), num_gpus=0)
    with pytest.raises(InputError, match="gpus = 2: does not fit rates of the device cpu"):
        Machine.of(rates(device="cpu", num_gpus=0), num_gpus=2)
    with pytest.raises(InputError, match="cpus = 0: is too few"):
        Machine.of(rates(), num_cores=0)


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_what_is_no_price_is_refused(price: float) -> None:
    with pytest.raises(InputError, match=r"gpu-hour-price = .*: is not a valid price"):
        Prices(gpu_hour=price)
