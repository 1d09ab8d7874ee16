"""Pooled features of images: computed, checked, kept in storage, and measured without a trained classifier."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from objectaware.data.images import Images, UnreadableImage, none_readable, normalise, resize_image
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.methods.backbones import Backbone

Array = Tensor | NDArray[Any]
"""A tensor on any device, or a NumPy array."""

PART_SIZE = 2048
"""Images per part: 16 MiB of a ResNet-50's features, and a multiple of the batch size that computes them."""

# Pairs whose similarities or distances are held at a time: 64 MiB in float32, 128 MiB in float64.
MAX_PAIRS = 2**24
_RECORD = re.compile(r"part-(\d{5})\.json")


def check_features(field: str, features: Tensor) -> None:
    """Check that features are a finite floating-point matrix (N, D) with at least one row.

    Args:
        field: Name of the argument, for the message.
        features: The features to check.

    Raises:
        InputError: The check fails.
    """
    if features.ndim != 2 or len(features) == 0 or not features.is_floating_point():
        given = f"{features.dtype} of shape {tuple(features.shape)}"
        problem = "must be a floating-point matrix with one row per image, and at least one row"
        raise InputError(field, given, problem, "Give features of shape (N, D).")
    num_bad = int((~torch.isfinite(features).all(dim=1)).sum())
    if num_bad:
        remedy = "Check the checkpoint: a run that diverged gives such features."
        raise InputError(field, f"{num_bad} of {len(features)} rows", "hold NaN or infinity", remedy)


def check_labels(field: str, labels: Tensor, features: Tensor) -> None:
    """Check that labels are integers (N,), one for each row of `features`.

    Args:
        field: Name of the argument, for the message.
        labels: The labels to check.
        features: (N, D).

    Raises:
        InputError: The check fails.
    """
    if labels.shape != features.shape[:1] or labels.is_floating_point() or labels.is_complex():
        given = f"{labels.dtype} of shape {tuple(labels.shape)}"
        problem = f"must be integers, one for each of {len(features)} rows of features"
        raise InputError(field, given, problem, "Give the class number of each image.")


def as_checked(features: Array, labels: Array, prefix: str = "") -> tuple[Tensor, Tensor]:
    """Return features (N, D) and labels (N,) as tensors, checked.

    Args:
        features: Passed to `check_features` as `{prefix}features`.
        labels: Passed to `check_labels` as `{prefix}labels`.
        prefix: First part of both fields' names.

    Raises:
        InputError: Features are not a finite matrix, or labels do not fit them.
    """
    rows, classes = torch.as_tensor(features), torch.as_tensor(labels)
    check_features(f"{prefix}features", rows)
    check_labels(f"{prefix}labels", classes, rows)
    return rows, classes


def evaluation_view(image: NDArray[np.uint8], size: int, *, center_crop: bool) -> NDArray[np.uint8]:
    """Crop or resize an image to the network's input size.

    Args:
        image: Pixels, shape (H, W, 3).
        size: Side of the result in pixels.
        center_crop: True for the paper's protocol (short side to size · 256 / 224, then the centre); False
            squashes the whole picture, for data whose objects reach the border.

    Returns:
        Pixels, shape (size, size, 3).
    """
    if not center_crop:
        return resize_image(image, (size, size))
    short = round(size * 256 / 224)
    height, width = image.shape[:2]
    scale = short / min(height, width)
    resized = resize_image(image, (max(round(height * scale), size), max(round(width * scale), size)))
    top, left = (resized.shape[0] - size) // 2, (resized.shape[1] - size) // 2
    return resized[top : top + size, left : left + size]


@dataclass
class Features:
    """Features of the images that could be read.

    Attributes:
        values: Features (M, C), float32 on the CPU.
        indices: The images that the rows belong to, (M,) int64.
        unreadable: The reason for each image without features, by index.
    """

    values: Tensor
    indices: Tensor
    unreadable: dict[int, str] = field(default_factory=dict)


@torch.inference_mode()
def compute_features(
    backbone: Backbone,
    images: Images,
    indices: Iterable[int],
    *,
    size: int,
    center_crop: bool,
    device: torch.device,
    batch_size: int = 256,
    num_threads: int = 2,
    allow_empty: bool = False,
) -> Features:
    """Compute pooled features with batch statistics frozen.

    Args:
        backbone: Images (N, 3, H, W) to features (N, C); its mode is restored afterwards.
        images: The data set.
        indices: The images to read.
        size: Side of the network's input in pixels.
        center_crop: See `evaluation_view`.
        device: Where to compute.
        batch_size: Images at a time.
        num_threads: Number of threads that decode.
        allow_empty: Return features (0, 0) if none of the images can be read, as may happen in one part of many.

    Returns:
        Features of the images that can be read.

    Raises:
        InputError: None of the images can be read.
    """

    def read(index: int) -> NDArray[np.uint8] | str:
        try:
            return evaluation_view(images.read(index), size, center_crop=center_crop)
        except UnreadableImage as error:
            return error.reason

    chosen = list(indices)
    was_training = backbone.training
    backbone.eval()
    values, kept, unreadable = [], [], {}
    with ThreadPoolExecutor(num_threads) as pool:
        for start in range(0, len(chosen), batch_size):
            views = []
            for index, view in zip(chosen[start:], pool.map(read, chosen[start : start + batch_size]), strict=False):
                if isinstance(view, str):
                    unreadable[index] = view
                else:
                    views.append(view)
                    kept.append(index)
            if views:
                batch = normalise(np.stack(views), backbone.mean, backbone.std)
                batch = batch.to(device, memory_format=torch.channels_last)
                values.append(backbone(batch).float().cpu())
    backbone.train(was_training)
    if not values and not allow_empty:
        raise none_readable(len(chosen), ((f"number {index}", reason) for index, reason in unreadable.items()))
    rows = torch.cat(values) if values else torch.empty(0, 0)
    return Features(rows, torch.tensor(kept, dtype=torch.int64), unreadable)


def write_part(folder: Storage, number: int, features: Features) -> None:
    """Write one part, and replace it if it exists.

    Args:
        folder: Folder of the set of features.
        number: Number of the part, from 0.
        features: Features of the part's images; possibly of none, if none can be read.
    """
    content = io.BytesIO()
    np.save(content, features.values.numpy())
    folder.write_bytes(_values_name(number), content.getvalue())
    unreadable = {str(index): reason for index, reason in features.unreadable.items()}
    folder.write_json(f"part-{number:05d}.json", {"indices": features.indices.tolist(), "unreadable": unreadable})


def finished_parts(folder: Storage) -> set[int]:
    """Return the numbers of the parts that are written whole."""
    return {int(found[1]) for name in folder.list_names("part-") if (found := _RECORD.fullmatch(name))}


@dataclass(frozen=True)
class FeatureSet:
    """Features of the images that could be read; made by `FeatureSet.open`, and picklable.

    Attributes:
        folder: Where the parts lie.
        indices: The images that each part's rows belong to, (m,) int64 each, m from 0 to `PART_SIZE`.
        unreadable: The reason for each image without features, by index.
    """

    folder: Storage
    indices: tuple[NDArray[np.int64], ...]
    unreadable: dict[int, str]

    @classmethod
    def open(cls, folder: Storage, num_parts: int) -> FeatureSet:
        """Open a set whose parts 0 to `num_parts` - 1 are all whole.

        Raises:
            InputError: No image of it could be read, or a file is damaged.
        """
        records = [folder.read_json(f"part-{number:05d}.json") for number in range(num_parts)]
        indices = tuple(np.array(record["indices"], dtype=np.int64) for record in records)
        unreadable = {int(index): reason for record in records for index, reason in record["unreadable"].items()}
        if not any(map(len, indices)):
            reasons = ((f"number {index}", reason) for index, reason in unreadable.items())
            raise none_readable(len(unreadable), reasons)
        return cls(folder, indices, unreadable)

    @property
    def num_rows(self) -> int:
        """Return the number of images that have features."""
        return sum(map(len, self.indices))

    def parts(self) -> Iterator[tuple[Tensor, NDArray[np.int64]]]:
        """Yield the parts one after the other, in the order of the images.

        Yields:
            Features (m, C) float32 on the CPU, which must not be written to, and the images that they belong to (m,).

        Raises:
            InputError: A file is missing or damaged.
        """
        for number, indices in enumerate(self.indices):
            if len(indices):
                yield self._read(number, len(indices)), indices

    def load(self) -> tuple[Tensor, NDArray[np.int64]]:
        """Read all parts: features (M, C) float32 on the CPU, and the images that they belong to (M,)."""
        values, indices = zip(*self.parts(), strict=True)
        return torch.cat(values), np.concatenate(indices)

    def num_columns(self) -> int:
        """Return C, the number of features per image."""
        return next(self.parts())[0].shape[1]

    def _read(self, number: int, num_rows: int) -> Tensor:
        name = _values_name(number)
        local = self.folder.local_path(name)
        try:
            source = io.BytesIO(self.folder.read_bytes(name)) if local is None else local
            # Copy on write, since a tensor cannot be kept from being written to.
            values = np.load(source, mmap_mode=None if local is None else "c", allow_pickle=False)
            if values.shape[:1] != (num_rows,):
                raise ValueError(f"holds {values.shape} values instead of {num_rows} rows")
        except (OSError, ValueError, EOFError) as error:
            remedy = "Run the command again with --fresh, which computes the features again."
            raise InputError("features", f"{self.folder.uri}/{name}", "is missing or damaged", remedy) from error
        return torch.from_numpy(values)


def _values_name(number: int) -> str:
    return f"part-{number:05d}.npy"


def knn_accuracy(
    train_features: Array,
    train_labels: Array,
    features: Array,
    labels: Array,
    *,
    num_neighbours: int = 20,
    temperature: float = 0.07,
) -> float:
    """Return the accuracy of weighted nearest-neighbour classification, in per cent.

    Each of the k most similar training samples votes for its class with weight exp(cosine similarity / τ), as
    in Wu et al., 2018 (instance discrimination), and in lightly and solo-learn. Of classes with equal votes
    the lowest number wins.

    Args:
        train_features: (N, D) floating point, of any length; tensor or array. Computation is on its device.
        train_labels: (N,) integers from 0.
        features: (M, D) floating point.
        labels: (M,) integers.
        num_neighbours: k, at least 1; all training samples where there are fewer.
        temperature: τ, positive.

    Raises:
        InputError: Features are empty, not finite or of unequal width, or labels do not fit them.
    """
    assert num_neighbours >= 1, num_neighbours
    assert temperature > 0, temperature
    bank, bank_labels = as_checked(train_features, train_labels, "train_")
    queries, truth = as_checked(features, labels)
    if queries.shape[1] != bank.shape[1]:
        problem = f"must have the {bank.shape[1]} columns of the training features"
        raise InputError("features", tuple(queries.shape), problem, "Compute both with the same backbone.")
    bank, bank_labels = normalize(bank, dim=1), bank_labels.to(bank.device, torch.int64)
    queries, truth = normalize(queries.to(bank), dim=1), truth.to(bank.device)
    num_right = 0
    chunk = max(1, MAX_PAIRS // len(bank))
    for begin in range(0, len(queries), chunk):
        part = slice(begin, begin + chunk)
        similarities, indices = (queries[part] @ bank.T).topk(min(num_neighbours, len(bank)), dim=1)
        # Relative to the best neighbour, so that a low temperature does not overflow; the election is the same.
        weights = ((similarities - similarities[:, :1]) / temperature).exp()
        votes = weights.new_zeros(len(weights), int(bank_labels.max()) + 1)
        predicted = votes.scatter_add_(1, bank_labels[indices], weights).argmax(dim=1)
        num_right += int((predicted == truth[part]).sum())
    return 100.0 * num_right / len(queries)


def class_distance(first: Array, second: Array) -> float:
    """Return the average minimum ℓ2 distance of two classes.

    It is the mean distance to the nearest embedding of the other class, summed over both directions:

        1/|X| sum_x min_y |x - y| + 1/|Y| sum_y min_x |x - y|

    Args:
        first: Embeddings of one class, (N, D) floating point, of any length; not normalised.
        second: Embeddings of the other class, (M, D).

    Returns:
        0 if each embedding of either class is also an embedding of the other.

    Raises:
        InputError: Embeddings are empty, not finite or of unequal width.

    Source:
        Paper, appendix "Analysis on the contextual bias", the formula above table multi-bias.
    """
    one, other = torch.as_tensor(first), torch.as_tensor(second)
    check_features("first", one)
    check_features("second", other)
    if one.shape[1] != other.shape[1]:
        problem = f"must have the {one.shape[1]} columns of the first"
        raise InputError("second", tuple(other.shape), problem, "Compute both with the same backbone.")
    one, other = one.double(), other.to(one.device).double()
    to_first = torch.full((len(other),), torch.inf, dtype=torch.float64, device=one.device)
    to_second = []
    chunk = max(1, MAX_PAIRS // len(other))
    for begin in range(0, len(one), chunk):
        # By differences: the expansion of the square would lose the digits of small distances.
        distances = torch.cdist(one[begin : begin + chunk], other, compute_mode="donot_use_mm_for_euclid_dist")
        to_second.append(distances.amin(dim=1))
        to_first = torch.minimum(to_first, distances.amin(dim=0))
    return float(torch.cat(to_second).mean() + to_first.mean())


def plane(embeddings: NDArray[np.floating], *, perplexity: float, seed: int) -> NDArray[np.float64]:
    """Lay embeddings out in the plane by t-SNE, from their first two principal components.

    Args:
        embeddings: (N, D), N above the perplexity.
        perplexity: About how many neighbours each point takes into account.
        seed: Seed of t-SNE's random numbers.

    Returns:
        Points (N, 2) for a picture; distances mean little beyond the neighbourhood.

    Raises:
        InputError: There are too few embeddings for the perplexity.

    Source:
        van der Maaten & Hinton 2008; scikit-learn's implementation.
    """
    from sklearn.manifold import TSNE  # here, since its import takes a second

    if len(embeddings) <= perplexity:
        problem = f"must be below the number of points, {len(embeddings)}"
        raise InputError("perplexity", perplexity, problem, "Lower it, or give more images.")
    points = TSNE(init="pca", perplexity=perplexity, random_state=seed).fit_transform(
        np.asarray(embeddings, np.float32)
    )
    return np.asarray(points, dtype=np.float64)


def alignment(first: Tensor, second: Tensor) -> Tensor:
    """Return the mean squared distance of positive pairs: 0 where both views of each image coincide, 2 at right angles.

    Args:
        first: Embeddings of unit length (N, D).
        second: Embeddings of the same images' other views, (N, D).

    Source:
        Wang & Isola 2020, L_align with α = 2.
    """
    return (first - second).square().sum(dim=1).mean()


def uniformity(embeddings: Tensor) -> Tensor:
    """Return the logarithm of the mean Gaussian potential of all pairs.

    It is 0 if all embeddings coincide, and about −4 if they fill the sphere.

    Args:
        embeddings: Of unit length, (N, D) with N at least 2.

    Source:
        Wang & Isola 2020, L_uniform with t = 2.
    """
    potentials = torch.pdist(embeddings).square().mul(-2)  # (N · (N − 1) / 2,)
    return torch.logsumexp(potentials, dim=0) - math.log(len(potentials))


def feature_std(embeddings: Tensor) -> Tensor:
    """Return the standard deviation over the images, averaged over the dimensions and scaled by √D.

    Args:
        embeddings: Of unit length, (N, D) with N at least 2.

    Returns:
        0 where all embeddings coincide, about 1 where they spread evenly.

    Source:
        Chen & He 2021 (SimSiam), §4.1, whose value of an even spread is 1 / √D without the scale.
    """
    return embeddings.std(dim=0).mean() * embeddings.shape[1] ** 0.5
