"""Augmentations: arrays and tensors in, arrays and tensors out."""

from objectaware.augment.background import background_only, mix_background
from objectaware.augment.rectangle import largest_empty_rectangle

__all__ = ["background_only", "largest_empty_rectangle", "mix_background"]
