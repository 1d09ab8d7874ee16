"""What the benchmarks share: timing in turn, statistics, and results with the machine that they came from."""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path

RESULTS = Path(__file__).parent / "results"

_PACKAGES = ("torch", "ray", "numpy", "opencv-python-headless", "pydensecrf2", "mlflow")


@dataclass(frozen=True)
class Result:
    """One comparison: a row of a CSV.

    Attributes:
        case: What was compared, with its sizes.
        unit: Of both values.
        ours: Median of the platform's values.
        reference: Median of what it is compared with.
        ratio: Median over the pairs of ours / reference.
        spread: Interquartile range of the pairs' ratios.
        num_pairs: Pairs measured.
        limit: What the ratio is asked to reach, such as `<= 1.15` or `>= 0.75 and <= 1.25`; empty where nothing is.
        reached: Whether it does; empty where nothing is asked.
    """

    case: str
    unit: str
    ours: float
    reference: float
    ratio: float
    spread: float
    num_pairs: int
    limit: str
    reached: str


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def processor_seconds(work: Callable[[], object]) -> float:
    """Seconds that this process computed for during one call.

    Of one thread's work it is what the wall clock shows on a machine that does nothing else.
    """
    started = time.process_time()
    work()
    return time.process_time() - started


def in_turn(
    ours: Callable[[], float], reference: Callable[[], float], num_pairs: int
) -> tuple[list[float], list[float]]:
    """Measures two things in turn, the first of each pair alternating, so that a slow spell meets both.

    Args:
        ours: Measures the platform once.
        reference: Measures what it is compared with once.
        num_pairs: How often.

    Returns:
        The values of each, in order.
    """
    values: tuple[list[float], list[float]] = ([], [])
    for pair in range(num_pairs):
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            values[side].append((ours, reference)[side]())
    return values


def computing_in_turn(
    ours: Callable[[], object], reference: Callable[[], object], num_pairs: int
) -> tuple[list[float], list[float]]:
    """`in_turn` on the seconds that this process computes for in each of two pieces of one thread's work."""
    return in_turn(partial(processor_seconds, ours), partial(processor_seconds, reference), num_pairs)


def compare(
    case: str,
    ours: Sequence[float],
    reference: Sequence[float],
    *,
    unit: str,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Result:
    """Sums up pairs of values.

    Args:
        case: What was compared.
        ours: The platform's values.
        reference: Those of what it is compared with, pair by pair.
        unit: Of both.
        at_most: What the median ratio may be at most.
        at_least: What it must be at least.
    """
    ratios = [one / other for one, other in zip(ours, reference, strict=True)]
    ratio = statistics.median(ratios)
    quartiles = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else [ratio] * 3
    bounds = (f"{sign} {bound:g}" for sign, bound in ((">=", at_least), ("<=", at_most)) if bound is not None)
    limit = " and ".join(bounds)
    # A difference of two times may come out negative where both are too small to tell.
    holds = ratio > 0 and (at_most is None or ratio <= at_most) and (at_least is None or ratio >= at_least)
    return Result(
        case,
        unit,
        statistics.median(ours),
        statistics.median(reference),
        ratio,
        quartiles[2] - quartiles[0],
        len(ratios),
        limit,
        ("yes" if holds else "no") if limit else "",
    )


def write_results(path: Path, results: Sequence[Result]) -> None:
    """Writes a benchmark's rows, each with date, hardware and versions, and prints them."""
    write_rows(path, [asdict(result) for result in results])
    for result in results:
        print(describe(result))
    print(f"written to {path}")


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Writes rows of the same columns, at least one, each with date, hardware and versions."""
    origin = context()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*rows[0], *origin])
        for row in rows:
            cells = [f"{value:.6g}" if isinstance(value, float) else value for value in row.values()]
            writer.writerow([*cells, *origin.values()])


def context() -> dict[str, str]:
    """Where figures come from: date, hardware and versions."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {"date": date, "hardware": hardware(), "versions": versions()}


def describe(result: Result) -> str:
    """One line for people."""
    asked = f", asked {result.limit}: {result.reached}" if result.limit else ""
    return (
        f"{result.case}: {result.ours:.4g} {result.unit} beside {result.reference:.4g}, ratio {result.ratio:.3f} "
        f"(spread {result.spread:.3f}, {result.num_pairs} pairs{asked})"
    )


def hardware() -> str:
    """Processor, cores that this process may use, memory, operating system and load."""
    from objectaware.planning.model import num_cores  # it imports more than most benchmarks need
    from objectaware.process import processor_name

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    return f"{processor_name()}, {num_cores()} cores, {memory:.0f} GiB, {platform.system()}, load {load:.1f}"


def versions() -> str:
    """Python's version and those of the packages that the work is done in."""
    packages = [f"{name} {metadata.version(name)}" for name in _PACKAGES]
    return ", ".join([f"python {platform.python_version()}", *packages])


def parser(description: str, name: str, *, num_pairs: int = 5) -> argparse.ArgumentParser:
    """The arguments that all benchmarks have.

    Args:
        description: What is measured.
        name: Of the result's file, without suffix.
        num_pairs: How often each comparison is made by default.
    """
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    arguments.add_argument("--pairs", type=int, default=num_pairs, help="measurements of each comparison")
    arguments.add_argument("--out", type=Path, default=RESULTS / f"{name}.csv", help="where the result goes")
    return arguments


def exit_status(results: Sequence[Result]) -> int:
    """1 where something that is asked is not reached."""
    return int(any(result.reached == "no" for result in results))
