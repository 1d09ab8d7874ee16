"""Count how the package is built: its size, how many places know a variant, how far a call travels.

`make shape` prints one row per measure, with the limit that the trunk is to reach. The package that is measured is
the one in `--root`, so that two commits can be compared by one copy of this script.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOOK = Path(__file__).parent / "shape_hook"
PACKAGE = Path("platform") / "objectaware"

# One variant of each kind: its own files, and how other modules name it. The first that fits is taken, since files
# move while the trunk is rebuilt.
VARIANTS = {
    "a method (byol)": (r"methods/byol\.py", r"\bBYOL\b|\bbyol\b"),
    "a localizer (smoothgrad)": (r"localize/smoothgrad\.py", r"\b[Ss]mooth_?[Gg]rad\w*"),
    "a policy (cutmix)": (r"training/policies/cutmix\.py", r"\b[Cc]ut[Mm]ix\b"),
    "a data set (cub)": (r"data/(sets/)?cub\.py", r"\b(CUB|Cub|cub)\w*"),
    "a stage kind (few shot)": (r"stages/few_shot\.py", r"\b(few_shot|FewShot)\w*|\bfew-shot\b"),
}
_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_TRAINING = """\
data: {root: pictures}
backbone: resnet10_narrow
image_size: 32
num_epochs: 1
batch_size: 4
method: {queue_size: 8}
execution: {num_loader_threads: 1, num_compute_threads: 1}
"""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Measure:
    """A row of the table.

    Attributes:
        name: What is counted.
        value: How many.
        limit: The most that there may be once the trunk is rebuilt.
    """

    name: str
    value: float
    limit: float


def main(arguments: Sequence[str]) -> None:
    """Print the table, or with `--json` its rows as data."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="repository to measure")
    options.add_argument("--static", action="store_true", help="only what is read from the files, within seconds")
    options.add_argument("--json", action="store_true")
    given = options.parse_args(arguments)
    root = given.root.resolve()
    sources = _sources(root)
    code = {path: _code_lines(source) for path, source in sources.items()}
    measures = [*_sizes(sources, code), *_places(code)]
    if not given.static:
        measures += [*_travels(root), _help(root)]
    if given.json:
        print(json.dumps({measure.name: measure.value for measure in measures}, indent=2))
        return
    width = max(len(measure.name) for measure in measures)
    print(f"{'':{width}}  {'now':>8}  {'at most':>8}")
    for measure in measures:
        print(f"{measure.name:{width}}  {measure.value:>8g}  {measure.limit:>8g}")


def _sources(root: Path) -> dict[Path, str]:
    """Return the package's modules by their path below the package."""
    package = root / PACKAGE
    return {path.relative_to(package): path.read_text() for path in sorted(package.rglob("*.py"))}


def _sizes(sources: Mapping[Path, str], code: Mapping[Path, Sequence[str]]) -> Iterator[Measure]:
    yield Measure("lines of code", sum(map(len, code.values())), 17_400)
    yield Measure("files", len(sources), 180)
    longest = max(
        node.end_lineno - node.lineno + 1
        for source in sources.values()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, _Function) and node.end_lineno is not None
    )
    yield Measure("lines of the longest function", longest, 80)


def _code_lines(source: str) -> list[str]:
    """Return the lines that hold code: no docstrings, comments or blank lines."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        # A string that is a statement of its own is a docstring: of a module, class or function, or of a constant.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            assert node.end_lineno is not None
            documented.update(range(node.lineno, node.end_lineno + 1))
    numbers: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NOT_CODE:
            numbers.update(range(token.start[0], token.end[0] + 1))
    lines = source.splitlines()
    return [lines[number - 1] for number in sorted(numbers - documented) if lines[number - 1].strip()]


def _places(code: Mapping[Path, Sequence[str]]) -> Iterator[Measure]:
    """Count the modules that know a variant, its own file included."""
    for name, (own, pattern) in VARIANTS.items():
        knowing = [
            path
            for path, lines in code.items()
            if re.fullmatch(own, path.as_posix()) or re.search(pattern, "\n".join(lines))
        ]
        yield Measure(f"files that know {name}", len(knowing), 1)


def _travels(root: Path) -> Iterator[Measure]:
    """Run `pretrain` and `localize` on a few pictures, and count what calls pass through.

    Layers are the package's functions between the command and the training loop: on the driver's stack where Ray
    Train is called, and on the worker's where the loop begins.
    """
    import numpy as np
    from PIL import Image

    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oa-shape") as name:
        folder = Path(name)
        (folder / "pictures").mkdir()
        random = np.random.default_rng(0)
        for number in range(8):
            picture = random.integers(0, 255, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(picture).save(folder / "pictures" / f"{number}.png")
        (folder / "training.yaml").write_text(_TRAINING)
        trained = json.loads(_objectaware(root, folder, "pretrain", "training.yaml", "--json", "trained.json"))
        stacks = [json.loads(path.read_text()) for path in folder.glob("stack-*.json")]
        driver = max((stack["functions"] for stack in stacks if stack["at"] == "driver"), key=len)
        worker = max((stack["functions"] for stack in stacks if stack["at"] == "worker"), key=len)
        yield Measure("layers between command and training loop", len(driver) + len(worker), 7)
        (folder / "localization.yaml").write_text("{image_size: 32, localizer: {num_iterations: 1}}")
        arguments = ["pictures", "--checkpoint", trained["checkpoint"], "--recipe", "localization.yaml"]
        _objectaware(root, folder, "localize", *arguments, "--out", "masks", "--json", "found.json")
        (travel,) = folder.glob("travel-*.json")
        modules = json.loads(travel.read_text())
        yield Measure("modules that localize's configuration passes", len(set(modules)), 12)
        returns = sum(module in modules[:index] for index, module in enumerate(modules))
        yield Measure("times that it returns to one of them", returns, 8)


def _objectaware(root: Path, folder: Path, *arguments: str) -> str:
    """Run a command under the hook, and return what it wrote to the file that follows `--json`."""
    variables = {"OBJECTAWARE_SHAPE": str(folder), "RAY_TMPDIR": str(folder / "r")}
    command = [sys.executable, "-m", "objectaware.cli", *arguments]
    path = os.pathsep.join([str(HOOK), str(root / "platform")])
    done = subprocess.run(
        command, cwd=folder, env=_environment(path, variables), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    return (folder / arguments[arguments.index("--json") + 1]).read_text()


def _environment(path: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment, without the services that its user may have named."""
    services = ("RAY_ADDRESS", "MLFLOW_TRACKING_URI", "OBJECTAWARE_STORAGE")
    ours = {name: value for name, value in os.environ.items() if name not in services}
    return {**ours, "PYTHONPATH": path, **variables}


def _help(root: Path) -> Measure:
    """Time `--help` with all fields: the best of three, the first of which may have to compile."""
    command = [sys.executable, "-m", "objectaware.cli", "pretrain", "--help"]
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run(command, env=_environment(str(root / "platform"), {}), capture_output=True, check=True)
        seconds.append(time.perf_counter() - begin)
    return Measure("seconds of pretrain --help", round(min(seconds), 2), 1)


if __name__ == "__main__":
    main(sys.argv[1:])
