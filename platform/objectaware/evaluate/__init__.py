"""Measures of a representation and of localization, as pure functions of tensors and arrays.

`mask_miou` and `classwise_accuracy` are for other people's code. Nothing in this package calls them.
"""

from objectaware.evaluate.linear import LinearResult, accuracy, classwise_accuracy, linear_evaluation
from objectaware.evaluate.mask_scores import mask_miou, max_box_acc

__all__ = ["LinearResult", "accuracy", "classwise_accuracy", "linear_evaluation", "mask_miou", "max_box_acc"]
