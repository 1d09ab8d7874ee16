"""The cost of a table or figure: its stages and which are finished, its data sets, and GPU hours.

The hours are estimated before the stages run, with measured rates or the paper's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from objectaware.config import LocalizeConfig, Localizer, MethodConfig, PretrainConfig
from objectaware.data.published import published_set
from objectaware.errors import InputError
from objectaware.paper import nodes
from objectaware.paper.nodes import Images, Kept, Node, Planned, Published, images_of
from objectaware.paper.plan import Protocol, recipe_parts
from objectaware.planning import model
from objectaware.planning.model import Machine, Rates, StageWork, Work, format_hours
from objectaware.studies.reproduce.scale import Scale, obstacles, published_number

if TYPE_CHECKING:
    from objectaware.stages.runner import Context, StageResult

PAPER_RATES: Final = (183.0, 46.0)
"""Images per second on which a GeForce RTX 2080 Ti trains, from the paper's training times: 800 epochs of COCO's
118,287 images in 1.5 days on 4 GPUs (ResNet-18) and in 3 days on 8 (ResNet-50)."""

_PAPER_SOURCE = "a GeForce RTX 2080 Ti by the paper's days"
# A training step runs two views forwards and backwards, and both forwards through the target network.
_FORWARDS_PER_TRAINED_IMAGE = 8
# pydensecrf on a picture of 224 × 224 pixels, in one process (official-implementation §2).
_CRF_SECONDS = 0.048
# A compressed soft mask of 224 × 224 bytes, with its mask and boxes.
_BYTES_PER_MASK = 20_000
# Mask R-CNN R50-C4 for 180,000 iterations on 8 V100: 0.58 s per iteration in detectron2's model zoo.
_DETECTION_GPU_HOURS = 180_000 * 0.58 * 8 / 3600


def stated_rates(images_per_second: tuple[float, float] | None = None) -> Rates:
    """Return rates of a GPU for which only the training speed is known; all else is the paper's or counts as free.

    Args:
        images_per_second: Training speed with a ResNet-18 and with a ResNet-50. By default the paper's.

    Raises:
        InputError: A rate is zero or negative.
    """
    speeds = images_per_second or PAPER_RATES
    for speed in speeds:
        if speed <= 0:
            raise InputError("images-per-second", speed, "is not a valid rate", "Give two positive numbers.")
    source = _PAPER_SOURCE if images_per_second is None else "as given"
    return Rates(
        source=f"at {speeds[0]:g} images/s (ResNet-18) and {speeds[1]:g} (ResNet-50) per GPU ({source})",
        device="cuda",
        num_cores=1,
        num_gpus=1,
        image_size=224,
        picture_bytes=1,
        crf=_CRF_SECONDS,
        networks=(_stated("resnet18", 512, speeds[0]), _stated("resnet50", 2048, speeds[1])),
        start_seconds={"pretrain": 0, "localize": 0, "linear": 0},
    )


def _stated(backbone: str, num_features: int, images_per_second: float) -> model.NetworkRates:
    step = model.TrainingRates(step=Work(gpu_seconds=1 / images_per_second))
    forward = Work(gpu_seconds=1 / images_per_second / _FORWARDS_PER_TRAINED_IMAGE)
    return model.NetworkRates(
        backbone=backbone,
        num_features=num_features,
        training=dict.fromkeys(MethodConfig.variants(), step),
        forward=forward,
        iteration=dict.fromkeys((1, 2, 4), forward),
    )


@dataclass(frozen=True)
class Cost:
    """The cost of a stage.

    Attributes:
        gpu_hours: Hours of work of GPUs.
        cpu_hours: Hours of work of cores, beside the GPUs or in their place.
        disk_bytes: Size of its mask store in bytes.
        hours: Elapsed hours on the machine that is planned for.
        bottleneck: The resource that it waits for there; None if it takes no time.
        is_known: Whether the number of its images is known. Otherwise the cost is not counted.
    """

    gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    disk_bytes: float = 0.0
    hours: float = 0.0
    bottleneck: model.Resource | None = None
    is_known: bool = True


def cost_of(scale: Scale, node: Planned, rates: Rates, machine: Machine) -> Cost:
    """Estimate a stage from its images, its epochs or iterations, and the rates.

    Fits of linear classifiers are left out, because the number of classes is known only when the labels are read.

    Raises:
        InputError: The rates lack a network, a method or an expansion.
    """
    numbers = [scale.num_images(images) for images in images_of(node)]
    if None in numbers:
        return Cost(is_known=False)
    work = _work(scale, node, rates, sum(number for number in numbers if number is not None))
    if work is None:
        return Cost()
    total, time = work.total(), work.on(machine)
    return Cost(
        gpu_hours=total.gpu_seconds / 3600,
        cpu_hours=total.core_seconds / 3600,
        disk_bytes=numbers[0] * _BYTES_PER_MASK if node.kind == "localize" and numbers[0] is not None else 0.0,
        hours=time.seconds / 3600,
        bottleneck=time.bottleneck,
    )


def _work(scale: Scale, node: Planned, rates: Rates, num_images: int) -> StageWork | None:
    """Return the work of a stage, or None if it is negligible."""
    network = node.fields.get("checkpoint")
    if node.kind == "pretrain":
        config = scale.config(node, None)
        assert isinstance(config, PretrainConfig)
        return model.pretrain_work(
            rates,
            backbone=_backbone(node),
            method=config.method.name,
            num_images=num_images,
            num_epochs=config.num_epochs,
            execution=config.execution,
        )
    if node.kind == "localize":
        defaults = {name: LocalizeConfig.model_fields[name].default for name in ("crf", "group_size")}
        chosen = {name: node.fields.get(name, default) for name, default in defaults.items()}
        return model.localize_work(rates, num_images=num_images, soft_mask=_soft_mask(node, rates), **chosen)
    if node.kind == "detection":
        one = model.Part(1, Work(gpu_seconds=3600 * _DETECTION_GPU_HOURS))
        return None if isinstance(network, Published) else StageWork("detection", 0.0, (one,))
    if network is None:
        return None
    parts = model.feature_parts(rates, backbone=_backbone(network), num_images=num_images)
    return StageWork("linear", rates.start_seconds["linear"], parts)


def _backbone(network: Node | None) -> str:
    """Return a network's backbone. Networks of others are ResNet-50."""
    training = network.training if isinstance(network, Kept) else network
    recipe = training.recipe if isinstance(training, Planned) else None
    return "resnet50" if recipe is None else recipe_parts(recipe)[1]


def _soft_mask(node: Planned, rates: Rates) -> Work:
    """Return the work for one image's soft mask."""
    fields = {name: value for name, value in node.fields["localizer"].items() if name != "negatives"}
    if "classifier" in fields:
        fields["classifier"] = "classifier"
    localizer = Localizer.variants()[fields["name"]].model_validate(fields)
    return model.soft_mask_work(rates, backbone=_backbone(node.fields.get("checkpoint")), cost=localizer.cost)


State = Literal["done", "to do", "cannot run"]


@dataclass(frozen=True)
class StageLine:
    """A stage of a plan.

    Attributes:
        title: Title of the stage.
        kind: Kind of the stage.
        state: Whether it is finished, can run, or cannot run.
        cost: Cost of the stage.
        reason: Why it cannot run.
    """

    title: str
    kind: str
    state: State
    cost: Cost
    reason: str = ""


@dataclass(frozen=True)
class DataLine:
    """A data set of a plan.

    Attributes:
        name: Name of the set.
        parts: Names of the parts that the plan uses.
        problem: The first problem with its parts; empty if all parts exist.
        num_images: Number of images by part, for parts that exist.
        num_published: Published number of images by part, if known.
        source: Where to get it; empty if it is built from scenes.
    """

    name: str
    parts: tuple[str, ...]
    problem: str
    num_images: tuple[int | None, ...]
    num_published: tuple[int | None, ...]
    source: str

    def state(self) -> str:
        """Return whether the set exists, and how much of it."""
        if self.problem:
            return f"missing: {self.problem} Get it: {self.source}"
        few = [
            f"{found:,} of {published:,} images of {part}"
            for part, found, published in zip(self.parts, self.num_images, self.num_published, strict=True)
            if found is not None and published is not None and found < published
        ]
        return f"there, but {', '.join(few)}" if few else "there"


@dataclass(frozen=True)
class PlanReport:
    """The cost of a table or figure.

    Attributes:
        name: Name of the table or figure.
        stages: All stages in the order in which they run.
        data: The data sets.
        rates: Rates that the hours are computed with.
        machine: Machine that elapsed hours are computed for; None if the rates do not suffice for that.
        mark: Mark of the scale, printed on every line.
        protocol: How linear evaluations are done.
    """

    name: str
    stages: tuple[StageLine, ...]
    data: tuple[DataLine, ...]
    rates: Rates
    machine: Machine | None
    mark: str = ""
    protocol: Protocol = "paper"

    def text(self) -> str:
        """Return the plan for the terminal, with the mark on every line."""
        title = f"{self.name}, {self.protocol} protocol: {len(self.stages)} stages"
        lines = [title, *map(self._stage_line, self.stages), "data sets:"]
        lines += [f"  {line.name} ({', '.join(line.parts)}): {line.state()}" for line in self.data]
        reasons = Counter(line.reason for line in self.stages if line.reason)
        lines += [f"{number} stages cannot run: {reason}" for reason, number in reasons.items()]
        lines += self._sums()
        start = f"{self.mark} | " if self.mark else ""
        return "\n".join(start + line for line in lines)

    def totals(self) -> Cost:
        """Return the total cost of the unfinished stages, including those that cannot run yet."""
        waiting = [line.cost for line in self.stages if line.state != "done"]
        return Cost(
            sum(cost.gpu_hours for cost in waiting),
            sum(cost.cpu_hours for cost in waiting),
            sum(cost.disk_bytes for cost in waiting),
            sum(cost.hours for cost in waiting),
            is_known=all(cost.is_known for cost in waiting),
        )

    def as_data(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {**asdict(self), "totals": asdict(self.totals()), "rates": self.rates.model_dump(mode="json")}

    def _stage_line(self, line: StageLine) -> str:
        hours = f"  {line.cost.gpu_hours:.1f} GPU h" if line.cost.gpu_hours >= 0.05 else ""
        if self.machine is not None and line.cost.bottleneck is not None:
            hours += f"  {format_hours(3600 * line.cost.hours)}, waits for {line.cost.bottleneck}"
        return f"  {line.state:10}  {line.title}{hours}"

    def _sums(self) -> list[str]:
        totals, machine = self.totals(), self.machine
        counts = Counter(line.state for line in self.stages)
        unknown = "" if totals.is_known else ", without stages on images that are not here to be counted"
        lines = [
            ", ".join(f"{counts[state]} {state}" for state in get_args(State)),
            f"not done: about {totals.gpu_hours:.0f} GPU hours {self.rates.source}{unknown}",
            f"not done: about {totals.cpu_hours:.1f} core hours, {totals.disk_bytes / 1e9:.1f} GB of masks",
        ]
        if machine is not None:
            on = f"{machine.num_gpus} GPUs and {machine.num_cores} cores"
            lines.append(f"not done: about {format_hours(3600 * totals.hours)} on {on}, one stage after the other")
        return lines


def plan_report(
    scale: Scale,
    name: str,
    planned: Sequence[Node],
    rates: Rates,
    *,
    machine: Machine | None = None,
    done: Collection[Node],
    shown: Sequence[Images] = (),
    protocol: Protocol = "paper",
) -> PlanReport:
    """Return the report on the cost of a plan.

    Args:
        scale: Scale at which the stages would run.
        name: Name of the table or figure.
        planned: All nodes of the plan, each after those that it needs.
        rates: Rates to compute hours with.
        machine: Machine to compute elapsed hours for; None leaves them out.
        done: Nodes that are `finished`.
        shown: Images that a figure shows without a stage.
        protocol: How linear evaluations are done.
    """
    missing = obstacles(scale, planned)
    lines = []
    for node in planned:
        if not isinstance(node, Planned):
            continue
        state: State = "cannot run" if node in missing else "done" if node in done else "to do"
        cost = Cost() if state == "done" else cost_of(scale, node, rates, machine or Machine.of(rates))
        lines.append(StageLine(nodes.title(node), node.kind, state, cost, missing.get(node, "")))
    wanted: dict[str, list[Images]] = {}
    for images in dict.fromkeys([*(images for node in planned for images in images_of(node)), *shown]):
        wanted.setdefault(images.name, []).append(images)
    data = tuple(_data_line(scale, name, parts) for name, parts in wanted.items())
    return PlanReport(name, tuple(lines), data, rates, machine, scale.mark, protocol)


def finished(
    context: Context, scale: Scale, planned: Sequence[Node], missing: dict[Node, str]
) -> dict[Node, StageResult]:
    """Find the finished stages of a plan. A stage above an unfinished one cannot be finished.

    Args:
        context: A context with `only_finished` set, so that nothing is computed.
        scale: Scale at which the stages would run.
        planned: The nodes, each after those that it needs.
        missing: Nodes that cannot run, with the reason.
    """
    # Imported here: a plan without finished stages would otherwise wait for Ray and MLflow.
    from objectaware.stages.runner import NotFinishedError
    from objectaware.studies.engine import run_step
    from objectaware.studies.reproduce.study import steps_of

    assert context.mode.only_finished
    found: dict[Any, StageResult] = {}
    for step in steps_of(scale, [node for node in planned if node not in missing]):
        if all(name in found for name in step.inputs):
            with suppress(NotFinishedError):
                found[step.name] = run_step(context, step, found)
    return found


def _data_line(scale: Scale, name: str, wanted: Sequence[Images]) -> DataLine:
    problems = [problem for one in wanted if (problem := scale.images_problem(one)) is not None]
    return DataLine(
        name,
        parts=tuple(one.part if one.subset is None else f"{one.part}, {one.subset}" for one in wanted),
        problem=problems[0] if problems else "",
        num_images=tuple(map(scale.num_images, wanted)),
        num_published=tuple(None if scale.mark else published_number(one) for one in wanted),
        source="" if scale.mark else published_set(name).source,
    )
