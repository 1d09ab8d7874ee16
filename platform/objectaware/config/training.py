"""What of a pretraining's settings goes with which method, optimizer and number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from objectaware.data.layouts import layout_named

if TYPE_CHECKING:
    from objectaware.config.pretrain import PretrainConfig

METHOD_DEFAULTS: dict[str, dict[str, object]] = {
    "moco": {"momentum": 0.999, "queue_size": 65536, "temperature": 0.2},
    "byol": {"momentum": 0.996},
    "supervised": {},
}
"""The fields of `PretrainConfig` that only some methods have, with their defaults."""

OPTIMIZER_DEFAULTS: dict[str, dict[str, object]] = {
    "sgd": {},
    # Grill et al. 2020, §3.3 and appendix J: 1000 epochs, base learning rate 0.2, cosine to 0.
    "lars": {"base_learning_rate": 0.2, "final_learning_rate": 0.0, "weight_decay": 1.5e-6},
}


def training_problem(config: PretrainConfig) -> str | None:
    """What is wrong with how a network is trained: a setting that would be ignored, or one that is missing."""
    method = config.method
    for name in sorted({field for fields in METHOD_DEFAULTS.values() for field in fields}):
        if name not in METHOD_DEFAULTS[method] and getattr(config, name) is not None:
            return f"{name} has no meaning for the method {method}; leave it out"
    if method == "supervised":
        if config.momentum_schedule != "constant":
            return "momentum_schedule has no meaning for the method supervised; leave it out"
        if not layout_named(config.data.layout).labels:
            return f"the method supervised learns from labels, and the layout {config.data.layout} has none"
    if config.batch_norm == "shuffled" and method != "moco":
        return f"batch_norm = shuffled has no meaning for the method {method}, which has no keys to shuffle"
    if config.batch_norm != "shuffled" and config.num_batch_norm_splits is not None:
        return f"num_batch_norm_splits has no meaning for batch_norm = {config.batch_norm}; leave it out"
    if config.num_warmup_epochs >= config.num_epochs:
        return f"num_warmup_epochs = {config.num_warmup_epochs} leaves nothing of num_epochs = {config.num_epochs}"
    return None


def batch_problem(config: PretrainConfig) -> str | None:
    """What is wrong with how a batch is shared among workers, of any number that may train, and passes."""
    problems = (_sharing_problem(config, workers) for workers in config.execution.worker_counts())
    return next((problem for problem in problems if problem is not None), None)


def _sharing_problem(config: PretrainConfig, workers: int) -> str | None:
    execution, passes = config.execution, config.num_accumulation_steps
    # With an elastic group the number is none that the user wrote down.
    named = f"execution.num_workers = {workers}"
    if workers != execution.num_workers:
        named = f"{workers} workers (execution.min_workers = {execution.min_workers})"
    if config.batch_size % (workers * passes):
        each = f" × num_accumulation_steps = {passes}" if passes > 1 else ""
        share, rest = divmod(config.batch_size, workers * passes)
        sum_ = f"{config.batch_size} = {share} · {workers * passes} + {rest}"
        return f"batch_size = {config.batch_size} is not a multiple of {named}{each}: {sum_}"
    if config.batch_size // passes < 2:
        return f"batch_size = {config.batch_size} in {passes} parts leaves nothing for batch norm to average"
    splits = config.num_batch_norm_splits
    if splits is None:
        return None
    if splits % workers:
        return f"num_batch_norm_splits = {splits} is not a multiple of {named}"
    if config.batch_size % (passes * splits) or config.batch_size // (passes * splits) < 2:
        return (
            f"batch_size = {config.batch_size} in {passes} × {splits} parts (num_accumulation_steps × "
            "num_batch_norm_splits) is not two or more images in each"
        )
    return None
