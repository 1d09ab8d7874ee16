"""Commands on photographs: the study of Tiny-ImageNet, and the demo on the user's own photos."""

from __future__ import annotations

from pathlib import Path

from objectaware.commands.common import (
    DEFAULTS,
    Common,
    CommonArguments,
    finish_study,
    open_context,
    possible_needs,
    recipe_values,
    require_local_precision,
    validated,
)
from objectaware.commands.registry import command
from objectaware.errors import InputError
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


def demo_on_photos(common: Common, photos: str, num_epochs: int | None) -> None:
    """Pretrain on the user's own photos, find their objects, and print where the gallery is.

    Args:
        common: Settings of every command.
        photos: Folder of the photos.
        num_epochs: Epochs of the training. By default the number follows from the number of photos.
    """
    from objectaware.stages.identity import STAND_IN
    from objectaware.studies.own_photos import (
        expectation,
        expected_times,
        machine_rates,
        open_photos,
        own_photos_stages,
        run_own_photos,
        with_decoding,
    )

    if num_epochs is not None and num_epochs < 1:
        raise InputError("num_epochs", num_epochs, "is too few", "Give at least 1.")
    images = open_photos(photos)
    number = len(images)
    training, localization = own_photos_stages(photos, number, num_epochs, checkpoint=STAND_IN)
    with open_context(common, *possible_needs([training, localization])) as context:
        print("measuring how fast this machine is, once for this storage …", flush=True)
        rates = with_decoding(machine_rates(context.services.storage, images, training), images)
        times = expected_times(rates, number, training, localization)
        print("\n".join(expectation(number, training.num_epochs, times)), flush=True)
        values = run_own_photos(context, training, localization)
        lines = [f"{key}: {value}" for key, value in values.items() if key != "gallery"]
        finish_study(common, context, values, [*lines, f"gallery, to be opened in a browser: {values['gallery']}"])
