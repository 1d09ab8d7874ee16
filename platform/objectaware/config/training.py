"""What of a pretraining's settings goes with which optimizer and number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from objectaware.config.pretrain import PretrainConfig

OPTIMIZER_DEFAULTS: dict[str, dict[str, object]] = {
    "sgd": {},
    # Grill et al. 2020, §3.3 and appendix J: 1000 epochs, base learning rate 0.2, cosine to 0.
    "lars": {"base_learning_rate": 0.2, "final_learning_rate": 0.0, "weight_decay": 1.5e-6},
}


def training_problem(config: PretrainConfig) -> str | None:
    """What is wrong with how a network is trained: a setting that would be ignored, or one that is missing."""
    if config.num_warmup_epochs >= config.num_epochs:
        return f"num_warmup_epochs = {config.num_warmup_epochs} leaves nothing of num_epochs = {config.num_epochs}"
    return None


def batch_problem(config: PretrainConfig) -> str | None:
    """What is wrong with how a batch is shared among workers, of any number that may train, and passes."""
    problems = (_sharing_problem(config, workers) for workers in config.execution.worker_counts())
    return next((problem for problem in problems if problem is not None), None)


def _sharing_problem(config: PretrainConfig, workers: int) -> str | None:
    passes = config.num_accumulation_steps
    if config.batch_size % (workers * passes):
        each = f" × num_accumulation_steps = {passes}" if passes > 1 else ""
        share, rest = divmod(config.batch_size, workers * passes)
        sum_ = f"{config.batch_size} = {share} · {workers * passes} + {rest}"
        return f"batch_size = {config.batch_size} is not a multiple of {config.execution.named(workers)}{each}: {sum_}"
    if config.batch_size // passes < 2:
        return f"batch_size = {config.batch_size} in {passes} parts leaves nothing for batch norm to average"
    return None
