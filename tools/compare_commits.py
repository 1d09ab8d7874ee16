"""Run the examples of `examples.py` at two commits on this machine and compare what they make exactly.

    python tools/compare_commits.py BEFORE [AFTER]

AFTER is the working tree by default. Each commit runs its own examples with its own package, in a temporary work tree
and with this repository's virtual environment. Examples are matched by their names, what an example makes by the names
of stages, runs and files. Every difference is reported, and the exit status is 1 if there is one.

A commit older than the examples runs the oldest version of them that there is, with its own package.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import hashlib
import io
import json
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import safetensors.numpy
import torch
from numpy.typing import NDArray
from PIL import Image

EXAMPLES = "tools/examples.py"

IGNORED = (
    # What a stage or a run is called inside, and where it lies.
    *("identity", "identities", "run_id", "folder"),
    # Durations, throughput and load of the machine.
    *("*seconds", "seconds_per_*", "*images_per_second", "data_wait_share", "peak_memory_mib", "system"),
)
"""All that is not compared: patterns of keys in any file, with what lies below such a key. Besides, `plain_text` puts a
word in the place of each path, identity, run id, date, duration and size of memory in a text."""

Leaf = Any
"""A number, text, bytes, None or an array."""


@dataclass(frozen=True)
class Difference:
    """Something that is not the same.

    Attributes:
        example: Name of the example.
        file: Path in the example's folder of records.
        key: Place in the file; empty for the file itself.
        before: What was there.
        after: What is there now.
    """

    example: str
    file: str
    key: str
    before: str
    after: str

    def is_expected(self, patterns: Sequence[str]) -> bool:
        """Whether its place matches one of the patterns."""
        place = "/".join((self.example, self.file, self.key))
        return any(fnmatch.fnmatchcase(place, pattern) for pattern in patterns)

    def __str__(self) -> str:
        place = f" {self.key}" if self.key else ""
        return f"{self.example}: {self.file}{place}: {self.before} -> {self.after}"


MISSING = "(missing)"


def compare(before: Path, after: Path) -> list[Difference]:
    """Compare two folders of records: a folder for each example.

    Args:
        before: Of the one commit.
        after: Of the other.
    """
    differences = []
    for example in sorted(_names(before) | _names(after)):
        one, other = before / example, after / example
        if not (one.exists() and other.exists()):
            differences.append(Difference(example, "", "", _presence(one), _presence(other)))
            continue
        for file in sorted(_file_names(one) | _file_names(other)):
            differences += _compare_files(example, file, one / file, other / file)
    return differences


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _file_names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _presence(path: Path) -> str:
    return "(there)" if path.exists() else MISSING


def _compare_files(example: str, file: str, before: Path, after: Path) -> Iterator[Difference]:
    if not (before.exists() and after.exists()):
        yield Difference(example, file, "", _presence(before), _presence(after))
        return
    if before.read_bytes() == after.read_bytes():
        return
    one, other = read(before), read(after)
    for key in sorted({**one, **other}):
        if any(fnmatch.fnmatchcase(part, pattern) for part in key.split("/") for pattern in IGNORED):
            continue
        if key not in one or key not in other:
            yield Difference(example, file, key, _shown(one, key), _shown(other, key))
        elif (difference := _difference(one[key], other[key])) is not None:
            yield Difference(example, file, key, *difference)


def _shown(leaves: Mapping[str, Leaf], key: str) -> str:
    return _text(leaves[key]) if key in leaves else MISSING


def _text(value: Leaf) -> str:
    if isinstance(value, np.ndarray):
        return f"array {value.dtype}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:60]}… ({len(text)} characters)"


def _difference(before: Leaf, after: Leaf) -> tuple[str, str] | None:
    """Say how two values differ; None where they are equal. NaN equals NaN."""
    if isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
        return _array_difference(before, after)
    if isinstance(before, str) and isinstance(after, str):
        before, after = plain_text(before), plain_text(after)
    if type(before) is not type(after) and not _both_numbers(before, after):
        return _text(before), _text(after)
    if isinstance(before, float) and isinstance(after, float) and math.isnan(before) and math.isnan(after):
        return None
    return None if before == after else (_text(before), _text(after))


def _both_numbers(before: Leaf, after: Leaf) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in (before, after))


def _array_difference(before: NDArray[Any], after: NDArray[Any]) -> tuple[str, str] | None:
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        return _text(before), _text(after)
    differs = before != after
    if before.dtype.kind in "fc":
        differs &= ~(np.isnan(before) & np.isnan(after))
    places = np.argwhere(differs)
    if not len(places):
        return None
    first = tuple(places[0].tolist())
    return f"{before[first]!r} at {list(first)}", f"{after[first]!r} ({len(places)} of {before.size} differ)"


_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    # Begins with a fixed text, since pages have lines of a million characters.
    (re.compile(r"(?:file://)?/tmp/oa-compare-[^\s\"'<>,)\]]*"), "<path>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<hash>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<run>"),
    (re.compile(r"\b([0-9a-f]{20}|[0-9a-f]{8})\b"), "<identity>"),  # whole, and as `runs` shows them
    (re.compile(r"\b20\d\d-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?\b"), "<date>"),
    (re.compile(r"\b\d+(\.\d+)? (s|min|h|MiB)\b"), "<duration or memory>"),
)


def plain_text(text: str) -> str:
    """Put words in the place of what two runs of the same code do not share."""
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    return text


def read(path: Path) -> dict[str, Leaf]:
    """Read a file as leaves by their place in it: a table's cells, a picture's pixels, a checkpoint's tensors."""
    reader = _READERS.get(path.suffix, _read_bytes)
    return dict(_leaves(reader(path)))


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Leaf]]:  # noqa: ANN401 - content of any file
    if isinstance(value, list) and (rows := _rows_by_name(value)) is not None:
        value = rows
    if isinstance(value, Mapping) and value:
        names = Counter[str]()
        for key, item in value.items():
            # Keys of some tables are paths of checkpoints, all of which become the same word: number them in order.
            name = plain_text(str(key))
            names[name] += 1
            name = name if names[name] == 1 else f"{name} ({names[name]})"
            yield from _leaves(item, f"{place}/{name}" if place else name)
    elif isinstance(value, list | tuple) and value:
        for number, item in enumerate(value):
            yield from _leaves(item, f"{place}/{number}" if place else str(number))
    elif isinstance(value, torch.Tensor):
        # NumPy has no bfloat16; every such number is one of 32 bits, too.
        yield place, (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
    else:
        yield place, value


def _rows_by_name(value: list[Any]) -> dict[str, Any] | None:
    """Name the rows of a table by their first cells, where these are different texts, so that a new row moves none."""
    if not value or not all(isinstance(row, Mapping) and row for row in value):
        return None
    names = [next(iter(row.values())) for row in value]
    if len(set(map(str, names))) < len(names) or not all(isinstance(name, str) for name in names):
        return None
    return dict(zip(names, value, strict=True))


def _read_bytes(path: Path) -> Any:  # noqa: ANN401
    return path.read_bytes()


def _read_json(path: Path) -> Any:  # noqa: ANN401
    """Read JSON; a table of MLflow's as rows by column."""
    content = json.loads(path.read_text())
    if isinstance(content, dict) and content.keys() == {"columns", "data"}:
        return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]
    return content


def _read_csv(path: Path) -> Any:  # noqa: ANN401
    return list(csv.DictReader(io.StringIO(path.read_text())))


def _read_lines(path: Path) -> Any:  # noqa: ANN401
    return {f"line {number}": line for number, line in enumerate(path.read_text().splitlines(), start=1)}


def _read_picture(path: Path) -> Any:  # noqa: ANN401
    with Image.open(path) as picture:
        return {"mode": picture.mode, "pixels": np.asarray(picture), "palette": picture.getpalette()}


def _read_parquet(path: Path) -> Any:  # noqa: ANN401
    """Read rows, by their `image_id` where they have one."""
    rows = pyarrow.parquet.read_table(path).to_pylist()
    return {str(row.get("image_id", number)): row for number, row in enumerate(rows)}


def _read_arrays(path: Path) -> Any:  # noqa: ANN401
    loaded = np.load(path, allow_pickle=False)
    return loaded if isinstance(loaded, np.ndarray) else dict(loaded)


def _read_state(path: Path) -> Any:  # noqa: ANN401
    return torch.load(path, map_location="cpu", weights_only=True)


def _read_pickle(path: Path) -> Any:  # noqa: ANN401
    """Read a file that this project has just written, in detectron2's format."""
    return pickle.loads(path.read_bytes())


def _read_safetensors(path: Path) -> Any:  # noqa: ANN401
    return safetensors.numpy.load_file(path)


_READERS: Mapping[str, Callable[[Path], Any]] = {
    ".json": _read_json,
    ".csv": _read_csv,
    ".txt": _read_lines,
    ".sha256": _read_lines,
    ".md": _read_lines,
    ".html": _read_lines,
    ".png": _read_picture,
    ".jpg": _read_picture,
    ".jpeg": _read_picture,
    ".JPEG": _read_picture,
    ".parquet": _read_parquet,
    ".npy": _read_arrays,
    ".npz": _read_arrays,
    ".pt": _read_state,
    ".pkl": _read_pickle,
    ".safetensors": _read_safetensors,
}


ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Run the examples at both commits, print all differences, and exit with 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="commit")
    parser.add_argument("after", nargs="?", help="commit; the working tree by default")
    parser.add_argument("--only", nargs="+", default=[], help="only these examples, and those whose results they take")
    parser.add_argument("--ignore", nargs="+", default=[], help="patterns of expected differences: EXAMPLE/FILE/KEY")
    parser.add_argument("--keep", type=Path, help="folder in which a commit's records are kept and looked for")
    parser.add_argument("--limit", type=int, default=10, help="differences that are shown for each file")
    given = parser.parse_args()

    failed = []
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oa-compare-", ignore_cleanup_errors=True) as folder:
        sides = []
        for name, commit in (("before", given.before), ("after", given.after)):
            side = Path(folder, name)
            with _tree(commit, side / "tree") as tree:
                if not _run_or_find(tree, commit, side, only=given.only, keep=given.keep):
                    failed.append(name)
            sides.append(side / "records")
        differences = [each for each in compare(*sides) if not each.is_expected(given.ignore)]
        num_files = sum(len(_file_names(side)) for side in sides)
    shown = Counter[tuple[str, str]]()
    for difference in differences:
        place = difference.example, difference.file
        shown[place] += 1
        if shown[place] <= given.limit:
            print(difference)
    for (example, file), number in shown.items():
        if number > given.limit:
            print(f"{example}: {file}: {number - given.limit} more differences")
    print(f"{len(differences)} differences in {len(shown)} of {num_files // 2} files")
    if failed:
        print(f"some examples failed: {' and '.join(failed)}")
    sys.exit(1 if differences or failed else 0)


@contextmanager
def _tree(commit: str | None, place: Path) -> Iterator[Path]:
    """Check a commit out into a temporary work tree; without a commit it is this working tree."""
    if commit is None:
        yield ROOT
        return
    _git("worktree", "add", "--quiet", "--detach", str(place), commit)
    try:
        yield place
    finally:
        _git("worktree", "remove", "--force", str(place))


def _git(*words: str) -> str:
    return subprocess.check_output(["git", "-C", str(ROOT), *words], text=True).strip()


def _run_or_find(tree: Path, commit: str | None, side: Path, *, only: Sequence[str], keep: Path | None) -> bool:
    """Fill `side / "records"` and say whether all examples succeeded."""
    examples = _examples(tree)
    records, kept = side / "records", None
    if commit is not None and keep is not None:
        digest = hashlib.sha256(json.dumps([examples, sorted(only)]).encode()).hexdigest()[:8]
        kept = keep / f"{_git('rev-parse', commit)[:12]}-{digest}"
        if kept.exists():
            print(f"{side.name}: taken from {kept}", flush=True)
            shutil.copytree(kept, records)
            return True
    succeeded = _run(tree, examples, side, only)
    if kept is not None and succeeded:
        shutil.copytree(records, kept)
    return succeeded


def _examples(tree: Path) -> str:
    """Give a tree's own examples, or the oldest ones that there are."""
    own = tree / EXAMPLES
    if own.exists():
        return own.read_text()
    added = _git("log", "--diff-filter=A", "--format=%H", "--", EXAMPLES).splitlines()
    return _git("show", f"{added[-1]}:{EXAMPLES}") if added else (ROOT / EXAMPLES).read_text()


def _run(tree: Path, examples: str, side: Path, only: Sequence[str]) -> bool:
    """Run examples in a new folder, with nothing of the user's environment that changes results."""
    work = side / "work"
    work.mkdir(parents=True)
    script = side / "examples.py"
    script.write_text(examples)
    foreign = ("MLFLOW_", "RAY_", "OBJECTAWARE_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    # Sockets of Ray lie in its folder, and their paths must be short.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oa", ignore_cleanup_errors=True) as ray_folder:
        environment |= {
            "HOME": str(side),
            "PYTHONPATH": os.pathsep.join([str(tree / "platform"), str(tree / "tests" / "support")]),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "RAY_TMPDIR": ray_folder,
            "RAY_memory_monitor_refresh_ms": "0",
        }
        command = [sys.executable, str(script), str(tree), str(side / "records")]
        print(f"{side.name}: running the examples", flush=True)
        started = time.monotonic()
        done = subprocess.run([*command, *(["--only", *only] if only else [])], cwd=work, env=environment, check=False)
    print(f"{side.name}: {time.monotonic() - started:.0f} s", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
