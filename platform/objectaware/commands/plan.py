"""Commands that plan: measure the rates of this machine, and estimate the times of stages elsewhere."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from objectaware.commands.common import Common, open_context, output_file, require_json, validated, write_json
from objectaware.commands.registry import command

_EXPERIMENT = "objectaware-plan"


@command("plan measure", "--out FILE", "Measure what this machine takes for each kind of work.")
def plan_measure(
    out: Path,
    device: Literal["cpu", "cuda"] | None = None,
    backbones: tuple[str, ...] = ("resnet18",),
    methods: tuple[str, ...] = ("moco",),
    expansions: tuple[int, ...] = (1, 2),
    image_size: int = 224,
    batch_size: int | None = None,
    images: str | None = None,
) -> None:
    """Measure the time that this machine takes for each kind of work. This takes minutes on a CPU.

    Args:
        out: File to which the rates are written as JSON.
        device: Device on which networks compute. By default a GPU if there is one.
        backbones: Names of the networks.
        methods: Names of the training methods: moco, byol.
        expansions: Expansions of ContraCAM: 1, 2, 4.
        image_size: Side of the networks' input in pixels.
        batch_size: Number of images per step. By default 32 on a CPU and 256 on a GPU.
        images: Folder of photos to measure on. By default scenes of 480 pixels.
    """
    import torch

    output_file(out)
    from objectaware.config import LocalizeExecution
    from objectaware.distributed.localize import localize_needs
    from objectaware.planning.measure import MeasureConfig
    from objectaware.planning.model import write_rates
    from objectaware.stages.start_ups import measure_all

    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    networks = {"backbones": backbones, "methods": methods, "expansions": expansions}
    data = {"image_size": image_size, "batch_size": batch_size, "images": images}
    config = validated(MeasureConfig, {"device": chosen, **networks, **data})
    needs = localize_needs(LocalizeExecution(use_gpu=chosen == "cuda"))
    with tempfile.TemporaryDirectory(prefix="oa-plan-") as name:
        common = Common(storage=f"{name}/runs", experiment=_EXPERIMENT)
        with open_context(common, needs) as context:
            rates = measure_all(context, config, Path(name))
    write_rates(out, rates)
    print(f"rates {rates.source}: {out}")


@command(
    "plan show", "--rates FILE --images N [--gpus G] [--cpus C]", "Show how long stages take, and what they wait for."
)
def plan_show(
    rates: Path,
    images: int,
    gpus: int | None = None,
    cpus: int | None = None,
    backbone: str = "resnet18",
    method: str = "moco",
    epochs: int = 800,
    iterations: int = 10,
    expansion: int = 2,
    crf: bool = True,
    classes: int = 100,
    gpu_hour_price: float = 0.0,
    cpu_hour_price: float = 0.0,
    json: Path | None = None,
) -> None:
    """Estimate how long each stage takes on the given GPUs and cores, what it costs, and what limits it.

    Args:
        rates: File that `objectaware plan measure` wrote.
        images: Number of images of the data set.
        gpus: Number of GPUs. By default that of the machine where the rates were measured.
        cpus: Number of CPU cores. By default that of the machine where the rates were measured.
        backbone: Name of the network.
        method: Name of the training method.
        epochs: Number of epochs of the training.
        iterations: Number of iterations of ContraCAM.
        expansion: Expansion of ContraCAM.
        crf: Whether masks are refined by a dense CRF.
        classes: Number of classes of the linear evaluation.
        gpu_hour_price: Price of one GPU for one hour.
        cpu_hour_price: Price of one core for one hour.
        json: File to which the table is written as data.
    """
    from objectaware.planning.model import Machine, Prices, Study, format_times, read_rates

    common = require_json(Common(json=json))
    known = read_rates(rates)
    machine = Machine.of(known, num_gpus=gpus, num_cores=cpus)
    study = Study(
        num_images=images,
        backbone=backbone,
        method=method,
        num_epochs=epochs,
        num_iterations=iterations,
        expansion=expansion,
        crf=crf,
        num_classes=classes,
    )
    times = study.times(known, machine, Prices(gpu_hour_price, cpu_hour_price))
    write_json(common, {"machine": asdict(machine), "source": known.source, "stages": list(map(asdict, times))})
    print(f"{images:,} images on {machine.num_gpus} GPUs and {machine.num_cores} cores, {known.source}")
    print(format_times(times))
