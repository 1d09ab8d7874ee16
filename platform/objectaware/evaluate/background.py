"""Reliance on backgrounds, measured on the variants of the Backgrounds Challenge (Xiao et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping

from objectaware.errors import InputError

VARIANTS = (
    "original",
    "only_bg_b",
    "only_bg_t",
    "no_fg",
    "only_fg",
    "mixed_same",
    "mixed_rand",
    "mixed_next",
)
"""The variants in the order of the paper's table `bg-main` (with its row `no_fg`, left out in print)."""


def bg_gap(accuracies: Mapping[str, float]) -> float:
    """Returns BG-Gap: what a classifier loses when the background no longer goes with the object's class.

    Args:
        accuracies: Accuracy of each variant; `mixed_same` and `mixed_rand` must be among them.

    Returns:
        Accuracy on `mixed_same` less that on `mixed_rand`, in the unit of the accuracies.

    Raises:
        InputError: One of the two is missing.
    """
    for variant in ("mixed_same", "mixed_rand"):
        if variant not in accuracies:
            remedy = "Evaluate on mixed_same and mixed_rand to have the gap between them."
            raise InputError("accuracies", sorted(accuracies), f"lack {variant}", remedy)
    return accuracies["mixed_same"] - accuracies["mixed_rand"]
