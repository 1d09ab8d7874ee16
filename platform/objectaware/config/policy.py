"""The option `policy` of a pretraining: the change of the positives. Each policy is one file in `training/policies`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from objectaware.config.method import MethodConfig
from objectaware.config.variants import Variant
from objectaware.data.dataset import DataConfig
from objectaware.data.layouts import layout_named, layouts
from objectaware.model import MasksAddress

if TYPE_CHECKING:
    from objectaware.config.pretrain import PretrainConfig
    from objectaware.data.dataset import TrainingImages

GROUND_TRUTH: Literal["ground_truth"] = "ground_truth"
"""Value in place of a mask store's address that stands for the data set's own masks or boxes."""


class PolicyConfig(Variant):
    """Base of all policies' configuration. A subclass holds everything that other code has to know about its policy.

    Attributes:
        needs_whole_pictures: Whether it shows detail that a pack of shrunk pictures lacks.
    """

    package: ClassVar[str] = "objectaware.training.policies"
    default_name: ClassVar[str] = "none"

    needs_whole_pictures: ClassVar[bool] = False

    def build(self, *, data: DataConfig, images: TrainingImages, method: MethodConfig, cache_folder: Path) -> Any:  # noqa: ANN401 - Policy is above configuration
        """Build the `objectaware.training.policies.base.Policy`.

        Args:
            data: The data set.
            images: The data set's opened images.
            method: Method that is trained.
            cache_folder: Local folder that the workers of a node share, for the mask store's copy.

        Raises:
            InputError: The masks do not fit the images.
        """
        raise NotImplementedError

    def open_truth(self, data: DataConfig, images: TrainingImages) -> Any:  # noqa: ANN401 - of any class of masks or boxes
        """Open only the true boxes or masks that `build` takes; return None if it takes none.

        Raises:
            InputError: The boxes or masks are missing or malformed.
        """
        return None

    def completed(self, method: MethodConfig) -> Self:
        """Return the policy with the defaults that depend on the method, so that a stored recipe is complete."""
        return self

    def problem(self, config: PretrainConfig) -> str | None:
        """Return the problem with training with this policy and a configuration, or None."""
        return None


class MaskedPolicyConfig(PolicyConfig):
    """Base of policies that know where the objects are.

    Attributes:
        takes: Part of a data set's truth that the policy takes: its masks, its boxes, or nothing.
        masks: Mask store from which the policy takes masks or boxes; or `ground_truth` for the data set's own.
    """

    takes: ClassVar[Literal["masks", "boxes"] | None] = None

    masks: Literal["ground_truth"] | MasksAddress

    @classmethod
    def true_layouts(cls) -> tuple[str, ...]:
        """Return the layouts of data sets from which the policy takes true masks or boxes."""
        if cls.takes is None:
            return ()
        return tuple(layout.name for layout in layouts() if getattr(layout, f"true_{cls.takes}"))

    def problem(self, config: PretrainConfig) -> str | None:
        """Return the problem, or None. Only some data sets have true masks or boxes."""
        if self.masks != GROUND_TRUTH:
            return None
        place = f"policy.masks = ground_truth of {self.name}"
        names = self.true_layouts()
        if not names:
            return f"{place} has no meaning: the policy's masks are soft; give a mask store"
        if config.data.layout not in names and not layout_named(config.data.layout).is_pack:
            named = " or ".join(names)
            return f"{place} needs data.layout {named}, or a pack of it, not {config.data.layout}"
        return None
