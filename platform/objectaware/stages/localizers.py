"""Stage `localizers`: run several localizers on the same images and score their masks together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from objectaware.config import LocalizeConfig, Model
from objectaware.config.localize import Localizer
from objectaware.config.variants import default_names
from objectaware.model import CheckpointAddress, Count, MasksAddress, first_fault
from objectaware.recipes import merged
from objectaware.stages.identity import STAND_IN
from objectaware.stages.linear import LinearConfig, linear
from objectaware.stages.localization import LocalizationConfig, MeasurableData, localization
from objectaware.stages.localize import localize
from objectaware.stages.registry import stage
from objectaware.stages.runner import Context, StageResult


class LocalizersConfig(Model):
    """Several localizers on the same images, in one table.

    Attributes:
        data: Images with true masks or boxes, as in `LocalizationConfig`.
        checkpoint: Checkpoint of the network that all localizers except the baselines use.
        localizers: Fields of `LocalizeConfig` that differ, by name of the row: `localizer` and its settings.
        shared: Fields of `LocalizeConfig` that are the same for all, such as `crf`, `image_size` or `execution`.
        linear: Fields of `LinearConfig` for the classifier of the rows that need one and do not name one. The
            checkpoint is the same.
        masks: Masks of other systems to be scored beside them, as in `LocalizationConfig`.
        picture_baselines: Whether to score baselines that look at the pictures, as in `LocalizationConfig`.
        seed: Seed of the rows and of the classifier, unless they give their own.
    """

    data: MeasurableData
    checkpoint: CheckpointAddress
    localizers: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
    shared: dict[str, Any] = Field(default_factory=dict)
    linear: dict[str, Any] | None = None
    masks: dict[str, MasksAddress] = Field(default_factory=dict)
    picture_baselines: bool | None = None
    seed: Count = 0

    @model_validator(mode="after")
    def _parts_are_valid(self) -> Self:
        """Refuse mistakes in the rows before the first row is computed."""
        for name in self.localizers:
            if name in self.masks:
                raise ValueError(f"{name} is the name of a localizer and of masks; give one another name")
            if self.lacks_classifier(name) and not self.linear:
                raise ValueError(f"linear is missing: the row {name} needs a classifier")
            with _named(f"localizers.{name}"):
                self.localize_config(name, classifier="classifier")
        if self.linear is not None:
            with _named("linear"):
                self.linear_config()
        return self

    def localize_config(self, name: str, *, classifier: str) -> LocalizeConfig:
        """Return the configuration of one row.

        Args:
            name: Name of the row.
            classifier: Address of the classifier, used if the row needs one and does not name one.
        """
        fields: dict[str, Any] = {"data": self.data, "seed": self.seed, **self._row(name)}
        variant = self._variant(name)
        if variant is None or variant.needs_network:
            fields.setdefault("checkpoint", self.checkpoint)
        if self.lacks_classifier(name):
            fields["localizer"] = {**fields["localizer"], "classifier": classifier}
        return LocalizeConfig.model_validate(fields)

    def lacks_classifier(self, name: str) -> bool:
        """Return whether a row needs a classifier that it does not name."""
        variant = self._variant(name)
        return variant is not None and variant.needs_classifier and "classifier" not in self._row(name)["localizer"]

    def _row(self, name: str) -> dict[str, Any]:
        """Return the fields of a row, laid over those that all rows share."""
        default = {"localizer": Localizer.default_name}
        options = default_names(LocalizeConfig)
        return merged(merged(default, self.shared, options), self.localizers[name], options)

    def _variant(self, name: str) -> type[Localizer] | None:
        """Return the localizer of a row, or None for an unknown name, which the row's validation refuses."""
        localizer = self._row(name)["localizer"]
        known = isinstance(localizer, dict) and str(localizer.get("name"))
        return Localizer.variants().get(known) if known else None

    def linear_config(self) -> LinearConfig:
        """Return the configuration of the classifier."""
        return LinearConfig.model_validate({"checkpoint": self.checkpoint, "seed": self.seed, **(self.linear or {})})


@contextmanager
def _named(field: str) -> Iterator[None]:
    """Raise the first fault of a nested configuration under the name of its field."""
    try:
        yield
    except ValidationError as error:
        place, _, problem = first_fault(error)
        raise ValueError(f"{'.'.join([field, *place])}: {problem}") from error


def localizers_parts(config: LocalizersConfig) -> list[Model]:
    """Return the configurations of all steps. The scoring's lists only the masks of other systems."""
    rows = [config.localize_config(name, classifier=STAND_IN) for name in config.localizers]
    classifier = [] if config.linear is None else [config.linear_config()]
    return [*rows, *classifier, _scoring(config, config.masks)]


@stage("localizers", parts=localizers_parts)
def localizers(context: Context, config: LocalizersConfig, title: str | None) -> StageResult:
    """Localize the same images with each localizer and score all masks.

    Returns:
        The scoring of all masks, with the values of `objectaware.studies.localizers.run_localizers`.
    """
    classifier: str | None = None
    masks: dict[str, str] = {}
    prefix = "" if title is None else f"{title}: "
    for name in config.localizers:
        if config.lacks_classifier(name) and classifier is None:
            fitted = linear(context, config.linear_config(), title=f"{prefix}linear evaluation")
            classifier = str(fitted.values["classifier"])
        row = config.localize_config(name, classifier=classifier or "")
        masks[name] = str(localize(context, row, title=f"{prefix}localize {name}").values["masks"])
    masks |= config.masks
    result = localization(context, _scoring(config, masks), title=title)
    return replace(result, values={**result.values, "masks": masks, "classifier": classifier})


def _scoring(config: LocalizersConfig, masks: Mapping[str, str]) -> LocalizationConfig:
    image_size = config.shared.get("image_size", LocalizationConfig.model_fields["image_size"].default)
    return LocalizationConfig(
        data=config.data, masks=dict(masks), image_size=image_size, picture_baselines=config.picture_baselines
    )
