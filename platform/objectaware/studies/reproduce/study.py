"""A table or figure of the paper: its stages under one study, then its numbers beside the paper's, or its pictures."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
import torch

from objectaware.augment.background import BACKGROUND_THRESHOLD, background_only, mix_background
from objectaware.augment.crop import NUM_CROP_DRAWS, sample_crops
from objectaware.augment.randomness import counter_uniforms
from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder
from objectaware.data.images import read_image, resize_image
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.features import compute_features
from objectaware.evaluate.linear import paired_difference
from objectaware.localize.mask_store import ITERATIONS_NAME, MaskRow, read_rows
from objectaware.methods.checkpoint import load_classifier, load_encoder, local_checkpoint
from objectaware.paper import Cell, Place
from objectaware.paper.figures import CROPS, EPOCHS, FigurePlan
from objectaware.paper.nodes import Images, ImagesOfClass, Node, Planned, Value, ordered, stages_below, title
from objectaware.paper.plan import BIASED_CLASSES, TablePlan
from objectaware.report.figures import Tile, box_histogram, curves, iteration_panel, scatter, tiles_png
from objectaware.report.gallery import rows_panel
from objectaware.report.tables import TableReport
from objectaware.stages.linear import LinearConfig
from objectaware.stages.progress import Progress
from objectaware.stages.runner import Context, StageResult
from objectaware.studies.curves import metric_series
from objectaware.studies.engine import Step, open_study, run
from objectaware.studies.reproduce.scale import Scale, obstacles
from objectaware.tracking import Tracker, TrackingStore

Pictures = dict[str, bytes]
"""PNGs by the names of their files."""

_NUM_ROWS = 4
_NUM_PANEL_ROWS = 6
_SEED = 0
# Number of pictures that are searched for those with the most boxes.
_SEARCHED = 200


class MarkedProgress(Progress):
    """Progress whose every line names the scale.

    Args:
        mark: Text that names the scale.
    """

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = mark

    def line(self, text: str) -> None:
        """Write a line that stays, with the mark unless the text begins with it."""
        super().line(text if text.startswith(self._mark) else f"{self._mark}: {text.lstrip()}")

    def update(self, text: str) -> None:
        """Show the progress of a stage."""
        # In a file it is a line like any other, which `line` marks.
        super().update(f"{self._mark}: {text}" if self._stream.isatty() else text)


def steps_of(scale: Scale, planned: Iterable[Node]) -> list[Step]:
    """Return the steps of a plan, with the nodes as their names.

    Args:
        scale: Scale at which the stages run.
        planned: The nodes, each after those that it needs. Those that are not stages are left out.
    """
    mark = f"{scale.mark}: " if scale.mark else ""
    return [
        Step(node, node.kind, partial(scale.config, node), stages_below(node), mark + title(node))
        for node in planned
        if isinstance(node, Planned)
    ]


def run_table(context: Context, scale: Scale, plan: TablePlan) -> TableReport:
    """Compute a table under one study, and log it there.

    Args:
        context: Context of the stages.
        scale: Scale at which the stages run.
        plan: Plan of the table.

    Returns:
        The table. Cells that could not be computed contain the reason.

    Raises:
        InputError: None of its cells can be computed.
        StagesFailedError: Some stages failed. The table was logged without them.
    """
    cells = {
        place: [
            replace(value, node=scale.adapted(value.node), paths=tuple(map(scale.path, value.paths)))
            for value in values
        ]
        for place, values in plan.cells.items()
    }
    nodes = ordered(value.node for values in cells.values() for value in values)
    missing = obstacles(scale, nodes)
    if all(values[0].node in missing for values in cells.values()):
        raise _missing("table", plan.table.label, plan.table.label, "computed", missing.values())
    with _open_study(context, scale, plan, plan.table.label, plan.table.datasets, plan.seeds) as (context, parent):
        outcome = run(context, steps_of(scale, [node for node in nodes if node not in missing]), keep_going=True)
        reasons_by_node = {**missing, **outcome.failures}
        numbers = {place: _numbers(values, outcome.results, reasons_by_node) for place, values in cells.items()}
        deviations = {node: reason for node in nodes if (reason := scale.deviation(node)) is not None}
        incomparable = {place: _incomparable(values, outcome.results, deviations) for place, values in cells.items()}
        report = _report(plan, scale, numbers, incomparable)
        parent.log_table(_marked(plan.table.label, plan, scale), report.rows())
        means = {(*row, *column): one.mean for (row, column), one in report.measured.items() if isinstance(one, Cell)}
        parent.log_metrics({".".join((plan.table.label, *names)): mean for names, mean in means.items()})
        parent.log_report(report.markdown())
        outcome.raise_failures(report)
    return report


def _missing(kind: str, label: str, argument: str, done: str, reasons: Iterable[str]) -> InputError:
    problem = f"cannot be {done} with the data and networks at hand ({'; '.join(dict.fromkeys(reasons))})"
    return InputError(kind, label, problem, f"`objectaware reproduce {argument} --plan` lists what it needs.")


def _marked(label: str, plan: TablePlan | FigurePlan, scale: Scale) -> str:
    """Return the name of a table or figure in MLflow, with its protocol and scale unless they are the paper's."""
    protocol = "" if plan.protocol == "paper" else f", {plan.protocol} protocol"
    return f"{label}{protocol} ({scale.mark})" if scale.mark else f"{label}{protocol}"


def _open_study(
    context: Context,
    scale: Scale,
    plan: TablePlan | FigurePlan,
    label: str,
    datasets: Sequence[str],
    seeds: Sequence[int],
) -> AbstractContextManager[tuple[Context, Tracker]]:
    """Open the study of a table or figure. Under the context that it yields, every line of progress names the scale."""
    mark = scale.mark
    described = {"label": label, "protocol": plan.protocol, "seeds": list(seeds), "scale": mark or "full"}
    if mark:
        context = replace(context, services=replace(context.services, progress=MarkedProgress(mark)))
    name = _marked(label, plan, scale)
    return open_study(context, "paper", name=name, dataset=mark or ", ".join(datasets), config=described)


def _numbers(
    values: Sequence[Value], results: Mapping[Node, StageResult], reasons: Mapping[Node, str]
) -> list[float] | str:
    """Return the number of each seed, or the reason why one is missing."""
    reason = next((reasons[value.node] for value in values if value.node in reasons), None)
    if reason is not None:
        return reason
    return [value.read(results[value.node].values) for value in values]


def _report(
    plan: TablePlan,
    scale: Scale,
    numbers: Mapping[Place, list[float] | str],
    incomparable: Mapping[Place, Sequence[str]],
) -> TableReport:
    """Return the table of numbers by row, column and seed, with gains if there are several seeds."""
    measured = {place: one if isinstance(one, str) else Cell.over_seeds(one) for place, one in numbers.items()}
    compared = plan.table.compared(plan.table.baseline or plan.table.reference) if len(plan.seeds) > 1 else {}
    gains = {
        place: paired_difference(after, before)
        for place, start in compared.items()
        if not isinstance(after := numbers[place], str) and not isinstance(before := numbers[start], str)
    }
    return TableReport(plan.table, measured, plan.seeds, scale.mark, plan.protocol, gains, incomparable)


def _incomparable(
    values: Sequence[Value], results: Mapping[Node, StageResult], deviations: Mapping[Node, str]
) -> tuple[str, ...]:
    """Return the reasons why the number of a cell cannot be compared with the paper's, each once.

    Args:
        values: The number of each seed.
        results: Results of the stages.
        deviations: Reasons by node, for the nodes that have one.
    """
    reasons = [deviations[node] for node in ordered(value.node for value in values) if node in deviations]
    for value in values:
        coverage = results[value.node].values.get("coverage", {}) if value.node in results else {}
        for kind, *parts in value.paths:
            covered = coverage.get(parts[0], {}) if kind == "accuracies" else {}
            if covered.get("num_classes") == 1 and covered["untested_classes"]:
                reasons.append("the pictures show a single class, and its recall is not an accuracy")
    return tuple(dict.fromkeys(reasons))


def run_figure(context: Context, scale: Scale, plan: FigurePlan) -> list[str]:
    """Run a figure's stages under one study, draw it, and log its pictures there.

    Args:
        context: Context of the stages.
        scale: Scale at which the stages run.
        plan: Plan of the figure.

    Returns:
        Addresses of its PNGs, in the storage's folder `figures`.

    Raises:
        InputError: A required input is missing.
        StagesFailedError: Some stages failed.
    """
    label = plan.figure.label
    plan = replace(plan, stages={name: scale.adapted(node) for name, node in plan.stages.items()})
    shown = (scale.images_problem(images) for images in plan.images.values())
    missing = [*obstacles(scale, plan.nodes()).values(), *(problem for problem in shown if problem is not None)]
    if missing:
        raise _missing("figure", label, f"figure:{label}", "drawn", missing)
    name = "-".join([label, *(["official"] if plan.protocol == "official" else []), *(["smoke"] if scale.mark else [])])
    with _open_study(context, scale, plan, f"figure:{label}", plan.figure.datasets, (0,)) as (context, parent):
        outcome = run(context, steps_of(scale, plan.nodes()), keep_going=True)
        outcome.raise_failures()
        pictures = DRAWINGS[label](Materials(scale, plan, outcome.results, context.services.tracking))
        folder = context.services.storage.child("figures").child(name)
        for file, png in pictures.items():
            folder.write_bytes(file, png)
            parent.log_png(f"{name}/{file}", png)
    return [f"{folder.uri}/{file}" for file in pictures]


@dataclass
class Materials:
    """The materials from which a figure is drawn.

    Attributes:
        scale: Scale at which the figure was run.
        plan: The figure's plan, at the scale in use.
        results: Results of its stages.
        tracking: MLflow store with the stages' metrics.
    """

    scale: Scale
    plan: FigurePlan
    results: Mapping[Node, StageResult]
    tracking: TrackingStore

    def stage(self, name: str) -> StageResult:
        """Return the result of a stage by its name in the plan."""
        return self.results[self.plan.stages[name]]

    def masks(self, name: str) -> dict[str, MaskRow]:
        """Return the masks of a localization by image, in the order of its groups, which is random."""
        rows = read_rows(Storage.from_uri(self.scale.address(self.plan.stages[name], self.results)))
        return {row.image_id: row for row in rows if row.status == "ok"}

    def folder(self, images: Images) -> ImageFolder:
        """Open a part of a data set."""
        opened = self.scale.data(images).open()
        assert isinstance(opened, ImageFolder), "pictures that are shown are files"
        return opened

    def localized(self, name: str) -> ImageFolder:
        """Return the images of a localization."""
        return self.folder(self.plan.stages[name].fields["data"])

    def tiles(self, rows: Sequence[Sequence[Tile]], title: str = "") -> bytes:
        """Return rows of pictures as PNG, with the scale's mark above them."""
        return tiles_png(rows, title=", ".join(filter(None, (title, self.scale.mark))))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the plan's localizations, in order."""
        return tuple(name for name, node in self.plan.stages.items() if node.kind == "localize")


def intro(materials: Materials) -> Pictures:
    """Draw random crops of one picture, the accuracy over the epochs, and predictions that depend on the background."""
    return {
        "crops.png": _crops(materials),
        "epochs.png": _accuracies(materials),
        "predictions.png": _predictions(materials),
    }


def _crops(materials: Materials) -> bytes:
    images = materials.plan.images["crops"]
    folder = materials.folder(images)
    shown = materials.scale.images_of_class(ImagesOfClass(BIASED_CLASSES[0], images))
    rows = []
    for number, image_id in enumerate(shown[:_NUM_ROWS]):
        photo = read_image(folder.root / image_id)
        height, width = photo.shape[:2]
        uniforms = counter_uniforms(_SEED, 0, np.array([2 * number, 2 * number + 1]), NUM_CROP_DRAWS)
        crops = sample_crops(uniforms, np.array([height] * 2), np.array([width] * 2), min_scale=0.08)
        corners = [[left, top, left + w, top + h] for top, left, h, w in crops.tolist()]
        boxes = np.array(corners) / [width, height, width, height]
        cut = [photo[top : top + h, left : left + w] for top, left, h, w in crops.tolist()]
        rows.append([Tile(photo, image_id, boxes=boxes), *(Tile(one, "random crop") for one in cut)])
    return materials.tiles(rows, "positives of contrastive learning")


def _accuracies(materials: Materials) -> bytes:
    """Draw the accuracy of linear evaluation over the epochs."""
    series = {}
    epochs = list(map(materials.scale.epoch, EPOCHS))
    for crop in CROPS:
        accuracies = [materials.stage(f"{crop} {epoch}").values["accuracies"]["test"] for epoch in EPOCHS]
        series[crop] = epochs, accuracies
    return curves(series, x_title="epoch", y_title="accuracy in per cent")


def _predictions(materials: Materials) -> bytes:
    """Draw pictures, and objects on other backgrounds, with the classes that the baseline's classifier predicts."""
    node = materials.plan.stages["classifier"]
    config = materials.scale.config(node, materials.results)
    assert isinstance(config, LinearConfig)
    train = config.train.open()
    assert train.labels is not None
    # The classifier's rows are the classes of its training.
    names = [train.class_names[label] for label in np.unique(train.labels)]
    classifier = load_classifier(materials.scale.address(node, materials.results))
    with local_checkpoint(config.checkpoint) as local:
        backbone = load_encoder(local).backbone
    seen = partial(compute_features, size=config.image_size, center_crop=config.center_crop, device=torch.device("cpu"))
    folders = [materials.folder(materials.plan.images[name]) for name in ("original", "mixed_rand")]
    places = sorted(np.random.default_rng(_SEED).permutation(min(map(len, folders)))[:_NUM_ROWS].tolist())
    rows = []
    for folder in folders:
        features = seen(backbone, folder, places)
        scores = features.values @ classifier.weight.T + classifier.bias
        labels = zip(places, scores.argmax(dim=1).tolist(), strict=True)
        rows.append([Tile(folder.read(place), f"says {names[label]}") for place, label in labels])
    return materials.tiles(rows, "above: original, below: another background")


def maps(materials: Materials, only: Sequence[str] | None = None) -> Pictures:
    """Draw one row per photo, with the soft map of each localization beside it."""
    found = {name: materials.masks(name) for name in materials.columns}
    root = materials.localized(materials.columns[0]).root
    first = list(found[materials.columns[0]])
    chosen = [image_id for image_id in first if only is None or image_id in only][:_NUM_ROWS]
    rows = []
    for image_id in chosen:
        photo = read_image(root / image_id)
        heats = [Tile(photo, name, found[name][image_id].cam) for name in materials.columns]
        rows.append([Tile(photo, "Original"), *heats])
    return {"figure.png": materials.tiles(rows)}


def giraffe_batch(materials: Materials) -> Pictures:
    """Draw maps of pictures that show the class of the negatives."""
    negatives = materials.plan.stages["Giraffe-only batch"].fields["localizer"]["negatives"]
    return maps(materials, materials.scale.images_of_class(negatives))


def examples(materials: Materials) -> Pictures:
    """Draw one panel per data set: photo, soft mask, mask and boxes."""
    pictures = {}
    for name in materials.columns:
        root, rows = materials.localized(name).root, list(materials.masks(name).values())[:_NUM_PANEL_ROWS]
        pictures[f"{name}.png"] = rows_panel(rows, [read_image(root / row.image_id) for row in rows])
    return pictures


def iterations(materials: Materials) -> Pictures:
    """Draw the growth of the mask from iteration to iteration."""
    stage, root = materials.stage("ContraCAM"), materials.localized("ContraCAM").root
    with np.load(io.BytesIO(stage.folder.read_bytes(ITERATIONS_NAME))) as kept:
        image_ids, cams = kept["image_ids"].tolist()[:_NUM_ROWS], kept["cams"][:, :_NUM_ROWS]
    return {"figure.png": iteration_panel([read_image(root / name) for name in image_ids], cams, image_ids)}


def background_mixup(materials: Materials) -> Pictures:
    """Draw background mixup step by step: picture, soft mask, the other picture's background tiled, and the mixture."""
    root, found = materials.localized("masks").root, list(materials.masks("masks").values())
    rows: list[list[Tile]] = []
    for row, donor in pairwise(found):
        assert row.cam is not None
        assert donor.cam is not None
        photo, other = read_image(root / row.image_id), read_image(root / donor.image_id)
        background = background_only(other, donor.cam)
        if background is None:
            continue
        soft = resize_image(np.repeat(np.rint(row.cam * 255).astype(np.uint8)[..., None], 3, axis=2), photo.shape[:2])
        behind = resize_image(background, (photo.shape[0], photo.shape[1]))
        foreground = np.where(donor.cam >= BACKGROUND_THRESHOLD, 255, 0).astype(np.uint8)
        steps = {
            "image 1": photo,
            "its CAM": soft,
            "image 2": other,
            "its foreground": foreground,
            "its background, tiled": behind,
            "mixed": mix_background(photo, soft[..., 0], behind),
        }
        rows.append([Tile(picture, caption) for caption, picture in steps.items()])
        if len(rows) == _NUM_ROWS:
            break
    if not rows:
        remedy = "Localize with a network that was trained longer."
        raise InputError("masks", materials.stage("masks").folder.uri, "leave no background in any picture", remedy)
    return {"figure.png": materials.tiles(rows)}


def variants(materials: Materials) -> Pictures:
    """Draw one column per variant, with the same picture in each row if the variants share its name."""
    folders = {name: materials.folder(images) for name, images in materials.plan.images.items()}
    original = folders["original"]
    chosen = np.random.default_rng(_SEED).permutation(len(original))[:_NUM_ROWS]
    rows = []
    for place in sorted(chosen.tolist()):
        row = []
        for name, images in folders.items():
            same = original.image_ids[place]
            index = images.image_ids.index(same) if same in images.image_ids else min(place, len(images) - 1)
            row.append(Tile(images.read(index), name))
        rows.append(row)
    return {"figure.png": materials.tiles(rows)}


def dogs(materials: Materials) -> Pictures:
    """Draw a picture of a dog from each of the shifted sets."""
    wanted = materials.scale.class_name("dog")
    row = []
    for name, images in materials.plan.images.items():
        folder = materials.folder(images)
        assert folder.labels is not None, name
        label = next(index for index, known in enumerate(folder.class_names) if known.lower().endswith(wanted))
        row.append(Tile(folder.read(int(np.flatnonzero(folder.labels == label)[0])), name))
    return {"figure.png": materials.tiles([row])}


def box_counts(materials: Materials) -> Pictures:
    """Draw the histogram of the number of boxes per picture."""
    counts = materials.stage("boxes").values["boxes_per_image"]
    found, truth = ({int(count): number for count, number in counts[key].items()} for key in ("found", "truth"))
    return {"figure.png": box_histogram(found, truth)}


def box_pictures(materials: Materials) -> Pictures:
    """Draw ContraCAM's boxes beside the true ones, on the pictures with the most true boxes, where they differ most."""
    images = materials.localized("boxes")
    data = materials.scale.data(materials.plan.stages["boxes"].fields["data"])
    truth = Dataset.of(data).truth_of(images.image_ids)
    place = {image_id: index for index, image_id in enumerate(images.image_ids)}
    found = list(materials.masks("boxes").values())[:_SEARCHED]
    found.sort(key=lambda row: -len(truth.boxes(place[row.image_id])))
    rows = []
    for row in found[:_NUM_ROWS]:
        photo, true_boxes = read_image(images.root / row.image_id), truth.boxes(place[row.image_id])
        rows.append([Tile(photo, "CAM boxes", boxes=row.boxes), Tile(photo, "GT boxes", boxes=true_boxes)])
    return {"figure.png": materials.tiles(rows)}


def losses(materials: Materials) -> Pictures:
    """Draw the loss of each training over its epochs, as recorded in MLflow."""
    series = {
        name: metric_series(materials.tracking, materials.stage(name).identity, "loss", shown=("figure", name))
        for name in materials.plan.stages
    }
    return {"figure.png": curves(series, x_title="epoch", y_title="loss")}


def embeddings(materials: Materials) -> Pictures:
    """Draw t-SNE of two classes, one picture per network."""
    pictures = {}
    for name in materials.plan.stages:
        points: dict[str, list[tuple[float, float]]] = {}
        for x, y, of in materials.stage(name).values["tsne"]:
            points.setdefault(of, []).append((x, y))
        pictures[f"{name}.png"] = scatter(points)
    return pictures


DRAWINGS: dict[str, Callable[[Materials], Pictures]] = {
    "intro": intro,
    "method-iconcam": iterations,
    "method-bg": background_mixup,
    "loc-cam": examples,
    "bg-challenge": variants,
    "dist-shifts": dogs,
    "loc-neg": maps,
    "batch-giraffe": giraffe_batch,
    "loc-clfcon": maps,
    "loc-saliency": maps,
    "hard-loss": losses,
    "hard-hist": box_counts,
    "hard-box": box_pictures,
    "multi-bias": embeddings,
}
"""The function that draws each figure, by label."""
