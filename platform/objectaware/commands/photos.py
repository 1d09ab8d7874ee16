"""Commands on photographs: the study of Tiny-ImageNet."""

from __future__ import annotations

from pathlib import Path

from objectaware.commands.common import (
    DEFAULTS,
    CommonArguments,
    finish_study,
    open_context,
    possible_needs,
    recipe_values,
    require_local_precision,
    validated,
)
from objectaware.commands.registry import command
from objectaware.recipes import override


@command(
    "study photos",
    "--data ROOT [--coco ROOT] [--seeds 0 1 2] [--num_epochs N]",
    "The paper's idea on photos of Tiny-ImageNet, on a CPU, against trivial baselines.",
    "PhotosConfig",
    title="Fields of the study, each given by --FIELD VALUE or by the --recipe:",
)
def study_photos(
    overrides: list[str],
    common: CommonArguments = DEFAULTS,
    seeds: tuple[int, ...] = (0, 1, 2),
    recipe: Path | None = None,
) -> None:
    """Pretrain on photos, localize held-out ones, retrain with the masks, and compare with baselines.

    docs/photos.md describes the study. The recipes are those of jobs/recipes/tiny_imagenet.

    Args:
        overrides: Fields of the study.
        common: Settings of every command.
        seeds: Seeds. Every stage that draws at random runs once for each.
        recipe: YAML file of PhotosConfig fields.
    """
    from objectaware.config import DataConfig, LocalizeConfig
    from objectaware.stages.identity import STAND_IN
    from objectaware.studies.photos import (
        PhotosConfig,
        localize_fields,
        photos_tables,
        pretrain_config,
        run_photos,
        trainings,
    )

    config = validated(PhotosConfig, override(recipe_values(recipe), overrides))
    data = DataConfig(root=STAND_IN)
    masks = {name: STAND_IN if place else "" for place, name in enumerate(trainings(config))}
    trained = [pretrain_config(config, name, data, 0, one) for name, one in masks.items()]
    for training in trained:
        require_local_precision(training)
    own = {"data": data, "checkpoint": STAND_IN}
    localized = LocalizeConfig.model_validate({**own, **localize_fields(config, "localize_crop")})
    with open_context(common, *possible_needs([*trained, localized])) as context:
        values = run_photos(context, config, seeds)
        galleries = [f"gallery of {name}: {address}" for name, address in values["galleries"].items()]
        finish_study(common, context, values, [*photos_tables(values), *galleries])
