"""Cells of the tables on background bias: the Backgrounds Challenge by networks trained on ImageNet-9."""

from __future__ import annotations

from objectaware.paper.content import Key
from objectaware.paper.nodes import Images, Linear, Network, Pretrain
from objectaware.paper.trainings import METHODS, training
from objectaware.paper.values import Value

IN9_TRAIN = Images("ImageNet-9", "train")
IN9_HOLDOUT = 0.05
"""Share of the training images that chooses the penalty (appendix B.3)."""

POLICIES = {
    "Baseline": "",
    "Mixup": "_mixup",
    "CutMix": "_cutmix",
    "BG-Mixup (CAM)": "_background_mixup",
    "BG-Mixup (ours)": "_background_mixup",
    "BG-HardMix (CAM)": "_background_hardmix",
    "BG-HardMix (GT)": "_background_hardmix_ground_truth",
}
"""The paper's names of the augmentations, and the ends of their recipes' names."""

VARIANTS = ("original", "only_bg_b", "only_bg_t", "only_fg", "mixed_same", "mixed_rand", "mixed_next")
"""Variants of the Backgrounds Challenge in the table's order; the paper prints no `no_fg`."""
_GAP = "BG-Gap"


def in9_network(model: str, augmentation: str, seed: int) -> Pretrain:
    """A network trained on ImageNet-9, by the paper's names of method and augmentation."""
    return training(f"{METHODS[model]}_resnet18_in9{POLICIES[augmentation.removeprefix('+')]}", seed=seed)


def challenge(network: Network) -> Linear:
    """Linear evaluation on ImageNet-9, measured on every variant of the Backgrounds Challenge."""
    tests = tuple((variant, Images("Backgrounds Challenge", variant)) for variant in VARIANTS)
    return Linear(network, IN9_TRAIN, tests, IN9_HOLDOUT)


def _accuracy(network: Network, name: str) -> Value:
    variant = "bg_gap" if name == _GAP else name.lower().replace("-", "_")
    return Value(challenge(network), (("accuracies", variant),))


def main(row: Key, column: Key, seed: int) -> Value:
    """`bg-main` and `bg-soft-hard`: a row a test set, a column a network."""
    return _accuracy(in9_network(column[0], column[1], seed), row[0])


def more(row: Key, column: Key, seed: int) -> Value:
    """`bg-more-bg`: a row a network, a column a test set."""
    return _accuracy(in9_network(row[0], row[1], seed), column[0])


def probability(row: Key, column: Key, seed: int) -> Value:
    """`bg-probability`; at p = 0 nothing is mixed, which is the baseline."""
    method, mix = METHODS[row[0]], float(row[1])
    recipe = f"{method}_resnet18_in9" + ("_background_mixup" if mix else "")
    return _accuracy(training(recipe, seed=seed, mix_probability=mix or None), column[0])
