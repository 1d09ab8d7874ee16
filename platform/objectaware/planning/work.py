"""The work of each stage, in the parts that follow one another as it runs.

`execution` is taken to give a stage all there is: a worker of training, of localization and of features for each GPU,
with the cores shared out among them for decoding and the CRF; or, without a GPU, one such process whose threads are as
many as the cores.
"""

from __future__ import annotations

from objectaware.evaluate.features import PART_SIZE
from objectaware.planning.model import Part, StageWork
from objectaware.planning.rates import Rates, Work
from objectaware.report.gallery import NUM_GALLERY_IMAGES


def pretrain_work(
    rates: Rates,
    *,
    backbone: str,
    method: str,
    num_images: int,
    num_epochs: int,
    cache_mib: int,
    checkpoint_interval: int,
) -> StageWork:
    """The work of a training; the arguments are fields of `PretrainConfig` and of its `execution`.

    Raises:
        InputError: The network or the method was not measured.
    """
    training = rates.training(backbone, method)
    num_views = num_images * num_epochs
    # First come, first kept: what fits is decoded in the first epoch alone.
    kept_share = min(1.0, cache_mib * 2**20 / (rates.picture_bytes * num_images))
    decoded_share = (1 + (num_epochs - 1) * (1 - kept_share)) / num_epochs
    num_checkpoints = -(-num_epochs // checkpoint_interval)
    parts = (
        Part(num_views, training.step.and_cores(rates.views + decoded_share * rates.decoding)),
        Part(num_checkpoints, alone_seconds=training.epoch_seconds),
    )
    return StageWork("pretrain", rates.start_seconds["pretrain"] + training.start_seconds, parts)


def contracam_work(rates: Rates, *, backbone: str, num_iterations: int, expansion: int) -> Work:
    """What ContraCAM takes for one image's soft mask.

    Raises:
        InputError: The network or the expansion was not measured.
    """
    return rates.iteration(backbone, expansion).times(num_iterations)


def localize_work(rates: Rates, *, num_images: int, soft_mask: Work, crf: bool, group_size: int) -> StageWork:
    """The work of a localization.

    Args:
        rates: What was measured.
        num_images: Images.
        soft_mask: What one image's soft mask takes.
        crf: Whether it is refined.
        group_size: Images that are read, localized and refined together.
    """
    refining = rates.storing + (rates.crf if crf else 0.0)
    # While the first group is read and the last one is refined, nothing else can be done.
    num_alone = min(group_size, num_images)
    share_beside = 1 - num_alone / num_images
    parts = (
        Part(num_alone, alone_seconds=rates.reading),
        Part(num_images, soft_mask.and_cores(share_beside * (rates.reading + refining))),
        Part(num_alone, alone_seconds=refining),
        Part(num_images, alone_seconds=rates.row_seconds),
        Part(min(num_images, NUM_GALLERY_IMAGES), alone_seconds=rates.shown_seconds),
    )
    return StageWork("localize", rates.start_seconds["localize"], parts)


def feature_parts(rates: Rates, *, backbone: str, num_images: int) -> tuple[Part, ...]:
    """The work of computing features: a process decodes a batch, then its network computes.

    Raises:
        InputError: The network was not measured.
    """
    forward = rates.network(backbone).forward
    return Part(num_images, Work(core_seconds=rates.reading)), Part(num_images, forward, piece_size=PART_SIZE)


def linear_work(rates: Rates, *, backbone: str, num_train: int, num_tests: int, num_classes: int) -> StageWork:
    """The work of a linear evaluation.

    Args:
        rates: What was measured.
        backbone: The network.
        num_train: Images that the classifier is fitted to.
        num_tests: Images that it is measured on.
        num_classes: Classes.

    Raises:
        InputError: The network was not measured.
    """
    products = num_train * rates.network(backbone).num_features * num_classes
    fit = rates.linear.seconds + products * rates.linear.seconds_per_product
    features = feature_parts(rates, backbone=backbone, num_images=num_train + num_tests)
    return StageWork("linear", rates.start_seconds["linear"], (*features, Part(1, alone_seconds=fit)))
