"""The paper's first figure: scene bias in crops, over the epochs, and in predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from objectaware.augment.crop import NUM_CROP_DRAWS, sample_crops
from objectaware.augment.randomness import counter_uniforms
from objectaware.data.folder import ImageFolder
from objectaware.data.images import read_image
from objectaware.evaluate.features import compute_features
from objectaware.methods.checkpoint import load_classifier, load_encoder, local_checkpoint
from objectaware.paper.figures import CROPS, EPOCHS
from objectaware.paper.nodes import Linear
from objectaware.paper.plan import BIASED_CLASSES
from objectaware.report.figures import Tile, curves
from objectaware.stages.linear import LinearConfig
from objectaware.studies.reproduce.materials import NUM_ROWS, Materials, Pictures
from objectaware.studies.reproduce.workshop import images_with

_SEED = 0


def intro(materials: Materials) -> Pictures:
    """Draw random crops of one picture, the accuracy over the epochs, and predictions that depend on the background."""
    return {
        "crops.png": _crops(materials),
        "epochs.png": _accuracies(materials),
        "predictions.png": _predictions(materials),
    }


def _crops(materials: Materials) -> bytes:
    images = materials.plan.images["crops"]
    folder, shown = materials.folder(images), images_with(BIASED_CLASSES[0], materials.workshop, images)[:NUM_ROWS]
    rows = []
    for number, image_id in enumerate(shown):
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
    scale, series = materials.workshop.scale, {}
    for crop in CROPS:
        accuracies = [materials.stage(f"{crop} {epoch}").values["accuracies"]["test"] for epoch in EPOCHS]
        series[crop] = list(map(scale.epoch, EPOCHS)), accuracies
    return curves(series, x_title="epoch", y_title="accuracy in per cent")


def _predictions(materials: Materials) -> bytes:
    """Draw pictures, and objects on other backgrounds, with the predictions of the baseline's classifier."""
    node = materials.plan.stages["classifier"]
    assert isinstance(node, Linear)
    folders = [materials.folder(materials.plan.images[name]) for name in ("original", "mixed_rand")]
    num_images = min(map(len, folders))
    places = sorted(np.random.default_rng(_SEED).permutation(num_images)[:NUM_ROWS].tolist())
    rows = []
    for folder in folders:
        said = _predicted(materials, node, folder, places)
        rows.append([Tile(folder.read(place), f"says {name}") for place, name in zip(places, said, strict=True)])
    return materials.tiles(rows, "above: original, below: another background")


def _predicted(materials: Materials, node: Linear, folder: ImageFolder, places: Sequence[int]) -> list[str]:
    """Return the class that a linear evaluation's classifier predicts for each picture, among those of its training."""
    scale, fields = materials.workshop.scale, materials.workshop.scale.fields(node)
    train = scale.data(node.train).open()
    assert train.labels is not None
    names = [train.class_names[label] for label in np.unique(train.labels)]
    classifier = load_classifier(materials.workshop.address(node, materials.results))
    with local_checkpoint(materials.workshop.address(node.network, materials.results)) as local:
        features = compute_features(
            load_encoder(local).backbone,
            folder,
            places,
            size=fields.get("image_size", LinearConfig.model_fields["image_size"].default),
            center_crop=fields.get("center_crop", LinearConfig.model_fields["center_crop"].default),
            device=torch.device("cpu"),
        )
    scores = features.values @ classifier.weight.T + classifier.bias
    return [names[label] for label in scores.argmax(dim=1).tolist()]
