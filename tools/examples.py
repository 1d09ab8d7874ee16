"""One small example of every kind of stage, study and export, run through the command line of one source tree.

`compare_commits.py` runs this file for two commits and compares what it records. Examples move with the code: where a
recipe's syntax, the command line or a file's name changes, it changes here in the same commit. The names of examples
and the form of the records must not change, since the records of two commits are matched by them.

All examples run in one process, on one Ray and in one storage, so that a stage is computed once and reused by later
examples. Only those marked `on_ray` hand their work to Ray, which takes about ten seconds for each training; for the
others the tests' `work_in_process` does the same work inside the command, in a fraction of a second.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import yaml

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Example:
    """One command.

    Attributes:
        name: By which the records of two commits are matched.
        words: The command line after `objectaware`. `@NAME.KEY` stands for a value of what the earlier example NAME
            wrote with `--json`, and `@tree` for the source tree.
        recipe: Written to `NAME.yaml` before the command runs; `@NAME.KEY` stands for a value here, too.
        files: Files and folders that the command writes outside of the storage, to be compared.
        writes_json: Whether the command takes `--json`.
        on_ray: Whether Ray does the work.
    """

    name: str
    words: tuple[str, ...]
    recipe: Fields | None = None
    files: tuple[str, ...] = ()
    writes_json: bool = True
    on_ray: bool = False


# Data sets, networks and settings that examples share.


def scenes(split: str, variant: str = "original") -> Fields:
    """Name a part of the scenes with one object."""
    return {"root": "scenes", "layout": "backgrounds-challenge", "variant": variant, "split": split}


def multi(split: str, layout: str = "coco") -> Fields:
    """Name a part of the scenes with several objects, or of the objects cut out of them (`coco-crop`)."""
    return {"root": "multi", "layout": layout, "split": split}


SIZE = 32
ONE_THREAD = {"num_loader_threads": 1, "num_compute_threads": 1}
LOCALIZE_ON_ONE = {"num_crf_actors": 1, "num_compute_threads": 1}
NETWORK: Fields = {
    "data": scenes("train"),
    "backbone": "resnet10_narrow",
    "image_size": SIZE,
    "num_epochs": 1,
    "batch_size": 16,
    "execution": {**ONE_THREAD, "evaluation_interval": 1},
}
MOCO: Fields = {**NETWORK, "method": {"name": "moco", "queue_size": 32}}
BYOL: Fields = {**NETWORK, "method": "byol"}
EVALUATED: Fields = {"checkpoint": "@pretrain-moco.checkpoint", "image_size": SIZE, "center_crop": False}
LABELLED: Fields = {
    **EVALUATED,
    "train": scenes("train"),
    "tests": {"original": scenes("val"), "mixed_rand": scenes("val", "mixed_rand")},
}
LINEAR: Fields = {**LABELLED, "num_penalties": 3}
PAIR: Fields = {**EVALUATED, "data": multi("train", "coco-crop"), "class_names": ["disk", "triangle"]}
DETECTION: Fields = {
    "checkpoint": "@pretrain-moco.checkpoint",
    "data": multi("train"),
    "test": multi("val"),
    "num_iterations": 2,
    "decay_iterations": [1],
    "num_warmup_iterations": 1,
    "batch_size": 2,
    "short_sides": [48],
    "test_short_side": 48,
    "max_side": 96,
    "num_regions": 8,
    "num_train_proposals": 50,
    "num_test_proposals": 20,
    "num_precise_batches": 1,
    "log_interval": 1,
    "execution": ONE_THREAD,
}
LAYOUTS = ("cub", "flowers102", "voc", "voc-masks", "wsolevaluation", "wsolevaluation-masks")
TABLES = ("loc-saliency", "multi-bias-epoch", "multi-bias", "bg-soft-hard")
FIGURES = ("method-iconcam", "method-bg", "loc-neg", "hard-loss", "hard-hist", "hard-box", "multi-bias")
NETWORKS: Sequence[Fields] = [
    {
        "backbone": name,
        "num_features": num_features,
        "training": {method: {"step": {"gpu_seconds": 0.01}, "start_seconds": 5} for method in ("moco", "byol")},
        "forward": {"gpu_seconds": 0.002},
        "iteration": {"1": {"gpu_seconds": 0.003}, "2": {"gpu_seconds": 0.004}},
    }
    for name, num_features in (("resnet18", 512), ("resnet50", 2048))
]


def examples() -> list[Example]:
    """List all examples in the order in which they run: later ones use what earlier ones made."""
    groups = (_data(), _trainings(), _localizations(), _evaluations(), _studies(), _layouts(), _paper(), _plans())
    return [example for group in groups for example in group]


def pretrain(name: str, recipe: Fields, *, on_ray: bool = False) -> Example:
    """Make the example of a pretraining."""
    name = f"pretrain-{name}"
    return Example(name, ("pretrain", f"{name}.yaml"), recipe, on_ray=on_ray)


def evaluate(kind: str, recipe: Fields, *words: str, name: str | None = None, on_ray: bool = False) -> Example:
    """Make the example of an evaluation."""
    name = name or kind
    return Example(name, ("evaluate", kind, f"{name}.yaml", *words), recipe, on_ray=on_ray)


def export(name: str, *words: str, out: str) -> Example:
    """Make the example of an export."""
    return Example(f"export-{name}", ("export", *words, "--out", out), files=(out,), writes_json=False)


def _data() -> Iterator[Example]:
    small = ("--num-train", "48", "--num-val", "18", "--image-size", "48")
    build = ("data", "build", "scenes", "--out")
    yield Example("scenes", (*build, "scenes", *small), files=("scenes",), writes_json=False)
    several = ("multi", "--variant", "multi-object")
    yield Example("scenes-multi", (*build, *several, *small), files=("multi",), writes_json=False)
    more = ("more", "--num-train", "117", "--num-val", "9", "--image-size", "32", "--seed", "1")
    yield Example("scenes-more", (*build, *more), files=("more",), writes_json=False)
    place = ("--layout", "backgrounds-challenge", "--variant", "original", "--split", "train")
    subset = ("data", "subset", "scenes", "--fraction", "0.5", "--out", "half.txt", *place)
    yield Example("data-subset", subset, files=("half.txt",), writes_json=False)
    pack = ("data", "pack", "scenes", "--out", "packed", "--num-threads", "1", *place)
    yield Example("data-pack", pack, files=("packed",))


def _trainings() -> Iterator[Example]:
    yield pretrain("moco", {**MOCO, "num_epochs": 2}, on_ray=True)
    two_workers = {**ONE_THREAD, "num_workers": 2, "decode_on": "cluster"}
    yield pretrain("two-workers", {**MOCO, "execution": two_workers}, on_ray=True)
    slowly = {"num_epochs": 2, "num_warmup_epochs": 1, "learning_rate_schedule": "cosine_step"}
    cosine = {"name": "byol", "momentum_schedule": "cosine"}
    yield pretrain("byol-lars", {**BYOL, **slowly, "optimizer": "lars", "method": cosine})
    yield pretrain("supervised", {**NETWORK, "method": "supervised"})
    shuffled = {"name": "moco", "queue_size": 32, "num_batch_norm_splits": 2}
    yield pretrain("moco-shuffled", {**MOCO, "method": shuffled, "num_accumulation_steps": 2})
    yield pretrain("moco-subset", {**MOCO, "data": {**scenes("train"), "subset": "half.txt"}})
    yield pretrain("moco-packed", {**MOCO, "data": {"root": "packed", "layout": "shards"}})

    for root, data in (("scenes", scenes("train")), ("multi", multi("train"))):
        words = ("localize", root, "--checkpoint", "@pretrain-moco.checkpoint", "--preset", "mixup", "--recipe")
        recipe = {"data": data, "image_size": 48, "crf": True, "execution": LOCALIZE_ON_ONE}
        yield Example(f"masks-{root}", (*words, f"masks-{root}.yaml"), recipe)
    found, truth = {"masks": "@masks-scenes.masks"}, {"masks": "ground_truth"}
    mixup = {"name": "background_mixup", **found}
    yield pretrain("background-mixup", {**MOCO, "policy": {**mixup, "mix_probability": 0.8}})
    yield pretrain("background-mixup-byol", {**BYOL, "policy": {**mixup, "mask_field": "mask"}})
    yield pretrain("background-mixup-official", {**MOCO, "policy": {**mixup, "compat": "official"}})
    hardmix = {"name": "background_hardmix", "mix_probability": 0.8}
    yield pretrain("background-hardmix", {**BYOL, "policy": {**hardmix, **found}})
    yield pretrain("background-hardmix-official", {**MOCO, "policy": {**hardmix, **found, "compat": "official"}})
    yield pretrain("background-hardmix-truth", {**MOCO, "policy": {**hardmix, **truth}})
    crop = {"name": "object_crop", "masks": "@masks-multi.masks"}
    yield pretrain("object-crop", {**MOCO, "data": multi("train"), "policy": crop})
    yield pretrain("object-crop-truth", {**BYOL, "data": multi("train"), "policy": {**crop, **truth}})
    for policy in ("mixup", "cutmix"):
        yield pretrain(policy, {**MOCO, "policy": policy})
        yield pretrain(f"{policy}-byol", {**BYOL, "policy": policy})
        yield pretrain(f"{policy}-official", {**MOCO, "policy": {"name": policy, "compat": "official"}})


def _localizations() -> Iterator[Example]:
    recipe = {
        "image_size": 48,
        "group_size": 8,
        "localizer": {"num_iterations": 2},
        "execution": {**LOCALIZE_ON_ONE, "record_iterations": True},
    }
    words = ("localize", "scenes/original/val", "--checkpoint", "@pretrain-moco.checkpoint", "--out", "found")
    yield Example("localize", (*words, "--recipe", "localize.yaml"), recipe, on_ray=True)
    numbered = ("@masks-multi.masks", "--numbers", "multi/annotations/instances_train2017.json", "--format")
    yield export("boxes-coco", "boxes", "found", out="boxes.json")
    yield export("boxes-results", "boxes", *numbered, "coco-results", out="results.json")
    yield export("boxes-official", "boxes", *numbered, "official", out="boxes.txt")
    yield export("masks-png", "masks", "found", out="pngs")
    yield export("masks-results", "masks", *numbered, "coco-results", out="masks.json")
    scored = {"data": scenes("val"), "masks": {"found": "found", "png": "pngs"}, "image_size": 48}
    yield evaluate("localization", scored, on_ray=True)
    cropped = {"train": multi("train", "coco-crop"), "tests": {"val": multi("val", "coco-crop")}}
    table = {
        "data": multi("val"),
        "checkpoint": "@pretrain-moco.checkpoint",
        "shared": {"image_size": 48, "group_size": 8, "execution": LOCALIZE_ON_ONE},
        "localizers": {
            "contracam": {"localizer": {"num_iterations": 2}},
            "no signal removal": {
                "localizer": {"num_iterations": 1, "remove_negative_signals": False, "temperature": 0.4}
            },
            "mask color": {"localizer": {"num_iterations": 2, "expansion": 1, "mask_color": [10, 20, 30]}},
            "negatives": {"localizer": {"num_iterations": 1, "negatives": ["000000000001.jpg"]}},
            "classifier_cam": {"localizer": "classifier_cam"},
            "integrated_gradients": {"localizer": {"name": "integrated_gradients", "num_gradients": 2}},
            "smoothgrad": {"localizer": {"name": "smoothgrad", "num_gradients": 2}},
            "center_box": {"localizer": {"name": "center_box", "side_fraction": 0.6}},
            "full_image": {"localizer": "full_image", "crf": False},
        },
        "linear": {**cropped, "image_size": SIZE, "center_crop": False, "num_penalties": 3},
    }
    yield evaluate("localizers", table)


def _evaluations() -> Iterator[Example]:
    yield evaluate("linear", LINEAR, on_ray=True)
    # With fewer penalties the official optimiser diverges on features of a network that has learnt so little.
    official = {"compat": "official", "holdout_size": 10, "num_penalties": 8}
    yield evaluate("linear", {**LINEAR, **official}, name="linear-official")
    # 117 pictures are the fewest whose features do not fit into the least memory that a recipe may allow.
    streamed = {"train": {**scenes("train"), "root": "more"}, "execution": {"max_memory_mib": 1}, "refit": False}
    yield evaluate("linear", {**LINEAR, **streamed}, name="linear-streamed")
    yield evaluate("knn", LABELLED)
    yield evaluate("few-shot", {**PAIR, "seeds": [0, 1]})
    each = ("--checkpoints", "@pretrain-moco.checkpoint", "@pretrain-byol-lars.checkpoint")
    yield evaluate("few-shot", {**PAIR, "seeds": [0, 1], "num_shots": 2}, *each, name="few-shot-curve")
    yield evaluate("class-distance", {**PAIR, "perplexity": 2.0})
    severities = {"fog-1": scenes("val"), "fog-2": scenes("val", "mixed_rand"), "only_fg": scenes("val", "only_fg")}
    yield evaluate("shift", {**LINEAR, "tests": severities}, *each)
    small = ("--checkpoint", "@pretrain-moco.checkpoint", "--image-size", str(SIZE), "--no-center-crop")
    yield Example("background", ("evaluate", "background", "scenes", "--holdout-fraction", "0.2", *small))
    runs = ("--runs", "moco=@pretrain-moco.folder", "byol=@pretrain-byol-lars.folder")
    yield Example("losses", ("evaluate", "losses", *runs))
    yield evaluate("detection", DETECTION, on_ray=True)
    for kind, suffix in (("backbone", "safetensors"), ("detectron2", "pkl")):
        yield export(kind, kind, "@pretrain-moco.checkpoint", out=f"{kind}.{suffix}")
    yield export("detector", "detector", "@detection.checkpoint", out="detector.safetensors")


def _studies() -> Iterator[Example]:
    training = {key: value for key, value in MOCO.items() if key not in ("data", "image_size")}
    demo = {"num_train": 48, "num_val": 18, "image_size": 48, "pretrain": training}
    yield Example("demo", ("demo", "--seeds", "0", "1", "--recipe", "demo.yaml"), demo)
    yield Example("demo-multi", ("demo", "--variant", "multi-object", "--recipe", "demo-multi.yaml"), demo)
    grid = {
        "name": "grid",
        "stages": {
            "network": {"stage": "pretrain", "fields": MOCO},
            "linear": {"stage": "linear", "fields": {**LINEAR, "checkpoint": {"from": "network"}}},
        },
        "parameters": {"linear.holdout_size": [10, 20]},
        "metric": "linear.accuracies.original",
        "columns": {"mixed_rand": "linear.accuracies.mixed_rand"},
        "execution": {"max_concurrent": 1},
    }
    yield Example("sweep", ("sweep", "sweep.yaml"), grid, on_ray=True)
    drawn = {
        "name": "drawn",
        "stages": {"knn": {"stage": "knn", "fields": LABELLED}},
        "parameters": {"knn.temperature": {"loguniform": [0.01, 1.0]}, "knn.num_neighbours": {"choice": [1, 5]}},
        "search": "optuna",
        "num_samples": 2,
        "metric": "knn.accuracies.original",
        "execution": {"max_concurrent": 1},
    }
    yield Example("sweep-optuna", ("sweep", "sweep-optuna.yaml"), drawn, on_ray=True)


def _layouts() -> Iterator[Example]:
    """Published data sets, written by the tests' support: opened, localized without a network, and scored."""
    for kind in LAYOUTS:
        localizer = {"name": "center_box", "side_fraction": 0.7}
        box = {"image_size": SIZE, "crf": False, "localizer": localizer, "execution": LOCALIZE_ON_ONE}
        words = ("localize", "published", "--localizer", "center_box", "--recipe", f"layout-{kind}.yaml")
        yield Example(f"layout-{kind}", words, {"data": f"@layout.{kind}", **box})
        scored = {"data": f"@layout.{kind}", "masks": {"box": f"@layout-{kind}.masks"}, "image_size": SIZE}
        yield evaluate("localization", scored, name=f"layout-{kind}-scores")


def _paper() -> Iterator[Example]:
    recipes = ("--recipes", "@tree/jobs/recipes")
    yield Example("paper-list", ("reproduce", "list", *recipes))
    yield Example("paper-show", ("reproduce", "show", "bg-main"))
    yield Example("paper-plan", ("reproduce", "multi-main", "--plan", "--rates", "rates.json", "--gpus", "8", *recipes))
    for label in TABLES:
        yield Example(f"table-{label}", ("reproduce", label, "--scale", "smoke", *recipes))
    for label in FIGURES:
        yield Example(f"figure-{label}", ("reproduce", f"figure:{label}", "--scale", "smoke", *recipes))


def _plans() -> Iterator[Example]:
    show = ("plan", "show", "--rates", "rates.json", "--images", "118287", "--gpus", "8", "--cpus", "20")
    yield Example("plan-show", show)
    yield Example("runs-compare", ("runs", "compare", "@pretrain-moco.identity", "@pretrain-mixup.identity"))


class Runner:
    """Runs examples in the current folder and links what they made into the records.

    Args:
        tree: The source tree.
        records: New folder of the records: for each example a folder with `status.json`, `output.json` (what the
            command wrote with `--json`), `files/`, `stages/TITLE/` (what stages stored) and `runs/NAME/` (what MLflow
            has of a run).
    """

    def __init__(self, tree: Path, records: Path) -> None:
        self._tree = tree
        self._records = records
        self._outputs: dict[str, Any] = {"tree": str(tree)}
        self._seen: set[str] = set()

    def prepare(self) -> None:
        """Write what examples take that no command makes."""
        from planned import rates  # of tests/support
        from published_trees import write_part

        Path("rates.json").write_text(rates(networks=NETWORKS).model_dump_json())
        folder = Path("published").absolute()
        # Without what is not set, since a recipe must not name fields that a layout has not.
        self._outputs["layout"] = {
            kind: write_part(folder, kind).model_dump(mode="json", exclude_none=True) for kind in LAYOUTS
        }

    def run(self, example: Example) -> int:
        """Run one example and record what it made; return its exit status."""
        from objectaware import cli

        folder = self._records / example.name
        folder.mkdir(parents=True)
        output = folder / "output.json"
        words = [self._resolved(word) for word in example.words]
        if example.recipe is not None:
            # In the order of the fields, since the stages of a sweep follow each other.
            recipe = yaml.safe_dump(self._resolved(example.recipe), sort_keys=False)
            Path(f"{example.name}.yaml").write_text(recipe)
        try:
            with _work_in_process(not example.on_ray):
                status = cli.run([*words, "--json", str(output)] if example.writes_json else words)
        except SystemExit as error:
            print(error.code)
            status = error.code if isinstance(error.code, int) else 1
        if output.exists():
            self._outputs[example.name] = json.loads(output.read_text())
        for name in example.files:
            _link(Path(name), folder / "files" / name)
        self._record_stages(folder / "stages")
        self._record_runs(folder / "runs")
        (folder / "status.json").write_text(json.dumps({"status": status}))
        return status

    def _resolved(self, value: Any) -> Any:  # noqa: ANN401 - a recipe is any value
        """Put values in the place of `@NAME.KEY` and `@tree`."""
        if isinstance(value, Mapping):
            return {key: self._resolved(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._resolved(item) for item in value]
        if not isinstance(value, str) or "@" not in value:
            return value
        before, _, reference = value.partition("@")
        if reference.startswith("tree"):
            return before + str(self._tree) + reference.removeprefix("tree")
        name, _, key = reference.partition(".")
        found = self._outputs[name][key]
        return before + found if before else found

    def _record_stages(self, target: Path) -> None:
        """Link what stages have stored that are new since the last example, by the names of their MLflow runs."""
        results = [*Path().glob("runs/*/*/result.json"), *Path().glob("*/result.json")]  # the latter by --out
        new = [result for result in results if self._is_new(str(result))]
        names: Counter[str] = Counter()
        for result in sorted(new, key=lambda path: path.stat().st_mtime_ns):
            stored = json.loads(result.read_text())
            run_id = stored.get("run_id")
            title = _client().get_run(run_id).info.run_name if run_id else result.parent.parent.name
            folder = _numbered(target, title, names)
            folder.mkdir(parents=True)
            (folder / "values.json").write_text(json.dumps(stored.get("values", stored)))
            for path in _files(result.parent):
                name = path.relative_to(result.parent)
                if not BOOKKEEPING & set(name.parts):
                    _link(path, folder / name)
        # Before version 3, features were no stages; since then they are found with the others.
        folders = [folder for folder in Path("runs/features").glob("*") if not (folder / "stage.json").exists()]
        features = [folder for folder in folders if self._is_new(str(folder))]
        for folder in sorted(features, key=lambda path: path.stat().st_mtime_ns):
            _link(folder, _numbered(target, "features", names))

    def _record_runs(self, target: Path) -> None:
        """Write metrics and link artifacts of the MLflow runs that are new since the last example, by their names."""
        if not Path("runs/mlflow.db").exists():
            return
        client = _client()
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        runs = client.search_runs(experiments, order_by=["attributes.start_time ASC"], max_results=10_000)
        titles = {run.info.run_id: run.info.run_name for run in runs}
        names: Counter[str] = Counter()
        for run in runs:
            run_id = run.info.run_id
            if not self._is_new(run_id):
                continue
            folder = _numbered(target, run.info.run_name, names)
            folder.mkdir(parents=True)
            points = {
                name: [[point.step, point.value] for point in client.get_metric_history(run_id, name)]
                for name in run.data.metrics
            }
            parent = titles.get(run.data.tags.get("mlflow.parentRunId", ""))
            (folder / "run.json").write_text(
                json.dumps({"parent": parent, "status": run.info.status, "metrics": points})
            )
            artifacts = Path(unquote(urlparse(run.info.artifact_uri).path))
            for path in _files(artifacts):
                if path.name not in BOOKKEEPING:
                    _link(path, folder / path.relative_to(artifacts))

    def _is_new(self, key: str) -> bool:
        is_new = key not in self._seen
        self._seen.add(key)
        return is_new


BOOKKEEPING = {
    # What a stage computed is recorded as `values.json`. Configurations are not, since recipes' syntax may change.
    *("result.json", "stage.json", "store.json", "config.json", "sweep.json"),
    # Whose turn it is, and what Ray Train and a sweep note for themselves.
    *("lease", "checkpoint_manager_snapshot.json", ".validate_storage_marker", "trials", "begun"),
}
"""Files and folders in a stage's folder that are not compared as files."""


def _client() -> Any:  # noqa: ANN401 - mlflow has no types
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{Path('runs/mlflow.db').absolute()}")


def _numbered(folder: Path, title: str, names: Counter[str]) -> Path:
    """Choose a folder for a title; the second of a title has a number, and so on."""
    name = re.sub(r"\b[0-9a-f]{20}\b", "identity", title.replace(str(Path.cwd()), ""))
    name = re.sub(r"[^\w.,=()+ -]", "_", name)
    names[name] += 1
    return folder / (name if names[name] == 1 else f"{name} ({names[name]})")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _link(source: Path, target: Path) -> None:
    """Link a file, or all files of a folder: a copy would take time and space."""
    for path in _files(source) if source.is_dir() else [source]:
        link = target / path.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, link)


@contextmanager
def _work_in_process(is_on: bool) -> Iterator[None]:
    import pytest

    from stages_in_process import work_in_process  # of tests/support

    with pytest.MonkeyPatch.context() as patch:
        if is_on:
            work_in_process(patch)
        yield


def main() -> None:
    """Run the examples in the current folder, which is empty, and say how long each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="source tree whose platform/ and tests/support are on PYTHONPATH")
    parser.add_argument("records", type=Path, help="new folder for what the examples made")
    parser.add_argument("--only", nargs="+", help="only these examples, and those whose results they take")
    given = parser.parse_args()

    import objectaware
    from objectaware.distributed.cluster import ray_cluster

    assert Path(objectaware.__file__).is_relative_to(given.tree), f"{objectaware.__file__} is not of {given.tree}"
    runner = Runner(given.tree, given.records)
    runner.prepare()
    failed = []
    with ray_cluster():  # the command line uses a Ray that it finds initialised
        for example in chosen(given.only):
            started = time.monotonic()
            log = Path(f"{example.name}.log")
            with log.open("w") as stream, redirect_stdout(stream), redirect_stderr(stream):
                try:
                    status = runner.run(example)
                except Exception:
                    traceback.print_exc()
                    status = 1
            print(f"  {example.name}: {time.monotonic() - started:.1f} s", flush=True)
            if status == INTERRUPTED:
                sys.exit(status)
            if status:
                failed.append(example.name)
                print(f"{example.name} failed with status {status}:\n{log.read_text()[-3000:]}", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


INTERRUPTED = 130
"""Exit status of a command that Ctrl-C or SIGTERM has ended."""


def chosen(names: Sequence[str] | None) -> list[Example]:
    """List the examples of these names and those whose results they take; all where no names are given."""
    known = {example.name: example for example in examples()}
    if names is None:
        return list(known.values())
    with_output = [example for example in known.values() if "--out" in example.words]
    made_by = {example.words[example.words.index("--out") + 1]: example.name for example in with_output}
    wanted: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        wanted.add(name)
        text = json.dumps([known[name].words, known[name].recipe])
        taken = {other for other in known if f"@{other}." in text}
        taken |= {maker for file, maker in made_by.items() if re.search(rf'"{file}["/]', text)}
        waiting += taken - wanted
    return [example for example in known.values() if example.name in wanted]


if __name__ == "__main__":
    main()
