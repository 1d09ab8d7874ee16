"""The commands behind the command line, one function each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from objectaware.errors import InputError
from objectaware.recipes import override, read_recipe, split_overrides

if TYPE_CHECKING:
    from pydantic import BaseModel

    from objectaware.distributed.cluster import Need
    from objectaware.stages.export import ExportSummary
    from objectaware.stages.runner import Context, StageResult


@dataclass(frozen=True)
class Common:
    """What every stage's command takes.

    Attributes:
        storage: Folder for checkpoints, masks and reports; OBJECTAWARE_STORAGE, or ./runs.
        experiment: MLflow experiment.
        fresh: Start over instead of resuming or reusing.
        verify: Tell inputs by their content instead of size and time.
        json: File that what is printed is written to as data.
    """

    storage: str | None = None
    experiment: str = "objectaware"
    fresh: bool = False
    verify: bool = False
    json: Path | None = None


_OPTIONS = ("--storage", "--experiment", "--json")
_FLAGS = ("--fresh", "--no-fresh", "--verify", "--no-verify", "--help", "-h")
CommonArguments = tyro.conf.OmitArgPrefixes[Common]


def _validated(model: type[BaseModel], values: Mapping[str, object]) -> Any:  # noqa: ANN401 - the model given
    """Validates a configuration; a refusal names the field, the value and what is wrong."""
    from pydantic import ValidationError

    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "recipe"
        value = "…" if isinstance(first["input"], Mapping) else first["input"]
        problem = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise InputError(
            field, value, problem[:1].lower() + problem[1:], f"See {model.__name__} in docs/recipes.md."
        ) from error


@contextmanager
def _context(common: Common, *needs: Sequence[Need]) -> Iterator[Context]:
    """Opens storage, MLflow store and Ray for the stages of one command.

    Args:
        common: Settings of every command.
        needs: Processes of each stage that runs more than one; a local Ray is large enough for each stage by itself.
    """
    from objectaware.data.storage import Storage
    from objectaware.stages.progress import Progress
    from objectaware.stages.runner import Context
    from objectaware.tracking import TrackingStore

    storage = Storage.from_uri(_storage(common.storage))
    # Before Ray starts: a fresh SQLite store is initialised by one process alone.
    tracking = TrackingStore.open(storage.local_path() or Path("runs"), common.experiment)
    tracking.send_leftovers()

    from objectaware.distributed.cluster import ray_cluster, total_cpus

    with ray_cluster(min_cpus=max(map(total_cpus, needs), default=0)):
        yield Context(storage, tracking, Progress(), fresh=common.fresh, verify=common.verify)


def _storage(storage: str | None) -> str:
    return storage or os.environ.get("OBJECTAWARE_STORAGE") or "runs"


def _finish(common: Common, context: Context, result: StageResult) -> None:
    values = dict(result.values)
    _write_json(common, {**values, "identity": result.identity, "folder": result.folder.uri, "run_id": result.run_id})
    for key, value in values.items():
        print(f"{key}: {json.dumps(value)}")
    print(f"folder: {result.folder.uri}")
    if result.run_id is not None:
        print(f"MLflow run: {context.tracking.run_url(result.run_id)}")
    print(f"MLflow UI: {context.tracking.ui_command()}")


def _write_json(common: Common, values: object) -> None:
    if common.json is not None:
        common.json.parent.mkdir(parents=True, exist_ok=True)
        common.json.write_text(json.dumps(values, indent=2) + "\n")


def demo(program: str, arguments: list[str]) -> None:
    """`objectaware demo`."""

    def command(
        common: CommonArguments = Common(),
        variant: Literal["single-object", "multi-object"] = "single-object",
        seeds: tuple[int, ...] = (0,),
        recipe: Path | None = None,
    ) -> None:
        """Runs the whole pipeline on the embedded scenes.

        Args:
            common: Settings of every command.
            variant: Scenes of one object, debiased with background mixup, or of several, with object crop.
            seeds: Seeds to repeat it for.
            recipe: YAML of DemoConfig fields, such as a smaller size.
        """
        from objectaware.config import LocalizeExecution, PretrainConfig
        from objectaware.distributed.localize import localize_needs
        from objectaware.distributed.pretrain import pretrain_needs
        from objectaware.stages.demo import DemoConfig, demo_trainings, run_demo
        from objectaware.stages.report import markdown_report, terminal_report

        config = _validated(DemoConfig, {**_recipe_values(recipe), "variant": variant})
        trainings = [_validated(PretrainConfig, fields) for fields in demo_trainings(config)]
        needs = [pretrain_needs(training.execution) for training in trainings]
        with _context(common, *needs, localize_needs(LocalizeExecution())) as context:
            results = run_demo(context, config, seeds)
            report = f"demo-{variant}.md"
            context.storage.write_bytes(report, markdown_report(results, variant=variant).encode())
            _write_json(common, results)
            print(terminal_report(results))
            print(f"report: {context.storage.uri}/{report}")
            print(f"MLflow UI: {context.tracking.ui_command()}")

    tyro.cli(command, prog=program, args=arguments)


def _recipe_values(recipe: Path | None) -> dict[str, object]:
    return {} if recipe is None else read_recipe(recipe)


def pretrain(program: str, arguments: list[str]) -> None:
    """`objectaware pretrain RECIPE [--key value …]`."""

    def command(
        recipe: Annotated[Path, tyro.conf.Positional],
        common: CommonArguments = Common(),
    ) -> None:
        """Pretrains MoCo v2 or BYOL. Every field of the recipe can be overridden: --num_epochs 100, --data.root DIR.

        Args:
            recipe: YAML of PretrainConfig fields (docs/recipes.md).
            common: Settings of every command.
        """
        from objectaware.config import PretrainConfig
        from objectaware.distributed.pretrain import pretrain_needs
        from objectaware.stages.pretrain import run_pretrain

        config = _validated(PretrainConfig, override(read_recipe(recipe), overrides))
        with _context(common, pretrain_needs(config.execution)) as context:
            _finish(common, context, run_pretrain(context, config))

    known, overrides = split_overrides(arguments, flags=_FLAGS, options=_OPTIONS)
    tyro.cli(command, prog=program, args=known)


def localize(program: str, arguments: list[str]) -> None:
    """`objectaware localize IMAGES --checkpoint C --out OUT`."""

    def command(
        images: Annotated[str, tyro.conf.Positional],
        checkpoint: str | None = None,
        common: CommonArguments = Common(),
        out: str | None = None,
        localizer: Literal[
            "contracam", "classifier_cam", "integrated_gradients", "smoothgrad", "center_box", "full_image"
        ] = "contracam",
        setting: Literal["crop", "mixup", "scenes"] = "crop",
        recipe: Path | None = None,
    ) -> None:
        """Finds the objects in a folder of images.

        Args:
            images: Folder, at any depth.
            checkpoint: Folder that pretraining wrote, or a file of MoCo, VISSL, solo-learn, lightly, mmselfsup,
                torchvision or timm; the baselines center_box and full_image need none.
            common: Settings of every command.
            out: Folder of the mask store; by default one in the storage.
            localizer: The published method, or one to compare it with; further fields are the recipe's.
            setting: Named setting: crop and mixup are the paper's.
            recipe: YAML of further LocalizeConfig fields.
        """
        from objectaware.config import LocalizeConfig, localize_setting
        from objectaware.data.storage import Storage
        from objectaware.distributed.localize import localize_needs
        from objectaware.stages.localize import run_localize

        fields = {"localizer": localizer, **localize_setting(setting, localizer), **_recipe_values(recipe)}
        given = {} if checkpoint is None else {"checkpoint": checkpoint}
        config = _validated(LocalizeConfig, {"data": {"root": images}, **fields, **given})
        target = None if out is None else Storage.from_uri(out)
        with _context(common, localize_needs(config.execution)) as context:
            _finish(common, context, run_localize(context, config, out=target))

    tyro.cli(command, prog=program, args=arguments)


def evaluate_linear(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate linear RECIPE`."""
    from objectaware.config import LinearConfig

    def stage(context: Context, config: Any) -> StageResult:  # noqa: ANN401 - a LinearConfig
        from objectaware.stages.evaluate import run_linear

        return run_linear(context, config)

    _evaluate(program, arguments, LinearConfig, stage)


def evaluate_localization(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate localization RECIPE`."""
    from objectaware.config import LocalizationConfig

    def stage(context: Context, config: Any) -> StageResult:  # noqa: ANN401 - a LocalizationConfig
        from objectaware.stages.evaluate import run_localization

        return run_localization(context, config)

    _evaluate(program, arguments, LocalizationConfig, stage)


def evaluate_localizers(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate localizers RECIPE`."""

    def command(
        recipe: Annotated[Path, tyro.conf.Positional],
        common: CommonArguments = Common(),
    ) -> None:
        """Scores all localizers on the same images in one table. Every field of the recipe can be overridden.

        Args:
            recipe: YAML of LocalizersConfig fields (docs/recipes.md).
            common: Settings of every command.
        """
        from objectaware.localizers_config import LocalizersConfig
        from objectaware.stages.localizers import localizers_table, run_localizers

        config = _validated(LocalizersConfig, override(read_recipe(recipe), overrides))
        with _context(common) as context:
            values = run_localizers(context, config)
            _write_json(common, values)
            print(localizers_table(values))
            print(f"MLflow UI: {context.tracking.ui_command()}")

    known, overrides = split_overrides(arguments, flags=_FLAGS, options=_OPTIONS)
    tyro.cli(command, prog=program, args=known)


def _evaluate(
    program: str, arguments: list[str], model: type[BaseModel], stage: Callable[[Context, Any], StageResult]
) -> None:
    def command(
        recipe: Annotated[Path, tyro.conf.Positional],
        common: CommonArguments = Common(),
    ) -> None:
        """Evaluates. Every field of the recipe can be overridden: --checkpoint DIR.

        Args:
            recipe: YAML of LinearConfig or LocalizationConfig fields (docs/recipes.md).
            common: Settings of every command.
        """
        config = _validated(model, override(read_recipe(recipe), overrides))
        with _context(common) as context:
            _finish(common, context, stage(context, config))

    known, overrides = split_overrides(arguments, flags=_FLAGS, options=_OPTIONS)
    tyro.cli(command, prog=program, args=known)


def evaluate_background(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate background ROOT --checkpoint C`."""

    def command(
        root: Annotated[str, tyro.conf.Positional],
        checkpoint: str,
        common: CommonArguments = Common(),
        image_size: int = 224,
        center_crop: bool = True,
    ) -> None:
        """Accuracy on every variant of a Backgrounds Challenge folder, and the BG-Gap.

        Args:
            root: Folder that holds original, mixed_same and the other variants.
            checkpoint: Folder that pretraining wrote, or a file of MoCo, VISSL, solo-learn, lightly, mmselfsup,
                torchvision or timm.
            common: Settings of every command.
            image_size: Side of the network's input in pixels.
            center_crop: The paper's protocol, or the squashed picture.
        """
        from objectaware.config import LinearConfig
        from objectaware.evaluate.background import VARIANTS
        from objectaware.stages.evaluate import run_linear

        def data(split: str, variant: str) -> dict[str, object]:
            return {"root": root, "layout": "backgrounds-challenge", "split": split, "variant": variant}

        values = {
            "checkpoint": checkpoint,
            "train": data("train", "original"),
            "tests": {variant: data("val", variant) for variant in VARIANTS},
            "image_size": image_size,
            "center_crop": center_crop,
        }
        config = _validated(LinearConfig, values)
        with _context(common) as context:
            _finish(common, context, run_linear(context, config, title="background challenge"))

    tyro.cli(command, prog=program, args=arguments)


def build_scenes(program: str, arguments: list[str]) -> None:
    """`objectaware data build scenes --out DIR`."""

    def command(
        out: Path,
        variant: Literal["single-object", "multi-object"] = "single-object",
        layout: Literal["backgrounds-challenge", "coco"] | None = None,
        num_train: int = 4000,
        num_val: int = 900,
        image_size: int = 96,
        correlation: float = 0.9,
        seed: int = 0,
    ) -> None:
        """Writes the embedded data set in the layout of a published one.

        Args:
            out: Folder to write to.
            variant: One object a picture, or several that co-occur.
            layout: By default backgrounds-challenge for single-object and coco for multi-object.
            num_train: Pictures to train on.
            num_val: Pictures to measure on.
            image_size: Side in pixels.
            correlation: Share of the pictures whose background is the usual one of its object.
            seed: Decides every pixel.
        """
        from objectaware.data.scenes import build_scenes as build

        build(
            out,
            variant=variant,
            layout=layout,
            num_train=num_train,
            num_val=num_val,
            image_size=image_size,
            correlation=correlation,
            seed=seed,
        )
        print(f"scenes: {out.absolute()}")

    tyro.cli(command, prog=program, args=arguments)


def export_backbone(program: str, arguments: list[str]) -> None:
    """`objectaware export backbone CHECKPOINT --out FILE`."""

    def command(checkpoint: Annotated[str, tyro.conf.Positional], out: Path) -> None:
        """Writes a checkpoint's backbone as safetensors under torchvision's names, which timm takes too.

        Args:
            checkpoint: Folder that pretraining wrote, or a file of another system's.
            out: The new file.
        """
        from objectaware.methods.checkpoint import export_backbone as export

        print(f"{export(checkpoint, out)}: {out.absolute()}")

    tyro.cli(command, prog=program, args=arguments)


def list_data(program: str, arguments: list[str]) -> None:
    """`objectaware data list [ROOT]`."""

    def command(root: Annotated[Path | None, tyro.conf.Positional] = None) -> None:
        """Lists the layouts that data sets can lie in, or what a folder holds in each of them.

        Args:
            root: Folder to look into.
        """
        from objectaware.data.layouts import LAYOUTS, find_layouts

        if root is None:
            for layout in LAYOUTS:
                print(f"{layout.name:22} {layout.content}")
                print(f"{'':22} labels: {layout.labels or 'none'}; true masks: {layout.masks or 'none'}")
            print("`objectaware data build scenes --out DIR` makes a data set; docs/data.md says more.")
            return
        for found in find_layouts(root):
            name = " ".join(part for part in (found.layout, found.split, found.variant) if part)
            print(f"{name:40} {f'no: {found.problem}' if found.problem else f'{found.num_images} images'}")

    tyro.cli(command, prog=program, args=arguments)


def doctor(program: str, arguments: list[str]) -> None:
    """`objectaware doctor`."""

    def command(
        storage: str | None = None,
        experiment: str = "objectaware",
        json: Path | None = None,
    ) -> None:
        """Checks what of the commands would work here. Exit status 1 where something that all need is broken.

        Args:
            storage: Folder of the runs; OBJECTAWARE_STORAGE, or ./runs.
            experiment: MLflow experiment.
            json: File that the findings are written to as data.
        """
        from objectaware.data.storage import Storage
        from objectaware.stages.doctor import diagnose

        findings = []
        for finding in diagnose(Storage.from_uri(_storage(storage)), experiment):
            findings.append(finding)
            print(f"{finding.state:12} {finding.name}: {finding.found}", flush=True)
            if finding.remedy:
                print(f"{'':12} {finding.remedy}", flush=True)
        _write_json(Common(json=json), [asdict(finding) for finding in findings])
        if any(finding.state == "broken" for finding in findings):
            sys.exit(1)

    tyro.cli(command, prog=program, args=arguments)


def export_boxes(program: str, arguments: list[str]) -> None:
    """`objectaware export boxes STORE --out FILE`."""

    def command(
        store: Annotated[str, tyro.conf.Positional],
        out: str,
        format: Literal["coco", "coco-results", "official"] = "coco",  # noqa: A002 - the option's name
        numbers: Path | None = None,
    ) -> None:
        """Writes the boxes of a mask store for other tools.

        Args:
            store: Folder that localization wrote.
            out: The new file.
            format: COCO annotations with a mask a box, COCO results, or the text file of the official code.
            numbers: COCO annotation file whose numbers the results and the text file name the images by.
        """
        from objectaware.stages.export import export_boxes as export

        _print_export(export(store, out, file_format=format, numbers=numbers), out)

    tyro.cli(command, prog=program, args=arguments)


def export_masks(program: str, arguments: list[str]) -> None:
    """`objectaware export masks STORE --out OUT`."""

    def command(
        store: Annotated[str, tyro.conf.Positional],
        out: str,
        format: Literal["png", "coco-results"] = "png",  # noqa: A002 - the option's name
        numbers: Path | None = None,
    ) -> None:
        """Writes the masks of a mask store for other tools.

        Args:
            store: Folder that localization wrote.
            out: The new folder of PNG files, or the new COCO result file.
            format: A PNG an image, or COCO results.
            numbers: COCO annotation file whose numbers the results name the images by.
        """
        from objectaware.stages.export import export_masks as export

        _print_export(export(store, out, file_format=format, numbers=numbers), out)

    tyro.cli(command, prog=program, args=arguments)


def _print_export(summary: ExportSummary, out: str) -> None:
    from objectaware.data.storage import Storage

    print(f"images: {summary.num_images}, of which {summary.num_failed} failed and have nothing to export")
    print(f"written: {Storage.from_uri(out).uri}")


def ui(program: str, arguments: list[str]) -> None:
    """`objectaware ui`."""

    def command(storage: str | None = None, experiment: str = "objectaware", port: int | None = None) -> None:
        """Opens the MLflow UI on the store in use, on loopback.

        Args:
            storage: Folder of the runs; OBJECTAWARE_STORAGE, or ./runs.
            experiment: MLflow experiment.
            port: Where it listens; by default 5000, or any free port.
        """
        from objectaware.data.storage import Storage
        from objectaware.tracking import TrackingStore, run_ui

        folder = Storage.from_uri(_storage(storage)).local_path()
        run_ui(TrackingStore.open(folder or Path("runs"), experiment), port)

    tyro.cli(command, prog=program, args=arguments)


COMMANDS: dict[str, Callable[[str, list[str]], None]] = {
    "demo": demo,
    "pretrain": pretrain,
    "localize": localize,
    "evaluate linear": evaluate_linear,
    "evaluate background": evaluate_background,
    "evaluate localization": evaluate_localization,
    "evaluate localizers": evaluate_localizers,
    "data build scenes": build_scenes,
    "export backbone": export_backbone,
    "data list": list_data,
    "doctor": doctor,
    "export boxes": export_boxes,
    "export masks": export_masks,
    "ui": ui,
}
