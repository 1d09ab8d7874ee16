"""The option `method` of a pretraining. Each method is one file in `objectaware.methods`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from objectaware.config.variants import Variant
from objectaware.data.layouts import layout_named

if TYPE_CHECKING:
    from objectaware.config.pretrain import PretrainConfig


class ViewConfig(NamedTuple):
    """Settings for cutting one of the views of each sample.

    Attributes:
        size: Side in pixels.
        min_crop_scale: Smallest fraction of the image that a crop covers.
        max_crop_scale: Largest fraction of the image that a crop covers.
    """

    size: int
    min_crop_scale: float
    max_crop_scale: float = 1.0


class MethodConfig(Variant):
    """Base of all methods' configuration. A subclass holds everything that other code has to know about its method.

    Attributes:
        title: Name in figures and tables.
        needs_labels: Whether it learns from the images' classes.
        takes_mixtures: Whether its loss is defined for views that are mixtures of two samples.
        mix_probability: Default p_mix of the background policies; None if nobody has published one.
        averages_official_mixtures: Whether the official code of mixup weighs all its losses with the mean λ.
        num_views: Number of views of each sample, unless a subclass overrides `views`.
        smoke_fields: Fields for a training on a few hundred images, such as in `reproduce --scale smoke`.
    """

    package: ClassVar[str] = "objectaware.methods"
    default_name: ClassVar[str] = "moco"

    title: ClassVar[str]
    needs_labels: ClassVar[bool] = False
    takes_mixtures: ClassVar[bool] = False
    mix_probability: ClassVar[float | None] = None
    averages_official_mixtures: ClassVar[bool] = False
    num_views: ClassVar[int] = 2
    smoke_fields: ClassVar[Mapping[str, object]] = {}

    def build(self, backbone: str, *, num_classes: int) -> Any:  # noqa: ANN401 - Method is above configuration
        """Build the untrained `objectaware.methods.method.Method`.

        Args:
            backbone: Name of the backbone.
            num_classes: Number of classes in the data set, for a method that needs labels.
        """
        raise NotImplementedError

    def views(self, config: PretrainConfig) -> tuple[ViewConfig, ...]:
        """Return the settings for cutting each of a sample's views. Policies mix the first one.

        A method with multi-crop returns smaller views after those of `image_size`.
        """
        return (ViewConfig(config.image_size, config.min_crop_scale),) * self.num_views

    def problem(self, config: PretrainConfig) -> str | None:
        """Return the problem with training this method with a configuration, or None."""
        if self.needs_labels and not layout_named(config.data.layout).labels:
            return f"the method {self.name} learns from labels, and the layout {config.data.layout} has none"
        return None
