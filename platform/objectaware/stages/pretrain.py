"""Stage `pretrain`: pretrain a network on images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from objectaware.config import GROUND_TRUTH, MaskedPolicyConfig, PretrainConfig
from objectaware.data.coco_json import forget_instances
from objectaware.data.dataset import Dataset
from objectaware.distributed.train import train_on_ray, training_needs
from objectaware.methods.backbones import check_image_size
from objectaware.stages.identity import TRAINING_OUTPUTS, mask_store_hash
from objectaware.stages.progress import format_seconds, worker_notice
from objectaware.stages.registry import stage
from objectaware.stages.runner import Computation, Context, StageRun
from objectaware.training.inputs import open_inputs
from objectaware.training.policies.masks import require_packed_truth
from objectaware.training.pretraining import run_pretraining


@stage(
    "pretrain",
    version=7,
    command="pretrain",
    outcome="checkpoint",
    outputs=TRAINING_OUTPUTS,
    measures=False,
    needs=lambda config: training_needs(config.execution),
)
def pretrain(context: Context, config: PretrainConfig) -> Computation[PretrainConfig]:
    """Pretrain a network on images without labels, or train it on labels for comparison.

    Returns:
        Values `checkpoint` (address of the folder), `epochs`, and the last epoch's metrics.
    """
    name = f"pretrain {config.method.name} {config.policy.name} seed {config.seed}"
    data = Dataset.of(config.data)
    inputs = {"data": data.content_hash(context.mode.verify)}
    if isinstance(config.policy, MaskedPolicyConfig):
        if config.policy.masks != GROUND_TRUTH:
            inputs["masks"] = mask_store_hash(config.policy.masks)
        else:
            if data.is_pack:
                require_packed_truth(config.policy, config.data)  # fail now, and not in a worker
            inputs["masks"] = data.training_truth_hash(context.mode.verify)

    def check(config: PretrainConfig) -> None:
        check_image_size(config.backbone, config.image_size)
        opened = open_inputs(config, data)
        config.policy.open_truth(config.data, opened.images)
        if opened.notice:
            context.services.progress.line(f"{name}: {opened.notice}")

    def compute(run: StageRun, config: PretrainConfig) -> Mapping[str, Any]:
        recorder = _Recorder(run, config)
        forget_instances()  # free their memory, since the workers have their own
        checkpoint = train_on_ray(run_pretraining, config, name="train", storage=run.folder, on_record=recorder)
        run.tracker.log_model("checkpoint", checkpoint)
        return {"checkpoint": checkpoint, "epochs": config.num_epochs, **recorder.last_metrics}

    tags = {
        "method": config.method.name,
        "backbone": config.backbone,
        "policy": config.policy.name,
        "dataset": config.data.root,
    }
    return Computation(
        title=name,
        inputs=inputs,
        compute=compute,
        tags=tags,
        check=check,
        least_needs=lambda config: training_needs(config.execution, least=True),
    )


class _Recorder:
    """The sink of the workers' records: it shows progress and logs metrics."""

    def __init__(self, run: StageRun, config: PretrainConfig) -> None:
        self._run = run
        self._config = config
        self.last_metrics: dict[str, float] = {}

    def __call__(self, record: Mapping[str, Any]) -> None:
        if record["kind"] == "epoch":
            metrics = {key: float(value) for key, value in record.items() if key not in ("kind", "epoch")}
            self._run.tracker.log_metrics(metrics, step=int(record["epoch"]))
            self.last_metrics = metrics
            if self._run.on_epoch is not None:
                self._run.on_epoch(int(record["epoch"]), metrics)
        elif record["kind"] == "progress":
            self._run.progress.update(self._text(record))
        elif (notice := worker_notice(record)) is not None:
            self._run.progress.line(notice)

    def _text(self, record: Mapping[str, Any]) -> str:
        epoch, step, num_steps = int(record["epoch"]), int(record["step"]), int(record["num_steps"])
        rate = float(record["images_per_second"])
        steps_left = (self._config.num_epochs - epoch) * num_steps - step
        left = steps_left * self._config.batch_size / rate
        loss = f"loss {record['loss']:.3f} (chance {record['chance_loss']:.3f})"
        text = f"epoch {epoch + 1}/{self._config.num_epochs} · {loss} · {rate:.0f} images/s"
        knn = self.last_metrics.get("knn_accuracy")
        if knn is not None:
            text += f" · k-NN {knn:.1f}%"
        return f"{text} · {format_seconds(left)} left"
