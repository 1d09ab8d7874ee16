"""Augmentations: arrays and tensors in, arrays and tensors out."""

from objectaware.augment.background import background_only, largest_empty_rectangle, mix_background

__all__ = ["background_only", "largest_empty_rectangle", "mix_background"]
