"""The option `policy` of a pretraining: what is done to the positives. Each is one file in `training/policies`."""

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
"""In place of a mask store's address: the data set's own masks or boxes."""


class PolicyConfig(Variant):
    """Base of all policies' configuration. All that other code wants to know of a policy stands in its subclass.

    Attributes:
        needs_whole_pictures: Whether a pack of shrunk pictures lacks the detail that it shows.
    """

    package: ClassVar[str] = "objectaware.training.policies"
    default_name: ClassVar[str] = "none"

    needs_whole_pictures: ClassVar[bool] = False

    def build(self, *, data: DataConfig, images: TrainingImages, method: MethodConfig, cache_folder: Path) -> Any:  # noqa: ANN401 - Policy is above configuration
        """Build the `objectaware.training.policies.base.Policy`.

        Args:
            data: The data set.
            images: The opened images of it.
            method: What is trained.
            cache_folder: Local folder that the workers of a node share, for the mask store's copy.

        Raises:
            InputError: The masks do not fit the images.
        """
        raise NotImplementedError

    def open_truth(self, data: DataConfig, images: TrainingImages) -> Any:  # noqa: ANN401 - of any class of masks or boxes
        """Open the true boxes or masks that `build` takes, with no more than it takes; None without any.

        Raises:
            InputError: They are missing or malformed.
        """
        return None

    def completed(self, method: MethodConfig) -> Self:
        """Return the policy with the defaults that depend on the method, so that a stored recipe says them."""
        return self

    def problem(self, config: PretrainConfig) -> str | None:
        """What is wrong with a training with this policy; None where nothing is."""
        return None


class MaskedPolicyConfig(PolicyConfig):
    """Base of policies that know where the objects are.

    Attributes:
        takes: What of a data set's truth the policy takes: its masks, its boxes, or nothing.
        masks: Mask store that masks or boxes are taken from; or `ground_truth`, the data set's own.
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
        """True masks are not everywhere."""
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
