"""Functions that draw the paper's figures from finished stages and from pictures."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from objectaware.augment.background import BACKGROUND_THRESHOLD, background_only, mix_background
from objectaware.data.dataset import Dataset
from objectaware.data.images import read_image, resize_image
from objectaware.errors import InputError
from objectaware.localize.mask_store import ITERATIONS_NAME
from objectaware.paper.nodes import Localize
from objectaware.report.figures import Tile, box_histogram, curves, iteration_panel, scatter
from objectaware.report.gallery import localization_panel
from objectaware.studies.reproduce.intro import intro
from objectaware.studies.reproduce.materials import NUM_ROWS, Materials, Pictures
from objectaware.studies.reproduce.workshop import images_with
from objectaware.tracking.server import metric_history

_NUM_PANEL_ROWS = 6
_SEED = 0
# Number of pictures that are searched for those with the most boxes.
_SEARCHED = 200


def maps(materials: Materials, only: Sequence[str] | None = None) -> Pictures:
    """Draw one row per photo, with the soft map of each localization beside it."""
    found = {name: materials.masks(name) for name in materials.columns}
    root = materials.localized(materials.columns[0]).root
    first = list(found[materials.columns[0]])
    chosen = [image_id for image_id in first if only is None or image_id in only][:NUM_ROWS]
    rows = []
    for image_id in chosen:
        photo = read_image(root / image_id)
        heats = [Tile(photo, name, found[name][image_id].cam) for name in materials.columns]
        rows.append([Tile(photo, "Original"), *heats])
    return {"figure.png": materials.tiles(rows)}


def giraffe_batch(materials: Materials) -> Pictures:
    """Draw maps of pictures that show the class of the negatives."""
    node = materials.plan.stages["Giraffe-only batch"]
    assert isinstance(node, Localize)
    assert node.negatives is not None
    return maps(materials, images_with(node.negatives, materials.workshop, node.images))


def examples(materials: Materials) -> Pictures:
    """Draw one panel per data set: photo, soft mask, mask and boxes."""
    pictures = {}
    for name in materials.columns:
        root, rows = materials.localized(name).root, list(materials.masks(name).values())[:_NUM_PANEL_ROWS]
        pictures[f"{name}.png"] = localization_panel(
            [read_image(root / row.image_id) for row in rows],
            [[row.cam] for row in rows if row.cam is not None],
            [row.mask for row in rows if row.mask is not None],
            [row.boxes for row in rows],
            [row.image_id for row in rows],
        )
    return pictures


def iterations(materials: Materials) -> Pictures:
    """Draw the growth of the mask from iteration to iteration."""
    stage, root = materials.stage("ContraCAM"), materials.localized("ContraCAM").root
    with np.load(io.BytesIO(stage.folder.read_bytes(ITERATIONS_NAME))) as kept:
        image_ids, cams = kept["image_ids"].tolist()[:NUM_ROWS], kept["cams"][:, :NUM_ROWS]
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
        rows.append(
            [
                Tile(photo, "image 1"),
                Tile(soft, "its CAM"),
                Tile(other, "image 2"),
                Tile(foreground, "its foreground"),
                Tile(behind, "its background, tiled"),
                Tile(mix_background(photo, soft[..., 0], behind), "mixed"),
            ]
        )
        if len(rows) == NUM_ROWS:
            break
    if not rows:
        remedy = "Localize with a network that was trained longer."
        raise InputError("masks", materials.stage("masks").folder.uri, "leave no picture any background", remedy)
    return {"figure.png": materials.tiles(rows)}


def variants(materials: Materials) -> Pictures:
    """Draw one column per variant, with the same picture in each row if the variants share its name."""
    folders = {name: materials.folder(images) for name, images in materials.plan.images.items()}
    original = folders["original"]
    chosen = np.random.default_rng(_SEED).permutation(len(original))[:NUM_ROWS]
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
    wanted = materials.workshop.scale.class_name("dog")
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
    node = materials.plan.stages["boxes"]
    assert isinstance(node, Localize)
    images = materials.localized("boxes")
    truth = Dataset(materials.workshop.scale.data(node.images)).truth_of(images.image_ids)
    place = {image_id: index for index, image_id in enumerate(images.image_ids)}
    found = list(materials.masks("boxes").values())[:_SEARCHED]
    found.sort(key=lambda row: -len(truth.boxes(place[row.image_id])))
    rows = []
    for row in found[:NUM_ROWS]:
        photo = read_image(images.root / row.image_id)
        rows.append(
            [
                Tile(photo, "CAM boxes", boxes=row.boxes),
                Tile(photo, "GT boxes", boxes=truth.boxes(place[row.image_id])),
            ]
        )
    return {"figure.png": materials.tiles(rows)}


def losses(materials: Materials) -> Pictures:
    """Draw the loss of each training over its epochs, as recorded in MLflow."""
    series = {}
    for name in materials.plan.stages:
        history = metric_history(materials.tracking, materials.stage(name).identity, "loss")
        if not history:
            problem = f"has no losses in the experiment {materials.tracking.experiment}"
            raise InputError("figure", name, problem, "Give the --experiment that it was trained with.")
        series[name] = [step + 1 for step, _ in history], [value for _, value in history]
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
