"""Commands that compute: the demo, localization, evaluations and sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tyro.conf import Positional

from objectaware.commands.common import (
    DEFAULTS,
    CommonArguments,
    finish,
    finish_study,
    open_context,
    open_records,
    output_folder,
    possible_needs,
    recipe_fields,
    recipe_values,
    require_local_precision,
    run_stage,
    validated,
    with_each_checkpoint,
    write_json,
)
from objectaware.commands.photos import demo_on_photos
from objectaware.commands.registry import command
from objectaware.errors import InputError
from objectaware.recipes import find_recipe, merged, override, read_recipe

if TYPE_CHECKING:
    from objectaware.config import Model
    from objectaware.distributed.room import Need
    from objectaware.studies.sweep_config import SweepConfig


@command(
    "demo",
    "[--variant multi-object] [--policies P …] [--seeds 0 1 2] [--photos DIR [--num_epochs N]]",
    "The whole pipeline on the embedded scenes, on a CPU, in minutes.",
    "DemoConfig",
    title="Fields of the --recipe:",
)
def demo(
    common: CommonArguments = DEFAULTS,
    variant: Literal["single-object", "multi-object"] = "single-object",
    policies: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (0,),
    recipe: Path | None = None,
    photos: str | None = None,
    num_epochs: int | None = None,
) -> None:
    """Run the whole pipeline on the embedded scenes, or pretrain on photos and find their objects.

    Args:
        common: Settings of every command.
        variant: Scenes of one object, debiased with background mixup, or of several, debiased with object crop.
        policies: Policies to retrain with, one training for each; by default the variant's own.
        seeds: Seeds. The demo runs once for each.
        recipe: YAML file of DemoConfig fields, such as a smaller size.
        photos: Folder of your own photos, in place of the scenes. The four options above are refused with it.
        num_epochs: Epochs of the training on photos. By default the number follows from the number of photos.
    """
    if photos is not None:
        of_scenes = {
            "variant": (variant, "single-object"),
            "policies": (policies, ()),
            "seeds": (seeds, (0,)),
            "recipe": (recipe, None),
        }
        for field, (value, default) in of_scenes.items():
            if value != default:
                raise InputError(field, value, "has no meaning for photos", "Leave it out, or leave out --photos.")
        demo_on_photos(common, photos, num_epochs)
        return
    if num_epochs is not None:
        raise InputError("num_epochs", num_epochs, "has no meaning without photos", "Add --photos DIR.")
    from objectaware.config import LocalizeConfig, PretrainConfig
    from objectaware.report.tables import markdown_report, terminal_report
    from objectaware.studies.demo import DemoConfig, demo_trainings, run_demo

    chosen = {"variant": variant, **({"policies": policies} if policies else {})}
    config = validated(DemoConfig, {**recipe_values(recipe), **chosen})
    trainings = [validated(PretrainConfig, fields) for fields in demo_trainings(config)]
    for training in trainings:
        require_local_precision(training)
    # The needs of a localization depend only on its execution, which the demo does not change.
    localization = LocalizeConfig.model_validate({"data": {"root": "scenes"}, "checkpoint": "trained"})
    with open_context(common, *possible_needs([*trainings, localization])) as context:
        results = run_demo(context, config, seeds)
        report = f"demo-{variant}.md"
        context.services.storage.write_bytes(report, markdown_report(results, variant=variant).encode())
        write_json(common, results)
    # Printed after everything that the context reports at its end, so that it stays on the screen.
    print(terminal_report(results))
    print(f"report: {context.services.storage.uri}/{report}")
    print(f"MLflow UI: {context.services.tracking.ui_command()}")


@command(
    "localize",
    "IMAGES --checkpoint C [--out OUT]",
    "Find the objects in a folder of images: a mask store, COCO JSON and a gallery.",
    "LocalizeConfig",
    title="Fields of the --recipe, each overridden by --FIELD VALUE:",
)
def localize(
    overrides: list[str],
    images: Positional[str],
    checkpoint: str | None = None,
    common: CommonArguments = DEFAULTS,
    out: str | None = None,
    localizer: str | None = None,
    preset: str = "crop",
    recipe: Path | None = None,
) -> None:
    """Find the objects in a folder of images.

    Args:
        overrides: Overrides of the recipe's fields.
        images: Folder of images, at any depth.
        checkpoint: Folder that pretraining wrote, or a file of MoCo, VISSL, solo-learn, lightly, mmselfsup,
            torchvision or timm, for localizers that use a network.
        common: Settings of every command.
        out: Folder of the mask store. By default one in the storage.
        localizer: Name of the localizer. By default that of the preset or recipe. Its fields come from the recipe.
        preset: Name of a set of fields: crop and mixup are the paper's, scenes is the demo's.
        recipe: YAML file of further LocalizeConfig fields. --FIELD VALUE overrides each.
    """
    from objectaware.config import PRESETS, LocalizeConfig
    from objectaware.config.variants import default_names
    from objectaware.stages.localize import localize as stage

    if preset not in PRESETS:
        raise InputError("preset", preset, "is unknown", f"Choose {' | '.join(PRESETS)}.")
    options = default_names(LocalizeConfig)
    named = {"localizer": localizer, "checkpoint": checkpoint}
    given = {name: value for name, value in named.items() if value is not None}
    fields: dict[str, object] = {"data": {"root": images}, **deepcopy(PRESETS[preset])}
    # Fields of a recipe without a localizer's name belong to the localizer named on the command line.
    for above in (given, recipe_values(recipe), given):
        fields = merged(fields, above, options)
    config = validated(LocalizeConfig, override(fields, overrides, options))
    target = None if out is None else output_folder(out)
    with open_context(common, *possible_needs([config])) as context:
        finish(common, context, stage(context, config, out=target))


@command(
    "evaluate shift",
    "RECIPE [--checkpoints C …] [--baselines C …] [--sets NAME …]",
    "Accuracy of checkpoints on shifted test sets.",
    "ShiftConfig",
)
def evaluate_shift(
    overrides: list[str],
    recipe: Positional[Path],
    common: CommonArguments = DEFAULTS,
    checkpoints: tuple[str, ...] = (),
    baselines: tuple[str, ...] = (),
    sets: tuple[str, ...] = (),
    data_folder: str = "data",
) -> None:
    """Run the linear evaluation of one or several checkpoints on shifted test sets, by a recipe of ShiftConfig.

    The result is the accuracy on each, the BG-Gap, and corruptions averaged over their severities; with several
    checkpoints, mean and standard deviation over them. Every field of the recipe can be overridden.

    Args:
        overrides: Overrides of the recipe's fields.
        recipe: YAML file of the fields below, or the name of a recipe that comes with the package.
        common: Settings of every command.
        checkpoints: Checkpoints in place of the recipe's one.
        baselines: Checkpoint that each of them is compared with, in the same order, such as that of the same seed.
        sets: Names of published data sets, whose test sets are added.
        data_folder: Folder in which these data sets lie.
    """
    fields = recipe_fields("ShiftConfig", recipe, overrides)

    from objectaware.stages.shift import ShiftConfig
    from objectaware.studies.shift import published_tests, run_shift, shift_table

    tests = published_tests(sets, data_folder)
    given = fields.get("tests")
    if tests:
        fields["tests"] = {**(given if isinstance(given, Mapping) else {}), **tests}
    every = with_each_checkpoint(ShiftConfig, fields, checkpoints)
    before = with_each_checkpoint(ShiftConfig, fields, baselines) if baselines else []
    with open_context(common) as context:
        values = run_shift(
            context, every[0], [one.checkpoint for one in every], baselines=[one.checkpoint for one in before]
        )
        finish_study(common, context, values, [shift_table(values)])


@command(
    "evaluate few-shot",
    "RECIPE [--checkpoints C …]",
    "Error of a classifier that was shown a few images of each of two classes.",
    "FewShotConfig",
)
def evaluate_few_shot(
    overrides: list[str],
    recipe: Positional[Path],
    common: CommonArguments = DEFAULTS,
    checkpoints: tuple[str, ...] = (),
) -> None:
    """Measure the error of a classifier that was shown a few images of each of two classes.

    The recipe is one of FewShotConfig. Every field of it can be overridden: --num_shots 5.

    Args:
        overrides: Overrides of the recipe's fields.
        recipe: YAML file of the fields below, or the name of a recipe that comes with the package.
        common: Settings of every command.
        checkpoints: Checkpoints in place of the recipe's one, for the error over the epochs.
    """
    fields = recipe_fields("FewShotConfig", recipe, overrides)
    if not checkpoints:
        run_stage("few_shot", common, fields)
        return

    from objectaware.stages.few_shot import FewShotConfig
    from objectaware.studies.curves import run_few_shot_curve

    every = with_each_checkpoint(FewShotConfig, fields, checkpoints)
    with open_context(common) as context:
        values = run_few_shot_curve(context, every[0], [config.checkpoint for config in every])
        lines = []
        for point in values["curve"]:
            place = point["checkpoint"] if point["epoch"] is None else f"epoch {point['epoch']}"
            lines.append(f"{place}: error {point['mean']:.1f} ± {point['std']:.1f}%")
        finish_study(common, context, values, lines)


@command("evaluate losses", "--runs NAME=DIR …", "Draw the loss of several pretrainings over their epochs.")
def evaluate_losses(runs: list[str], common: CommonArguments = DEFAULTS, metric: str = "loss") -> None:
    """Draw the loss of several pretrainings over their epochs, in one picture.

    Args:
        runs: NAME=DIR for each pretraining: its name in the legend, and its folder or that of its checkpoint.
        common: Settings of every command.
        metric: Metric of pretraining to be drawn (docs/pretraining.md).
    """
    from objectaware.studies.curves import run_losses

    named: dict[str, str] = {}
    for one in runs:
        name, equals, folder = one.partition("=")
        if not (name and equals and folder) or name in named:
            raise InputError("runs", one, "is not NAME=DIR, or the name comes twice", "Give baseline=runs/pretrain/…")
        named[name] = folder
    with open_records(common) as context:
        values = run_losses(context, named, metric=metric)
        lines = [
            f"{name}: {metric} {curve['values'][-1]:.4g} after epoch {curve['epochs'][-1]}"
            for name, curve in values["curves"].items()
        ]
        finish_study(common, context, values, [*lines, f"picture: {values['picture']}"])


@command(
    "evaluate localizers",
    "RECIPE [--key value …]",
    "Score several localizers on the same images in one table.",
    "LocalizersConfig",
    "LocalizeConfig",
)
def evaluate_localizers(overrides: list[str], recipe: Positional[Path], common: CommonArguments = DEFAULTS) -> None:
    """Score all localizers of a recipe of LocalizersConfig on the same images in one table.

    Every field can be overridden: --checkpoint DIR.

    Args:
        overrides: Overrides of the recipe's fields.
        recipe: YAML file of the fields below, or the name of a recipe that comes with the package.
        common: Settings of every command.
    """
    fields = recipe_fields("LocalizersConfig", recipe, overrides)

    from objectaware.stages.localizers import LocalizersConfig, localizers
    from objectaware.studies.localizers import localizers_tables, run_localizers

    config = validated(LocalizersConfig, fields)
    with open_context(common, *possible_needs(localizers.parts(config))) as context:
        values = run_localizers(context, config)
        finish_study(common, context, values, localizers_tables(values))


@command(
    "evaluate background",
    "ROOT --checkpoint C",
    "Accuracy on every variant of a Backgrounds Challenge folder, and the BG-Gap.",
)
def evaluate_background(
    root: Positional[str],
    checkpoint: str,
    common: CommonArguments = DEFAULTS,
    image_size: int = 224,
    center_crop: bool = True,
    holdout_fraction: float | None = None,
) -> None:
    """Measure accuracy on every variant of a Backgrounds Challenge folder, and the BG-Gap.

    Args:
        root: Folder that holds original, mixed_same and the other variants.
        checkpoint: Folder that pretraining wrote, or a file of MoCo, VISSL, solo-learn, lightly, mmselfsup,
            torchvision or timm.
        common: Settings of every command.
        image_size: Side of the network's input in pixels.
        center_crop: Whether to use the paper's protocol, a centre crop, or to squash the picture.
        holdout_fraction: Share of the training images that is held out to choose the penalty. By default the paper's
            5%, which holds out none of fewer than about 11 images per class.
    """
    fields = {"root": root, "checkpoint": checkpoint, "image_size": image_size, "center_crop": center_crop}
    holdout = {} if holdout_fraction is None else {"holdout_fraction": holdout_fraction}
    run_stage("background", common, {**fields, **holdout})


@command(
    "sweep",
    "SWEEP [--key value …]",
    "Run a study for every combination of parameters' values, and compare with the paper.",
    "SweepConfig",
    title="Fields of the sweep, each overridden by --FIELD VALUE:",
)
def sweep(overrides: list[str], sweep: Positional[Path], common: CommonArguments = DEFAULTS) -> None:
    """Run a study for every combination of the parameters' values, and compare the results.

    Every field can be overridden: --seeds "[0, 1, 2]", --stages.pretrain.fields.num_epochs 3. The same command
    continues an interrupted sweep, and runs failed trials again.

    Args:
        overrides: Overrides of the sweep's fields.
        sweep: YAML file of SweepConfig (docs/sweeps.md), or the name of one that comes with the package (p_mix).
        common: Settings of every command.
    """
    fields = read_sweep(sweep, overrides)

    from objectaware.report.tables import format_rows
    from objectaware.studies.sweep import run_sweep
    from objectaware.studies.sweep_config import SweepConfig, check_sweep, stage_parts

    config: SweepConfig = validated(SweepConfig, fields)
    checked = check_sweep(config)
    for part in stage_parts(config, checked):
        require_local_precision(part)
    with open_context(common, *_needs(config, checked)) as context:
        result = run_sweep(context, config)
        lines = [format_rows(result.rows)]
        if result.changes:
            lines += ["differences over the same seeds:", format_rows(result.changes)]
        if result.best is not None:
            lines.append("best: " + ", ".join(f"{name} = {value}" for name, value in result.best.items()))
        lines += [f"failed: {row}" for row in result.trials if row["error"] is not None]
        lines.append(f"{result.num_run} trials were run now")
        values = {**vars(result), "folder": result.folder.uri}
        finish_study(common, context, values, lines, folder=result.folder, run_id=result.run_id)
    if result.num_failed:
        raise SystemExit(f"objectaware: {result.num_failed} trials failed. The same command runs them again.")


def read_sweep(path: Path, overrides: list[str]) -> dict[str, Any]:
    """Read a sweep's YAML. A stage may name a `recipe`, relative to the sweep's folder, which its fields override.

    Args:
        path: The file, or the name of one that comes with the package, as `find_recipe` takes it.
        overrides: `--field value` pairs that override the sweep's fields.

    Raises:
        InputError: A file is missing or is not a mapping, or the overrides are not pairs.
    """
    path = find_recipe(path)
    fields: dict[str, Any] = override(read_recipe(path), overrides)
    stages = fields.get("stages")
    if not isinstance(stages, Mapping):
        raise InputError("stages", stages, "is not a mapping of stages by name", "See docs/sweeps.md.")
    return {**fields, "stages": {name: _with_recipe(path.parent, stage) for name, stage in stages.items()}}


def _with_recipe(folder: Path, stage: object) -> object:
    if not isinstance(stage, Mapping) or "recipe" not in stage:
        return stage
    from objectaware.config.variants import default_names
    from objectaware.stages.registry import all_stages

    rest = {key: value for key, value in stage.items() if key != "recipe"}
    # An unknown kind is refused later, with the other fields.
    kind = all_stages().get(str(rest.get("stage")))
    options = {} if kind is None else default_names(kind.config)
    recipe = read_recipe(folder / str(stage["recipe"]), options)
    return {**rest, "fields": merged(recipe, rest.get("fields", {}), options)}


def _needs(config: SweepConfig, checked: Sequence[Mapping[str, Model]]) -> list[list[Need]]:
    """Return the processes that a local Ray must have room for: those of each stage, for each concurrent trial."""
    from objectaware.stages.registry import stage_needs
    from objectaware.studies.sweep_config import stage_parts

    needs = stage_needs(stage_parts(config, checked), has_gpus=(False, True))
    at_once = config.execution.max_concurrent or 1
    return [[replace(need, count=at_once * need.count) for need in stage] for stage in needs]
