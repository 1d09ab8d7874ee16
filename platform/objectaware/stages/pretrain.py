"""Stage `pretrain`: pretrain a network on images."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from objectaware.config import GROUND_TRUTH, MaskedPolicyConfig, PretrainConfig
from objectaware.data.coco_json import forget_instances
from objectaware.data.dataset import Dataset
from objectaware.distributed.train import train_on_ray, training_needs
from objectaware.methods.backbones import check_image_size
from objectaware.stages.identity import TRAINING_OUTPUTS, mask_store_hash
from objectaware.stages.progress import TrainingRecorder, format_seconds
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
        recorder = TrainingRecorder(run, partial(progress_text, config))
        forget_instances()  # free their memory, since the workers have their own
        checkpoint = train_on_ray(run_pretraining, config, storage=run.folder, on_record=recorder)
        model = f"{config.method.name}-{config.backbone}-{config.policy.name}"
        run.tracker.log_model(model, checkpoint, model_type="backbone")
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


def progress_text(config: PretrainConfig, record: Mapping[str, Any], last_metrics: Mapping[str, float]) -> str:
    """Return a line that shows the progress of a training, from a record of its workers."""
    epoch, step, num_steps = int(record["epoch"]), int(record["step"]), int(record["num_steps"])
    rate = float(record["images_per_second"])
    steps_left = (config.num_epochs - epoch) * num_steps - step
    left = format_seconds(steps_left * config.batch_size / rate)
    loss = f"loss {record['loss']:.3f} (chance {record['chance_loss']:.3f})"
    knn = f" · k-NN {last_metrics['knn_accuracy']:.1f}%" if "knn_accuracy" in last_metrics else ""
    return f"epoch {epoch + 1}/{config.num_epochs} · {loss} · {rate:.0f} images/s{knn} · {left} left"
