"""Which fields each policy of pretraining has, and what they are by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from objectaware.data.layouts import layout_named, layouts

if TYPE_CHECKING:
    from objectaware.config.pretrain import PretrainConfig

Policy = Literal["none", "object_crop", "background_mixup", "background_hardmix", "mixup", "cutmix"]

GROUND_TRUTH = "ground_truth"
"""In place of a mask store's address: the data set's own masks or boxes."""

_MIX_PROBABILITIES: dict[object, float] = {"moco": 0.4, "byol": 0.3}
_BACKGROUND = ("background_mixup", "background_hardmix")
_TWO_SAMPLES = ("mixup", "cutmix")


def true_layouts(policy: Policy) -> tuple[str, ...]:
    """Layouts of data sets from which a policy takes true masks or boxes; none for most policies."""
    if policy == "object_crop":
        return tuple(layout.name for layout in layouts() if layout.true_boxes)
    if policy == "background_hardmix":
        return tuple(layout.name for layout in layouts() if layout.true_masks)
    return ()


def policy_defaults(values: Mapping[str, object]) -> dict[str, object]:
    """Defaults that depend on the policy.

    Args:
        values: Fields as the user gave them.

    Returns:
        The paper's p_mix of the method and its threshold for soft masks; the official code's p_mix is one for both.
    """
    if values.get("policy") not in _BACKGROUND:
        return {}
    method = values.get("method", "moco")
    defaults: dict[str, object] = {}
    if method in _MIX_PROBABILITIES:
        official = values.get("compat") == "official"
        defaults["mix_probability"] = 0.4 if official else _MIX_PROBABILITIES[method]
    if values.get("masks") != GROUND_TRUTH:
        defaults |= {"mask_field": "cam", "background_threshold": 0.2}
    return defaults


def policy_problem(config: PretrainConfig) -> str | None:
    """What is wrong with a configuration's fields of its policy; None where nothing is."""
    policy = config.policy
    if config.compat is not None and policy not in (*_BACKGROUND, *_TWO_SAMPLES):
        return f"compat has no meaning for the policy {policy}; leave it out"
    if policy not in _BACKGROUND:
        for name in ("mask_field", "mix_probability", "background_threshold"):
            if getattr(config, name) is not None:
                return f"{name} has no meaning for the policy {policy}; leave it out"
    elif config.mix_probability is None:
        return f"mix_probability is missing: the paper has none for the method {config.method}"
    return _mixtures_problem(config) or _masks_problem(config)


def _mixtures_problem(config: PretrainConfig) -> str | None:
    policy = config.policy
    if policy not in _TWO_SAMPLES:
        return None
    if config.method == "supervised":
        return f"the policy {policy} mixes embeddings' losses here, and has no meaning for the method supervised"
    if config.num_accumulation_steps > 1:
        return f"num_accumulation_steps = {config.num_accumulation_steps} would part the pairs of the policy {policy}"
    for workers in config.execution.worker_counts():
        if config.compat is None and config.batch_size % (2 * workers):
            return (
                f"batch_size = {config.batch_size} is not a multiple of 2 · {workers} workers: the policy {policy} "
                "mixes the samples of a worker in pairs"
            )
    return None


def _masks_problem(config: PretrainConfig) -> str | None:
    policy = config.policy
    if policy in ("none", *_TWO_SAMPLES):
        if config.masks is not None:
            return f"masks has no meaning for the policy {policy}; leave it out or choose another policy"
        return None
    if config.masks is None:
        return f"masks is missing: the policy {policy} takes them from a mask store"
    if config.masks != GROUND_TRUTH:
        return None
    names = true_layouts(policy)
    if not names:
        return f"masks = ground_truth has no meaning for the policy {policy}, whose masks are soft; give a mask store"
    if config.data.layout not in names and not layout_named(config.data.layout).is_pack:
        named = " or ".join(names)
        return f"masks = ground_truth of {policy} needs data.layout {named}, or a pack of it, not {config.data.layout}"
    for name in ("mask_field", "background_threshold"):
        if getattr(config, name) is not None:
            return f"{name} has no meaning with masks = ground_truth; leave it out"
    return None
