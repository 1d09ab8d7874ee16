"""Stage `class_distance`: the distance between two classes that occur together, as a number and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.nn.functional import normalize

from objectaware.evaluate.features import class_distance as distance
from objectaware.evaluate.features import plane
from objectaware.model import Count, Positive, PositiveNumber
from objectaware.report.figures import scatter
from objectaware.stages.features import (
    ContextualConfig,
    LabelledFeatures,
    compute_device,
    feature_computation,
    run_on_features,
)
from objectaware.stages.registry import stage
from objectaware.stages.runner import Computation, Context, StageRun


class ClassDistanceConfig(ContextualConfig):
    """Distance between the embeddings of two classes (paper, table and figure multi-bias).

    Attributes:
        num_points: Maximum points per class in the t-SNE picture. A larger class is reduced by a seeded draw.
        perplexity: Perplexity of t-SNE. The default is van der Maaten and Hinton's usual value, and scikit-learn's.
        seed: Seed of the draw and of t-SNE.
    """

    num_points: Positive = 500
    perplexity: PositiveNumber = 30.0
    seed: Count = 0


@stage("class_distance", version=2, outputs=("embedding.png",), long_values=("tsne",))
def class_distance(context: Context, config: ClassDistanceConfig) -> Computation[ClassDistanceConfig]:
    """Measure the distance between the embeddings of two classes and draw them in the plane.

    Returns:
        Values `distance` (average minimum ℓ2 distance of the pooled features as they are), `distance_normalised` (the
        same for features of unit length), `tsne` (`[x, y, class]` of up to `num_points` images of each class),
        `num_images` (by class), `coverage` (of `data`: which images the distance covers and which are left out, see
        `objectaware.evaluate.coverage.Coverage`) and `unreadable`. The picture is `embedding.png`, in MLflow and in
        the stage's folder.

    Raises:
        InputError: The data set lacks one of the two classes, or the perplexity is too large for the number of points.

    Source:
        Paper, appendix "Analysis on the contextual bias", table and figure multi-bias. docs/evaluation.md lists what
        the paper leaves open and how this stage fills the gaps.
    """

    def measure(run: StageRun, config: ClassDistanceConfig, sets: Mapping[str, LabelledFeatures]) -> Mapping[str, Any]:
        found = sets["data"]
        values = run_on_features(measure_class_distance, config, found)
        points = values["tsne"]
        picture = scatter({name: [(x, y) for x, y, of in points if of == name] for name in config.class_names})
        run.folder.write_bytes("embedding.png", picture)
        run.tracker.log_png("embedding.png", picture)
        run.tracker.log_table("embedding", [{"x": x, "y": y, "class": name} for x, y, name in points])
        measured = {name: values[name] for name in ("distance", "distance_normalised")}
        run.tracker.log_metrics(measured, model=config.checkpoint)
        coverage = {"data": found.coverage("data", config.class_names).values()}
        return {**values, "num_images": found.counts(), "coverage": coverage}

    title = f"distance of {' and '.join(config.class_names)}"
    return feature_computation(context, config, measure, title=title)


def measure_class_distance(config: ClassDistanceConfig, found: LabelledFeatures) -> dict[str, Any]:
    """Return the distances, and the points of the picture."""
    features, labels = found.load_each_class(compute_device(config), config.data.root)
    classes = [features[labels == number] for number in range(len(config.class_names))]
    generator = np.random.default_rng(config.seed)
    drawn = [generator.permutation(len(members))[: config.num_points] for members in classes]
    shown = np.concatenate([members.cpu().numpy()[rows] for members, rows in zip(classes, drawn, strict=True)])
    names = [name for name, rows in zip(config.class_names, drawn, strict=True) for _ in rows]
    places = plane(shown, perplexity=config.perplexity, seed=config.seed)
    return {
        "distance": distance(*classes),
        "distance_normalised": distance(*(normalize(members, dim=1) for members in classes)),
        "tsne": [[float(x), float(y), name] for (x, y), name in zip(places, names, strict=True)],
    }
