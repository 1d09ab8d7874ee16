"""Trivial answers do not find the objects of the scenes. No network takes part; these alone fix the pictures."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from objectaware.data.images import resize_image
from objectaware.data.masks import resize_mask
from objectaware.data.scenes.pictures import SceneVariant, draw_plan, render_scene
from objectaware.evaluate.mask_scores import best_center_box, foreground, mask_miou
from objectaware.localize.baselines import center_map, contrast_map, refined_baseline

MOST = 1.1
"""The most that a trivial answer may have, in mIoU of the best centred box."""
SIZE = 96
# Sides of the pictures for localization in the demo.
LOCALIZATION_SIZES: dict[SceneVariant, int] = {"single-object": 128, "multi-object": 160}

Answer = Callable[[NDArray[np.uint8]], NDArray[np.float32]]


def by_otsu(values: NDArray[np.floating]) -> NDArray[np.float32]:
    levels = np.round(255 * (values - values.min()) / np.ptp(values)).astype(np.uint8)
    return cv2.threshold(levels, 0, 1, cv2.THRESH_OTSU)[1].astype(np.float32)


def distance_to_border(image: NDArray[np.uint8], blur: float) -> NDArray[np.float32]:
    lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB).astype(np.float32)
    if blur:
        lab = cv2.GaussianBlur(lab, (0, 0), blur * len(lab)).astype(np.float32)
    border = np.concatenate([lab[:4], lab[-4:], lab[:, :4].swapaxes(0, 1), lab[:, -4:].swapaxes(0, 1)])
    return by_otsu(np.linalg.norm(lab - border.mean(axis=(0, 1)), axis=-1))


def saturation(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    return by_otsu(cv2.cvtColor(image, cv2.COLOR_RGB2HSV)[:, :, 1].astype(np.float32))


def local_variance(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    return by_otsu(contrast_map(image))


def sharpness(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)
    gradient = np.hypot(cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1))
    return by_otsu(cv2.blur(gradient, (17, 17)).astype(np.float32))


def inverted(answer: Answer) -> Answer:
    return lambda image: 1 - answer(image)


SIMPLE: dict[str, Answer] = {
    "full image": lambda image: np.ones(image.shape[:2], np.float32),
    "centre prior": lambda image: center_map(len(image)),
    "contrast map": contrast_map,
    "colour unlike the border's": lambda image: distance_to_border(image, 0),
    "blurred colour unlike the border's": lambda image: distance_to_border(image, 1 / 24),
    "saturated": saturation,
    "unsaturated": inverted(saturation),
    "varied": local_variance,
    "uniform": inverted(local_variance),
    "sharp": sharpness,
    "blurred": inverted(sharpness),
}


def pictures(variant: SceneVariant, count: int, seed: int = 0) -> tuple[list[NDArray[np.uint8]], NDArray[np.bool_]]:
    side = LOCALIZATION_SIZES[variant]
    images, truths = [], []
    for index in range(count):
        image, masks = render_scene(draw_plan(seed, "val", index, variant=variant, correlation=0.9), SIZE)
        images.append(resize_image(image, (side, side)))
        truths.append(resize_mask(np.asarray(masks.any(axis=0)), side, side))
    return images, np.stack(truths)


def relative_miou(answer: Answer, images: list[NDArray[np.uint8]], truths: NDArray[np.bool_]) -> float:
    """Return the mIoU of an answer divided by that of the best centred box."""
    found = np.stack([foreground(answer(image)) for image in images])
    return mask_miou(found, truths) / best_center_box(truths)[1]


@pytest.mark.parametrize("variant", ["single-object", "multi-object"])
def test_no_simple_rule_finds_the_objects(variant: SceneVariant) -> None:
    images, truths = pictures(variant, 45)
    scores = {name: relative_miou(answer, images, truths) for name, answer in SIMPLE.items()}
    assert {name: score for name, score in scores.items() if score > MOST} == {}


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["single-object", "multi-object"])
def test_neither_does_the_crf_of_a_simple_rule(variant: SceneVariant) -> None:
    images, truths = pictures(variant, 200)
    refined = {
        f"{name} + CRF": lambda image, simple=SIMPLE[name]: refined_baseline(image, simple(image))
        for name in ("centre prior", "contrast map", "full image")
    }
    scores = {name: relative_miou(answer, images, truths) for name, answer in (SIMPLE | refined).items()}
    print({name: round(score, 2) for name, score in scores.items()})
    assert {name: score for name, score in scores.items() if score > MOST} == {}
