"""Commands that plan: what this machine does in how long, and what stages would take elsewhere."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import tyro

from objectaware.commands.common import Common, open_context, output_file, require_json, validated, write_json
from objectaware.commands.registry import subcommand

_EXPERIMENT = "objectaware-plan"


@subcommand("plan measure", "--out FILE", "Measure what this machine takes for each kind of work.")
def plan_measure(program: str, arguments: list[str]) -> None:
    """`objectaware plan measure --out FILE`."""

    def command(
        out: Path,
        device: Literal["cpu", "cuda"] | None = None,
        backbones: tuple[str, ...] = ("resnet18",),
        methods: tuple[str, ...] = ("moco",),
        expansions: tuple[int, ...] = (1, 2),
        image_size: int = 224,
        batch_size: int | None = None,
        images: str | None = None,
    ) -> None:
        """Measures what this machine takes for each kind of work: minutes on a CPU.

        Args:
            out: File that the rates are written to as JSON.
            device: Where networks compute; by default on a GPU where there is one.
            backbones: Networks.
            methods: How they are trained: moco, byol.
            expansions: Of ContraCAM: 1, 2, 4.
            image_size: Side in pixels of what the networks see.
            batch_size: Images a step; by default 32 on a CPU and 256 on a GPU.
            images: Folder of photos to measure on; by default scenes of 480 pixels.
        """
        import torch

        output_file(out)
        from objectaware.config import LocalizeExecution, MeasureConfig
        from objectaware.distributed.localize import localize_needs
        from objectaware.planning.rates import write_rates
        from objectaware.stages.start_ups import measure_all

        fields = {"backbones": backbones, "methods": methods, "expansions": expansions, "image_size": image_size}
        chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
        given = {"device": chosen, "batch_size": batch_size, "images": images}
        config = validated(MeasureConfig, {**fields, **given})
        needs = localize_needs(LocalizeExecution(use_gpu=chosen == "cuda"))
        with tempfile.TemporaryDirectory(prefix="oa-plan-") as name:
            common = Common(storage=f"{name}/runs", experiment=_EXPERIMENT)
            with open_context(common, needs) as context:
                rates = measure_all(context, config, Path(name))
        write_rates(out, rates)
        print(f"rates {rates.source}: {out}")

    tyro.cli(command, prog=program, args=arguments)


@subcommand(
    "plan show", "--rates FILE --images N [--gpus G] [--cpus C]", "Show how long stages take, and what they wait for."
)
def plan_show(program: str, arguments: list[str]) -> None:
    """`objectaware plan show --rates FILE --images N`."""

    def command(
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
        """Says how long each stage takes on so many GPUs and cores, what it costs, and what it waits for.

        Args:
            rates: File that `objectaware plan measure` wrote.
            images: Images of the data set.
            gpus: GPUs; by default as where the rates were measured.
            cpus: CPU cores; by default as where the rates were measured.
            backbone: Network.
            method: How it is trained.
            epochs: Epochs of the training.
            iterations: Of ContraCAM.
            expansion: Of ContraCAM.
            crf: Whether masks are refined by a dense CRF.
            classes: Classes of the linear evaluation.
            gpu_hour_price: Price of a GPU for an hour.
            cpu_hour_price: Price of a core for an hour.
            json: File that the table is written to as data.
        """
        from objectaware.planning.model import Machine, Prices, Study, format_times
        from objectaware.planning.rates import read_rates

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
        write_json(
            common,
            {"machine": asdict(machine), "source": known.source, "stages": [asdict(time) for time in times]},
        )
        print(f"{images:,} images on {machine.num_gpus} GPUs and {machine.num_cores} cores, {known.source}")
        print(format_times(times))

    tyro.cli(command, prog=program, args=arguments)
