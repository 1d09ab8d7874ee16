"""Configuration of localization."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from objectaware.config.variants import Variant, WithOptions
from objectaware.data.dataset import DataConfig
from objectaware.data.masks import MIN_BOX_AREA, OBJECT_MARGIN
from objectaware.model import CheckpointAddress, Count, Fraction, Positive, Side, StageExecution


class LocalizeExecution(StageExecution):
    """Settings of how localization runs.

    Attributes:
        num_cam_actors: Processes that compute ContraCAM; fewer, but at least one, while a cluster has no room for all.
        num_crf_actors: Processes that compute CRF and boxes; fewer in the same way.
        use_gpu: Whether each ContraCAM process has one GPU; by default if the Ray cluster in use has GPUs or can have
            some.
        num_compute_threads: Threads per ContraCAM process that compute on a CPU.
        record_iterations: Whether to keep and show the map of each iteration of the localizer for a dozen images.
    """

    num_cam_actors: Positive = 1
    num_crf_actors: Positive = 2
    use_gpu: bool | None = None
    num_compute_threads: Positive = 2
    record_iterations: bool = False


@dataclass(frozen=True)
class Cost:
    """The cost of one image's soft map, in the units that the planner measures.

    Attributes:
        num_passes: Passes of an image through the network; a gradient at the pixels counts as three.
        expansion: Resolution of passes that are iterations of ContraCAM, each with a score and a map; None for
            passes through the unchanged network.
    """

    num_passes: int = 0
    expansion: int | None = None


class Localizer(Variant):
    """Base of all localizers, which find objects: pictures and a network in, soft maps out.

    A file of `objectaware.localize` holds a variant's settings and its algorithm. All soft maps then go through the
    same steps: CRF, mask, boxes, store.

    Attributes:
        needs_network: Whether it uses a network.
        needs_negatives: Whether it compares each image with others.
        needs_classifier: Whether it has a field `classifier`, the address of a linear classifier on the network's
            pooled features.
        iterates: Whether it has maps of several iterations to show.
    """

    package = "objectaware.localize"
    default_name = "contracam"

    needs_network: ClassVar[bool] = True
    needs_negatives: ClassVar[bool] = False
    needs_classifier: ClassVar[bool] = False
    iterates: ClassVar[bool] = False

    @abstractmethod
    def build(self, network: Any) -> Any:  # noqa: ANN401 - both are of the package above, which imports torch
        """Open what the localizer needs, and return the function that finds soft maps.

        Args:
            network: `objectaware.localize.localizer.Network`, which opens its file when a part of it is requested.

        Returns:
            `objectaware.localize.localizer.SoftMaps`.

        Raises:
            InputError: The network or another file is missing or does not fit.
        """

    @property
    def only_negatives(self) -> tuple[str, ...] | None:
        """Return the paths of the only negatives of all images; None if a group's images are each other's negatives."""
        return None

    @property
    def cost(self) -> Cost:
        """Return the cost of one image's soft map; by default a negligible one."""
        return Cost()


class LocalizeConfig(WithOptions):
    """Localization of the objects of a set of images.

    Attributes:
        data: Images.
        localizer: Localizer that finds the objects.
        checkpoint: Folder that pretraining wrote, or another system's file (docs/checkpoints.md), for localizers
            that use a network.
        untrained: Whether the network of the checkpoint has random weights from the seed instead of its own, a
            baseline that shows what training adds.
        crf: Whether the soft mask is refined by a dense CRF.
        mask_threshold: Smallest value of the soft mask, after any CRF, that is foreground in the stored mask.
        image_size: Side in pixels to which images are squashed.
        min_box_area: Boxes that cover at most this fraction of the picture are dropped.
        box_margin: Fraction of a box's side by which the box is widened at each end.
        group_size: Number of images whose embeddings are each other's negatives.
        seed: Seed of the division into groups, and of random weights.
        execution: Settings of how it runs.
    """

    data: DataConfig
    localizer: Localizer = Localizer.default_field()
    checkpoint: CheckpointAddress | None = None
    untrained: bool = False
    crf: bool = True
    mask_threshold: Fraction = 0.5
    image_size: Side = 224
    min_box_area: Fraction = MIN_BOX_AREA
    box_margin: Annotated[float, Field(ge=0)] = OBJECT_MARGIN
    group_size: Annotated[int, Field(ge=2)] = 64
    seed: Count = 0
    execution: LocalizeExecution = LocalizeExecution()

    @model_validator(mode="after")
    def _fits_localizer(self) -> Self:
        """Refuse fields that the localizer would ignore, and require the network that it needs."""
        name = self.localizer.name
        if self.localizer.needs_network and self.checkpoint is None:
            raise ValueError(f"checkpoint is missing: the localizer {name} needs it")
        if not self.localizer.needs_network and self.checkpoint is not None:
            raise ValueError(f"checkpoint has no meaning for the localizer {name}; leave it out")
        if self.untrained and (not self.localizer.needs_network or self.localizer.needs_classifier):
            raise ValueError(f"untrained has no meaning for the localizer {name}; leave it out")
        if self.execution.record_iterations and not self.localizer.iterates:
            raise ValueError(f"record_iterations has no meaning for the localizer {name}; leave it out")
        return self


PRESETS: dict[str, dict[str, Any]] = {
    # Paper, common set-up: boxes for object crops of multi-object images …
    "crop": {
        "localizer": {"name": "contracam", "num_iterations": 10, "expansion": 2},
        "crf": True,
        "mask_threshold": 0.5,
    },
    # … and soft masks for background mixup of single-object images.
    "mixup": {
        "localizer": {"name": "contracam", "num_iterations": 1, "expansion": 1},
        "crf": False,
        "mask_threshold": 0.2,
    },
    # For the small network of the demo. In crops it saw objects larger than they are in whole pictures of the views'
    # size (Touvron et al. 2019). It found them best in pictures a third larger: 128 pixels after views of 96. The
    # demo computes the side from that of its own views.
    "scenes": {
        "localizer": {"name": "contracam", "num_iterations": 2, "expansion": 2},
        "image_size": 128,
        "crf": True,
        "mask_threshold": 0.5,
    },
}
"""Fields of `LocalizeConfig` by the name that `objectaware localize --preset` takes."""
