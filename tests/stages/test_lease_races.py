"""Leases under failing, slow and racing requests: a simulated store, simulated clocks, and a seed for each history."""

from __future__ import annotations

import heapq
import itertools
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from objectaware.stages import lease
from objectaware.stages.lease import Generations, Holder, LeaseLostError, Tenancy

NUM_HISTORIES = 1000
LONGEST_WRITE = 25.0
SECONDS_TO_GIVE_UP = 20.0
END = 3000.0


class Died(BaseException):
    """The process of an actor is no more."""


def _baton() -> threading.Lock:
    """A lock that is given by one thread and taken by another; much quicker than a semaphore."""
    baton = threading.Lock()
    baton.acquire()
    return baton


class World:
    """Threads of which one runs at a time, until it sleeps; simulated time and a seed decide which goes on."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.current: Actor | None = None
        self.errors: list[BaseException] = []
        self._end = _baton()
        self._queue: list[tuple[float, float, int, Actor | Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, time: float, what: Actor | Callable[[], None]) -> None:
        """Let a thread go on, or something happen, at a time."""
        heapq.heappush(self._queue, (time, self.random.random(), next(self._numbers), what))

    def sleep(self, seconds: float) -> None:
        assert self.current is not None
        self.current.sleep(seconds)

    def run(self) -> None:
        self.pass_on(None)
        self._end.acquire()
        if self.errors:
            raise self.errors[0]

    def pass_on(self, actor: Actor | None) -> None:
        """Go on with what comes next, and return when that is the thread that calls."""
        while self._queue and not self.errors:
            self.now, _, _, what = heapq.heappop(self._queue)
            assert self.now < END, "somebody waits for ever"
            if not isinstance(what, Actor):
                what()
                continue
            self.current = what
            if what is not actor:
                what.baton.release()
                if actor is not None:
                    actor.baton.acquire()
            return
        self._end.release()


class Process:
    """A command's process: its machine, its clock, and how it fares."""

    def __init__(self, world: World, pid: int) -> None:
        draw = world.random
        self.world, self.pid, self.machine = world, pid, draw.choice("AB")
        self._offset, self._rate = draw.uniform(-1e6, 1e6), draw.uniform(0.99, 1.01)
        self.dies = draw.uniform(0, 300) if draw.random() < 0.3 else float("inf")
        self._paused = draw.uniform(0, 200) if draw.random() < 0.3 else float("inf")
        self._woken = self._paused + draw.uniform(0, 200)
        self.has_finished = False

    def clock(self) -> float:
        return self._offset + self._rate * self.world.now

    def is_dead(self) -> bool:
        return self.world.now >= self.dies

    def awake_at(self, time: float) -> float:
        return self._woken if self._paused <= time < self._woken else time

    def describe(self) -> Holder:
        return {"host": self.machine, "machine": self.machine, "pid": self.pid, "renewed": self.clock()}


class Actor:
    """A thread of a process."""

    def __init__(self, process: Process, work: Callable[[], None]) -> None:
        self.process = process
        self.world = process.world
        self.baton = _baton()
        self.has_ended = False
        threading.Thread(target=self._run, args=(work,), daemon=True).start()
        self.world.at(self.world.now, self)

    def sleep(self, seconds: float, *, may_be_paused: bool = True) -> None:
        time = self.world.now + seconds
        self.world.at(self.process.awake_at(time) if may_be_paused else time, self)
        self.world.pass_on(self)
        if self.process.is_dead():
            raise Died

    def _run(self, work: Callable[[], None]) -> None:
        self.baton.acquire()
        try:
            work()
        except Died:
            pass
        except BaseException as error:
            self.world.errors.append(error)
        self.has_ended = True
        self.world.pass_on(None)


class Lock:
    """A lock in simulated time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_held = False

    def __enter__(self) -> None:
        while self._is_held:
            self._world.sleep(0.1)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False


class Folder:
    """A folder of an object store, each request to which takes its time, may fail, or do its work and not be answered.

    Args:
        world: Decides which.
        files: All there are.
        prefix: What the names in this folder begin with.
    """

    uri = "store"

    def __init__(self, world: World, files: dict[str, bytes], prefix: str = "") -> None:
        self._world, self._files, self._prefix = world, files, prefix

    def child(self, name: str) -> Folder:
        return Folder(self._world, self._files, f"{self._prefix}{name}/")

    def list_names(self) -> list[str]:
        names = lambda: [name.removeprefix(self._prefix) for name in self._files if name.startswith(self._prefix)]  # noqa: E731
        return list(self._request(names))

    def read_json(self, name: str) -> Any:
        content = self._request(lambda: self._files.get(self._prefix + name))
        if content is None:
            raise FileNotFoundError(name)
        return json.loads(content)

    def create_exclusive(self, name: str, content: bytes) -> bool:
        def create() -> bool:
            return self._files.setdefault(self._prefix + name, content) is content

        # A client that repeats a request by itself finds what the first one did.
        repeats = self._world.random.random() < 0.03
        return bool(self._request(lambda: (create(), create())[1] if repeats else create()))

    def delete(self, name: str) -> None:
        self._request(lambda: self._files.pop(self._prefix + name, None))

    def delete_files(self, names: Iterator[str]) -> None:
        for name in names:
            self.delete(name)

    def _request(self, effect: Callable[[], Any]) -> Any:
        draw = self._world.random
        there, back = self._latency(), self._latency()
        if draw.random() < 0.05:
            self._world.sleep(there + back)
            raise OSError("SLOW_DOWN")
        results: list[Any] = []
        # Even where the one who asked has given up or died.
        self._world.at(self._world.now + there, lambda: results.append(effect()))
        is_lost = draw.random() < 0.05 or (there + back > SECONDS_TO_GIVE_UP and draw.random() < 0.5)
        self._world.sleep(SECONDS_TO_GIVE_UP if is_lost else there + back)
        if is_lost:
            raise OSError("no answer")
        return results[0]

    def _latency(self) -> float:
        draw = self._world.random
        kind = draw.random()
        return draw.uniform(0, 0.5) if kind < 0.85 else draw.uniform(0, 15) if kind < 0.97 else draw.uniform(0, 120)


class History:
    """Some commands that want one lease, and what becomes of them."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.counts: Counter[str] = Counter()
        self._folder = Folder(self.world, {})
        self._tenant: Process | None = None
        self._tenants_number = 0
        self.processes = [Process(self.world, pid) for pid in range(3)]
        for process in self.processes:
            Actor(process, lambda process=process: self._command(process))

    def run(self) -> Counter[str]:
        self.world.run()
        return self.counts

    def is_gone(self, holder: Holder) -> bool:
        current = self.world.current
        assert current is not None
        return holder["machine"] == current.process.machine and self.processes[holder["pid"]].is_dead()

    def describe(self) -> Holder:
        assert self.world.current is not None
        return self.world.current.process.describe()

    def _command(self, process: Process) -> None:
        world, draw = self.world, self.world.random
        tenancy = Tenancy(self._folder, now=process.clock)  # type: ignore[arg-type]
        tenancy._lock = Lock(world)  # type: ignore[assignment]
        world.sleep(draw.uniform(0, 60))
        self._take(tenancy)
        if tenancy._number > self._tenants_number:  # or it was taken over before its own answer came
            if self._tenant is not None and not self._tenant.is_dead() and not self._tenant.has_finished:
                self.counts["taken from one that lives"] += 1
            self._tenant, self._tenants_number = process, tenancy._number
        stops: list[bool] = []
        renewal = Actor(process, lambda: self._renew(tenancy, stops))
        try:
            for _ in range(draw.randint(1, 8)):
                world.sleep(draw.uniform(0, 30))
                self._write(tenancy, process)
        except LeaseLostError:
            self.counts["lost"] += 1
            return
        finally:
            stops.append(True)
        while not renewal.has_ended:
            world.sleep(1)
        process.has_finished = True
        self._give_back(tenancy)

    def _take(self, tenancy: Tenancy) -> None:
        while True:
            try:
                if tenancy.take() is None:
                    return
                self.world.sleep(self.world.random.uniform(1, 20))
            except OSError:
                self.counts["failed requests"] += 1
                self.world.sleep(1)

    def _renew(self, tenancy: Tenancy, stops: list[bool]) -> None:
        pause = 15.0
        while True:
            self.world.sleep(pause)
            if stops:
                return
            try:
                tenancy.renew()
                pause = 15.0
            except LeaseLostError:
                return
            except OSError:
                self.counts["failed requests"] += 1
                pause = 1.0

    def _write(self, tenancy: Tenancy, process: Process) -> None:
        try:
            tenancy.check()
        except OSError:
            self.counts["failed requests"] += 1
            return
        assert self._tenant is process, "writes what another one holds"
        actor = self.world.current
        assert actor is not None
        actor.sleep(self.world.random.uniform(0, LONGEST_WRITE), may_be_paused=False)
        assert self._tenant is process, "writes while another one takes it"
        self.counts["writes"] += 1

    def _give_back(self, tenancy: Tenancy) -> None:
        try:
            tenancy.release()
            self.counts["given back"] += 1
        except OSError:
            self.counts["failed requests"] += 1


def run_histories(patch: pytest.MonkeyPatch, number: int) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in range(number):
        history = History(seed)
        patch.setattr(lease, "_is_gone", history.is_gone)
        patch.setattr(lease, "_self", history.describe)
        try:
            total += history.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return total


def test_never_two_holders_write(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = run_histories(monkeypatch, NUM_HISTORIES)
    assert counts["writes"] > 5 * NUM_HISTORIES
    assert counts["given back"] > NUM_HISTORIES
    assert min(counts["lost"], counts["taken from one that lives"], counts["failed requests"]) > NUM_HISTORIES / 20


advance, tenancy_advance, is_free = Generations.advance, Tenancy._advance, Tenancy._is_free


def _renew_blindly(self: Generations, number: int, holder: Holder) -> bool:
    return advance(self, number, holder) or True


def _look_at_nothing_after_creating(self: Generations, number: int, holder: Holder) -> bool:
    name = lease._name(number + 1)
    if not self._files.create_exclusive(name, json.dumps(holder).encode()):
        found = self.read(number + 1)
        return found is not None and found["token"] == holder["token"]
    self._files.delete_files(lease._name(old) for old in self._numbers() if old <= number)
    return True


def _count_from_the_answer(self: Tenancy, *, released: bool) -> bool:
    won = tenancy_advance(self, released=released)
    self._valid_until = self._now() + 60 if won else self._valid_until
    return won


def _forget_the_first_attempt(self: Tenancy, *, released: bool) -> bool:
    if self._attempted is not None:
        self._attempted = self._now()
    return tenancy_advance(self, released=released)


def _give_back_without_a_trace(self: Tenancy) -> None:
    self._generations.delete()


def _compare_clocks(self: Tenancy, number: int, holder: Holder) -> bool:
    return is_free(self, number, holder) or self._now() - holder["renewed"] > 90


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Generations, "advance", _renew_blindly),
        (Generations, "advance", _look_at_nothing_after_creating),
        (Tenancy, "_advance", _count_from_the_answer),
        (Tenancy, "_advance", _forget_the_first_attempt),
        (Tenancy, "release", _give_back_without_a_trace),
        (Tenancy, "_is_free", _compare_clocks),
    ],
)
def test_the_histories_find_a_lease_that_is_none(
    owner: type, name: str, bug: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises(AssertionError, match="another one"):
        run_histories(monkeypatch, NUM_HISTORIES)
