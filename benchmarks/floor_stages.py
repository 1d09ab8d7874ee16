"""The work of the other stages whose floor is known, on one core: from decoding to the linear path.

Where PyTorch does not do the work, its operations are counted by a formula, from the algorithm as it is defined and not
from how we do it: the least number that the published method needs. Table look-ups, comparisons and branches, such as
Huffman decoding, the search of contours and hashing, are no floating-point operations; a stage that is made of them
has a low share, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import torch

from augmentation import our_views
from contracam_cost import set_up
from decoding import normalised, read_ours
from inputs import photo_folder, photo_source, photos, photos_as_they_are, write_tiny_checkpoint
from linear_evaluation import PENALTIES, fit_path, make_features
from mask_measures import measures
from objectaware.config import DataConfig, LocalizeConfig, LocalizeExecution
from objectaware.data.folder import ImageFolder, Manifest
from objectaware.data.images import read_image
from objectaware.data.storage import Storage
from objectaware.distributed.localize_steps import CamActor, CrfActor, GroupPlan, group_table
from objectaware.evaluate.linear import PATH_TOLERANCE
from objectaware.localize.contracam import ContraCAM, contracam
from objectaware.localize.objects import dense_crf
from objectaware.planning.measure import soft_masks
from objectaware.training.views import blur_kernel_size
from roof import Work, bytes_of, bytes_of_weights, counted_operations

_NUM_ITERATIONS = 10
_EXPANSION: Final = 2


def stage_works(
    folder: Path, *, backbone: str, size: int, number: int, linear_sizes: tuple[int, int, int]
) -> Iterator[Work]:
    """A piece of work a stage, prepared when it is asked for.

    Args:
        folder: For files, empty.
        backbone: Of ContraCAM.
        size: Side that networks see, in pixels.
        number: Images that a network goes through; the cheaper stages go through 8 times as many.
        linear_sizes: Samples, features and classes of the linear path.
    """
    yield augmentation(size, 8 * number)
    yield decoding(folder / "photos", size, 8 * number)
    yield contracam_work(backbone, size, number)
    yield crf(size, number)
    yield from mask_works(size, 8 * number)
    yield linear(*linear_sizes)
    yield localization(folder, backbone, size, number)


def view_operations(size: int) -> float:
    """Operations of one view of side S: it has 3 S² values, and each takes the following.

    - 8: four weighted neighbours, which is bilinear; antialiasing takes more;
    - 0.8 · 17: the jitter's probability times brightness 1, contrast 2 and 2 for its mean luma, saturation 2 and 2 for
      its luma, hue 26 a pixel, in total a third of that a value (maximum, minimum, chroma, hue, and three channels of
      offset, remainder, reflection, clamp, product and difference);
    - 0.2 · 2: luma for gray;
    - 0.5 · 4 k: the blur's probability times k weighted neighbours along each axis;
    - 2: normalisation.
    """
    blur = 0.5 * 4 * blur_kernel_size(size)
    return 3 * size**2 * (8 + 0.8 * (1 + 4 + 4 + 26 / 3) + 0.2 * 2 + blur + 2)


def augmentation(size: int, number: int) -> Work:
    """Two views of photos in memory.

    Read are the pixels of the larger of both crops, whose shares of the photo are uniform in [0.08, 1]: on average
    0.08 + 0.92 · 2/3 of it; written are the views, float32.
    """
    pictures = photos_as_they_are(number)
    share = 0.08 + 0.92 * 2 / 3
    num_bytes = share * sum(picture.nbytes for picture in pictures) + number * 2 * 3 * size**2 * 4
    case = f"two views at {size} of {number} photos of {photo_source()}"
    return Work(case, number, number * 2 * view_operations(size), num_bytes, our_views(pictures, size))


def decoding_operations(num_pixels: int) -> float:
    """Operations of decoding a JPEG file of so many pixels and squashing it.

    For each pixel 1.5 values (colours at half the resolution along each axis), each 544 / 64 in the fastest inverse
    cosine transform of a block of 8 × 8 (Arai, Agui and Nakajima, 1988: along rows and columns 16 times 29 additions
    and 5 multiplications); 7 to turn luma and two differences into three channels; and 3 · 4 for the first pass of the
    resize, in which each value is weighted for two neighbours. Huffman codes are not counted.
    """
    return num_pixels * (1.5 * 544 / 64 + 7 + 12)


def decoding(folder: Path, size: int, number: int) -> Work:
    """Files to what the network sees. Read are the files; written is the batch, float32."""
    paths = sorted(photo_folder(folder, number).iterdir())

    def run() -> torch.Tensor:
        return normalised(torch.stack([read_ours(path, size) for path in paths]))

    num_bytes = sum(path.stat().st_size for path in paths) + number * 3 * size**2 * 4
    operations = decoding_operations(_num_pixels(paths))
    return Work(f"decoding {number} photos of {photo_source()} to {size}", number, operations, num_bytes, run)


def _num_pixels(paths: list[Path]) -> int:
    return sum(read_image(path).size // 3 for path in paths)


def contracam_work(backbone: str, size: int, number: int) -> Work:
    """ContraCAM. Read are images and weights, once; written are the maps."""
    images, trunk, projector = set_up(backbone, size, number, _EXPANSION)

    def run() -> torch.Tensor:
        return contracam(images, trunk.forward_features, projector, num_iterations=_NUM_ITERATIONS)

    num_bytes = bytes_of(images) + bytes_of_weights(trunk, projector) + number * size**2 * 4
    case = f"ContraCAM, {_NUM_ITERATIONS} iterations, {backbone}, batch {number} at {size}, expansion {_EXPANSION}"
    return Work(case, number, counted_operations(run), num_bytes, run)


def crf_operations(num_pixels: int, num_iterations: int = 5) -> float:
    """Operations of mean-field inference with two labels and two kernels on a permutohedral lattice.

    A kernel over d features (position 2, position and colour 5) spreads each pixel's labels over the d + 1 corners of
    its simplex and gathers them again, a multiplication and an addition each (Adams, Baek and Davis, 2010); the two
    weights of the kernels are 2 a label, the exponential and the division of the marginals 3 a label. The blur between
    the lattice's points, far fewer than pixels, and setting the lattice up are not counted.
    """
    num_labels = 2
    filters = sum(2 * 2 * num_labels * (d + 1) for d in (2, 5))
    return num_pixels * num_iterations * (filters + 2 * 2 * num_labels + 3 * num_labels)


def crf(size: int, number: int) -> Work:
    """The CRF alone. Read are image and soft mask, written is the refined one, float32."""
    pictures, maps = photos(number, size), soft_masks(number, size)

    def run() -> list[object]:
        return [dense_crf(picture, soft) for picture, soft in zip(pictures, maps, strict=True)]

    num_pixels = number * size**2
    case = f"CRF of {number} pictures of {photo_source()} at {size}"
    return Work(case, number, crf_operations(num_pixels), num_pixels * (3 + 4 + 4), run)


def mask_works(size: int, number: int) -> Iterator[Work]:
    """Measures of masks.

    Each reads its maps once: MaxBoxAccV2 float32, mIoU two boolean ones, boxes one. Each does the least for each
    pixel: MaxBoxAccV2 brings it to its grey level and counts it (2), mIoU counts both and either (4), boxes compare
    (1). Contours are no floating-point operations.
    """
    least = {"MaxBoxAccV2": (2, 4), "mask mIoU": (4, 2), "boxes of masks": (1, 1)}
    num_pixels = number * size**2
    for name, ours, _, _ in measures(number, size):
        if name in least:
            operations, num_bytes = least[name]
            case = f"{name} of {number} masks of {size}"
            yield Work(case, number, operations * num_pixels, num_bytes * num_pixels, ours)


def linear(num_samples: int, num_features: int, num_classes: int) -> Work:
    """The path of 45 penalties. Read are the features, once; written are the classifiers, float64."""
    features, labels = make_features(num_samples, num_features, num_classes)

    def run() -> list[object]:
        return [*fit_path(features, labels, PATH_TOLERANCE, torch.float32)]

    num_bytes = bytes_of(features, labels) + len(PENALTIES) * num_classes * (num_features + 1) * 8
    case = f"{len(PENALTIES)} penalties, {num_samples} × {num_features}, {num_classes} classes"
    return Work(case, None, counted_operations(run), num_bytes, run)


def localization(folder: Path, backbone: str, size: int, number: int) -> Work:
    """All that one group of images goes through from its files to its shard, in this process.

    Operations and bytes are those of its parts: decoding, ContraCAM, CRF. Read are files and weights; written is the
    shard.
    """
    place, masks = folder / "localized", Storage.from_uri(folder / "masks")
    images = ImageFolder.scan(photo_folder(place, number))
    write_tiny_checkpoint(folder / "checkpoint", backbone)
    run, cam_step = _group_steps(place, folder / "checkpoint", masks, Manifest.of(images), size)
    paths = [place / name for name in images.image_ids]
    operations = (
        counted_operations(cam_step) + decoding_operations(_num_pixels(paths)) + crf_operations(number * size**2)
    )
    run()
    (shard,) = (folder / "masks").glob("shard-*")
    weights = (folder / "checkpoint" / "backbone.safetensors").stat().st_size
    num_bytes = sum(path.stat().st_size for path in [*paths, shard]) + weights
    case = f"localization of {number} photos of {photo_source()}, {backbone} at {size}, from files to a shard"
    return Work(case, number, operations, num_bytes, run)


def _group_steps(
    place: Path, checkpoint: Path, masks: Storage, manifest: Manifest, size: int
) -> tuple[Callable[[], pa.Table], Callable[[], pa.Table]]:
    """All steps of the one group there is, and those up to its soft masks."""
    config = LocalizeConfig(
        data=DataConfig(root=str(place)),
        checkpoint=str(checkpoint),
        image_size=size,
        localizer=ContraCAM(num_iterations=_NUM_ITERATIONS, expansion=_EXPANSION),
        execution=LocalizeExecution(num_compute_threads=1),
    )
    plan = GroupPlan.of(
        manifest, config.localizer, group_size=config.group_size, seed=config.seed, image_size=config.image_size
    )
    cam_actor, crf_actor = CamActor(config), CrfActor(config, masks)

    def cam_step() -> pa.Table:
        return cam_actor(group_table(plan, 0))

    return lambda: crf_actor(cam_step()), cam_step
