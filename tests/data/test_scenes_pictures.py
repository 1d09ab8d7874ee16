from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from objectaware.data.scenes.outlines import CLASS_NAMES, NUM_CLASSES, draw_outline, outline_area, rasterise
from objectaware.data.scenes.pictures import (
    PARTNERS,
    ScenePlan,
    SceneVariant,
    Split,
    black_out_box,
    draw_plan,
    mask_box,
    random_stream,
    render_scene,
    render_variants,
    tile_over_box,
    visible_masks,
)
from objectaware.data.scenes.surfaces import draw_palettes, draw_tone, paint, standardise
from objectaware.data.scenes.textures import FAMILIES, FILLS, Pattern, draw_fill_pattern
from objectaware.data.sets.backgrounds_challenge import VARIANTS

NUM_PLANS = 3600


def plans(correlation: float = 0.9, variant: str = "single-object", split: str = "train") -> list[ScenePlan]:
    return [
        draw_plan(0, split, index, variant=variant, correlation=correlation)  # type: ignore[arg-type]
        for index in range(NUM_PLANS)
    ]


def agreement(pairs: list[tuple[int, int]]) -> float:
    return float(np.mean([first == second for first, second in pairs]))


# Four standard deviations of a rate over 3,600 draws.
def tolerance(rate: float) -> float:
    return 4 * float(np.sqrt(rate * (1 - rate) / NUM_PLANS))


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 1.0])
def test_background_family_follows_class_at_the_given_rate(correlation: float) -> None:
    drawn = plans(correlation)
    assert agreement([(plan.classes[0], plan.family) for plan in drawn]) == pytest.approx(
        correlation, abs=tolerance(correlation)
    )


def test_other_families_are_equally_likely() -> None:
    offsets = Counter((plan.family - plan.classes[0]) % NUM_CLASSES for plan in plans(0.0))
    assert set(offsets) == set(range(1, NUM_CLASSES))
    assert max(offsets.values()) < 1.35 * min(offsets.values())


def test_classes_are_balanced() -> None:
    assert set(Counter(plan.classes[0] for plan in plans()).values()) == {NUM_PLANS // NUM_CLASSES}


def test_donors_of_mixed_variants_follow_the_law_of_their_class() -> None:
    drawn = plans(0.9)
    assert agreement([(plan.classes[0], plan.same_family) for plan in drawn]) == pytest.approx(0.9, abs=0.02)
    assert agreement([(plan.random_class, plan.random_family) for plan in drawn]) == pytest.approx(0.9, abs=0.02)
    following = [((plan.classes[0] + 1) % NUM_CLASSES, plan.next_family) for plan in drawn]
    assert agreement(following) == pytest.approx(0.9, abs=0.02)


def test_random_donor_says_nothing_about_the_class() -> None:
    drawn = plans(1.0)
    assert agreement([(plan.classes[0], plan.random_family) for plan in drawn]) == pytest.approx(
        1 / NUM_CLASSES, abs=tolerance(1 / NUM_CLASSES)
    )


def test_donor_of_same_class_is_another_draw_than_the_picture_itself() -> None:
    uncorrelated = plans(0.0)
    assert agreement([(plan.family, plan.same_family) for plan in uncorrelated]) == pytest.approx(1 / 8, abs=0.03)


def test_objects_of_a_multi_object_picture_go_together() -> None:
    drawn = plans(0.9, "multi-object")
    usual = [(PARTNERS[plan.classes[0]], plan.classes[1]) for plan in drawn]
    assert agreement(usual) == pytest.approx(0.9, abs=tolerance(0.9))
    counts = Counter(len(plan.classes) for plan in drawn)
    assert set(counts) == {2, 3}
    assert counts[3] / NUM_PLANS == pytest.approx(0.5, abs=tolerance(0.5))
    assert all(plan.classes[2] in plan.classes[:2] for plan in drawn if len(plan.classes) == 3)


def test_every_class_has_two_usual_companions() -> None:
    assert sorted(PARTNERS) == list(range(NUM_CLASSES))
    assert all(partner != own for own, partner in enumerate(PARTNERS))


def test_streams_differ_by_each_part_of_their_key() -> None:
    streams = [
        random_stream(0, "train", 3, "plan"),
        random_stream(1, "train", 3, "plan"),
        random_stream(0, "val", 3, "plan"),
        random_stream(0, "train", 4, "plan"),
        random_stream(0, "train", 3, "objects"),
    ]
    assert len({stream.random() for stream in streams}) == len(streams)


def test_train_and_val_are_drawn_apart() -> None:
    families = [[plan.family for plan in plans(0.0, split=split)] for split in ("train", "val")]
    assert families[0] != families[1]


SIZE = 48
LUMA = np.array([0.299, 0.587, 0.114])


@lru_cache
def scenes(
    split: Split, count: int, variant: SceneVariant = "single-object", size: int = SIZE
) -> list[tuple[ScenePlan, NDArray[np.uint8], NDArray[np.bool_]]]:
    result = []
    for index in range(count):
        plan = draw_plan(0, split, index, variant=variant, correlation=0.9)
        result.append((plan, *render_scene(plan, size)))
    return result


def fill_pattern(class_index: int, generator: np.random.Generator, size: int = SIZE) -> Pattern:
    return draw_fill_pattern(class_index, np.array([0.5, 0.5]), size, generator)


def nearest_mean_accuracy(
    train: NDArray[np.float64], train_labels: list[int], test: NDArray[np.float64], test_labels: list[int]
) -> float:
    labels = np.array(train_labels)
    means = np.stack([train[labels == label].mean(axis=0) for label in range(NUM_CLASSES)])
    predicted = ((test[:, None] - means) ** 2).sum(axis=-1).argmin(axis=1)
    return float((predicted == test_labels).mean())


@pytest.mark.parametrize("size", [32, 48, 96])
def test_single_object_covers_a_tenth_to_two_fifths(size: int) -> None:
    fractions = [masks[0].mean() for _, _, masks in scenes("train", 90, size=size)]
    assert min(fractions) >= 0.10
    assert max(fractions) <= 0.40


def test_area_is_spread_evenly_over_its_range() -> None:
    fractions = [masks[0].mean() for _, _, masks in scenes("train", 450)]
    assert np.quantile(fractions, [0.25, 0.5, 0.75]) == pytest.approx([0.175, 0.25, 0.325], abs=0.03)


def test_small_objects_lie_anywhere() -> None:
    centres = []
    for _, _, masks in scenes("train", 450):
        if masks[0].mean() < 0.2:
            left, top, right, bottom = mask_box(masks[0])
            centres.append(((left + right) / 2 / SIZE, (top + bottom) / 2 / SIZE))
    inner = np.mean([abs(x - 0.5) < 0.2 and abs(y - 0.5) < 0.2 for x, y in centres])
    # The middle 16% of the picture; objects kept whole would lie there twice as often.
    assert 0.08 < inner < 0.4
    assert np.mean(centres, axis=0) == pytest.approx([0.5, 0.5], abs=0.06)


def test_no_centred_box_finds_the_objects() -> None:
    masks = np.stack([masks[0] for _, _, masks in scenes("val", 180)])
    best = 0.0
    for side in range(8, SIZE + 1, 2):
        start = (SIZE - side) // 2
        box = np.zeros((SIZE, SIZE), bool)
        box[start : start + side, start : start + side] = True
        best = max(best, float(((masks & box).sum((1, 2)) / (masks | box).sum((1, 2))).mean()))
    assert 0.25 < best < 0.36


def test_objects_of_a_multi_object_picture_share_it() -> None:
    for plan, _, masks in scenes("train", 60, "multi-object"):
        fractions = masks.mean(axis=(1, 2))
        assert len(masks) == len(plan.classes)
        assert fractions.min() >= 0.04
        assert fractions.max() <= 0.16
        assert 0.10 <= fractions.sum() <= 0.40
        assert masks.sum(axis=0).max() == 1


def test_upper_object_hides_the_lower() -> None:
    lower, upper = np.zeros((4, 4), np.float32), np.zeros((4, 4), np.float32)
    lower[:, :3] = 1
    upper[:, 2:] = 1
    masks = visible_masks([lower, upper])
    assert masks[0].sum() == 8
    assert masks[1].sum() == 8
    assert not (masks[0] & masks[1]).any()


@settings(max_examples=30, deadline=None)
@given(class_index=st.integers(0, NUM_CLASSES - 1), seed=st.integers(0, 2**32 - 1))
def test_outline_has_unit_area_and_is_drawn_as_large_as_it_says(class_index: int, seed: int) -> None:
    contours = draw_outline(class_index, np.random.default_rng(seed))
    assert outline_area(contours) == pytest.approx(1)
    coverage = rasterise([0.5 * contour + 0.5 for contour in contours], 128)
    assert float(coverage.mean()) == pytest.approx(0.25, abs=0.01)


def test_area_of_a_square_with_a_hole() -> None:
    square = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
    assert outline_area([square, 0.25 + 0.5 * square]) == pytest.approx(0.75)


def test_edges_are_antialiased_at_the_right_place() -> None:
    quarter = np.array([(0.0, 0.0), (0.3125, 0.0), (0.3125, 1.0), (0.0, 1.0)])
    coverage = rasterise([quarter], 8)
    assert coverage[4] == pytest.approx([1, 1, 0.5, 0, 0, 0, 0, 0], abs=0.26)
    assert 0 < coverage[4, 2] < 1


def test_ring_has_a_hole() -> None:
    coverage = rasterise([0.5 * contour + 0.5 for contour in draw_outline(5, np.random.default_rng(0))], SIZE)
    assert coverage[SIZE // 2, SIZE // 2] == 0
    assert coverage.max() == 1


def test_shape_tells_the_class() -> None:
    def silhouettes(split: Split, count: int) -> tuple[NDArray[np.float64], list[int]]:
        rows, labels = [], []
        for plan, _, masks in scenes(split, count):
            left, top, right, bottom = mask_box(masks[0])
            crop = masks[0][top:bottom, left:right].astype(np.float32)
            rows.append(cv2.resize(crop, (16, 16), interpolation=cv2.INTER_AREA).ravel())
            labels.append(plan.classes[0])
        return np.array(rows, dtype=np.float64), labels

    assert nearest_mean_accuracy(*silhouettes("train", 450), *silhouettes("val", 180)) > 0.6


def test_colour_does_not_tell_the_class() -> None:
    def mean_colours(split: Split, count: int, inside: bool) -> tuple[NDArray[np.float64], list[int]]:
        rows = [image[masks[0] == inside].mean(axis=0) for _, image, masks in scenes(split, count)]
        return np.array(rows), [plan.classes[0] for plan, _, _ in scenes(split, count)]

    for inside in (True, False):
        accuracy = nearest_mean_accuracy(*mean_colours("train", 450, inside), *mean_colours("val", 180, inside))
        assert accuracy < 0.2


def test_objects_and_backgrounds_have_the_same_colours() -> None:
    pictures = [(image, masks[0]) for _, image, masks in scenes("train", 450)]
    inside = np.array([image[mask].mean(axis=0) for image, mask in pictures])
    outside = np.array([image[~mask].mean(axis=0) for image, mask in pictures])
    assert inside.mean(axis=0) == pytest.approx(outside.mean(axis=0), abs=4)
    assert inside.std(axis=0) == pytest.approx(outside.std(axis=0), rel=0.15)
    # In one picture, too: surfaces differ less in their means than each does in itself.
    within = np.array([image[mask].std(axis=0) for image, mask in pictures])
    assert np.abs(inside - outside).mean() < 0.75 * within.mean()


def test_objects_and_backgrounds_are_equally_contrasted_and_sharp() -> None:
    measures = []
    for _, image, masks in scenes("train", 450, size=96):
        grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)
        deviation = np.sqrt(np.maximum(cv2.blur(grey**2, (19, 19)) - cv2.blur(grey, (19, 19)) ** 2, 0))
        gradient = np.hypot(cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1))
        inner = cv2.erode(masks[0].astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool)
        measures.append([[deviation[part].mean(), gradient[part].mean()] for part in (inner, ~masks[0])])
    inside, outside = np.mean(measures, axis=0)
    assert inside[0] == pytest.approx(outside[0], rel=0.1)
    # Outside lie the edges of clutter and of the object itself.
    assert inside[1] == pytest.approx(outside[1], rel=0.2)


def test_surfaces_of_a_picture_are_painted_around_its_tone() -> None:
    generator = np.random.default_rng(0)
    tones = np.stack([draw_tone(generator) for _ in range(300)])
    assert np.ptp(tones, axis=0).min() > 80
    for tone in tones:
        [palette] = draw_palettes(tone, 1, generator)
        assert np.abs(palette.mean(axis=0) - tone).max() <= 14
        assert abs(float((palette[0] - palette[1]) @ LUMA)) >= 20


@pytest.mark.parametrize("covers_part", [False, True])
def test_patterns_of_any_duty_cycle_get_the_same_contrast(covers_part: bool) -> None:
    palette = np.array([[60.0, 80.0, 100.0], [150.0, 140.0, 130.0]])
    coverage = np.ones((SIZE, SIZE), np.float32)
    if covers_part:
        coverage[:, : SIZE // 2] = 0
    for number in range(2 * NUM_CLASSES):
        generator = np.random.default_rng(number)
        pattern = (
            FAMILIES[number](generator, SIZE) if number < NUM_CLASSES else fill_pattern(number - NUM_CLASSES, generator)
        )
        seen = paint(standardise(pattern, coverage), palette[None])[:, coverage > 0].T
        assert seen.mean(axis=0) == pytest.approx(palette.mean(axis=0), abs=3)
        assert seen.std(axis=0) == pytest.approx(np.abs(palette[1] - palette[0]) / 2, rel=0.15)


def test_texture_in_grayscale_tells_the_family() -> None:
    def spectra(seed: int, repeats: int) -> tuple[NDArray[np.float64], list[int]]:
        generator = np.random.default_rng(seed)
        rows, labels = [], []
        for family in [*range(NUM_CLASSES)] * repeats:
            gray = FAMILIES[family](generator, 96)
            if generator.random() < 0.5:
                gray = gray[:, ::-1]
            gray = (gray - gray.mean()) / gray.std()
            magnitude = np.log1p(np.abs(np.fft.fftshift(np.fft.fft2(gray)))).astype(np.float32)
            rows.append(cv2.resize(magnitude, (24, 24), interpolation=cv2.INTER_AREA).ravel())
            labels.append(family)
        return np.array(rows, dtype=np.float64), labels

    assert nearest_mean_accuracy(*spectra(0, 40), *spectra(1, 15)) > 0.8


def test_texture_in_grayscale_tells_the_class() -> None:
    """Seen through one and the same window, so that shape tells nothing."""

    def spectra(seed: int, repeats: int) -> tuple[NDArray[np.float64], list[int]]:
        generator = np.random.default_rng(seed)
        rows, labels = [], []
        for class_index in [*range(NUM_CLASSES)] * repeats:
            gray = fill_pattern(class_index, generator)
            magnitude = np.abs(np.fft.fftshift(np.fft.fft2((gray - gray.mean()) / gray.std())))[16:33, 16:33]
            rows.append([*np.sort(np.log1p(magnitude).ravel()), (gray > np.median(gray)).mean()])
            labels.append(class_index)
        return np.array(rows, dtype=np.float64), labels

    assert nearest_mean_accuracy(*spectra(0, 40), *spectra(1, 15)) > 0.4


@pytest.mark.parametrize("size", [32, 64, 96])
@pytest.mark.parametrize("family", range(NUM_CLASSES))
def test_background_is_fine_enough_for_crops(family: int, size: int) -> None:
    pattern = standardise(FAMILIES[family](np.random.default_rng(family), size))
    assert pattern.shape == (size, size)
    half = size // 2
    for quarter in (pattern[:half, :half], pattern[half:, half:], pattern[:half, half:]):
        assert np.ptp(quarter) > 1.2


@pytest.mark.parametrize("size", [32, 64, 96])
@pytest.mark.parametrize("class_index", range(NUM_CLASSES))
def test_surface_is_fine_enough_to_be_seen_on_the_smallest_object(class_index: int, size: int) -> None:
    pattern = standardise(fill_pattern(class_index, np.random.default_rng(class_index), size))
    start, side = round(0.4 * size), round(0.2 * size)
    assert np.ptp(pattern[start : start + side, start : start + side]) > 1.2


def test_there_are_nine_of_each() -> None:
    assert len(set(CLASS_NAMES)) == len(set(FAMILIES)) == len(set(FILLS)) == NUM_CLASSES == 9


@pytest.mark.parametrize("index", range(NUM_CLASSES))
def test_variants_change_what_they_say_and_nothing_else(index: int) -> None:
    plan = draw_plan(0, "val", index, variant="single-object", correlation=0.9)
    pictures, mask = render_variants(plan, SIZE)
    original = pictures["original"]
    assert tuple(pictures) == VARIANTS
    core = cv2.erode(mask.astype(np.uint8), np.ones((5, 5), np.uint8), borderValue=1).astype(bool)
    away = ~cv2.dilate(mask.astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)
    for name in ("mixed_same", "mixed_rand", "mixed_next"):
        assert np.array_equal(pictures[name][core], original[core])
        assert np.abs(pictures[name][away].astype(int) - original[away]).mean() > 5
    assert np.array_equal(pictures["only_fg"][mask], original[mask])
    assert not pictures["only_fg"][~mask].any()
    assert np.array_equal(pictures["no_fg"][~mask], original[~mask])
    assert not pictures["no_fg"][mask].any()
    left, top, right, bottom = mask_box(mask)
    box = np.zeros_like(mask)
    box[top:bottom, left:right] = True
    for name in ("only_bg_b", "only_bg_t"):
        assert np.array_equal(pictures[name][~box], original[~box])
    assert not pictures["only_bg_b"][box].any()
    assert np.array_equal(pictures["only_bg_t"], tile_over_box(original, mask))


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("family", {"original", "no_fg", "only_bg_b", "only_bg_t"}),
        ("same_family", {"mixed_same"}),
        ("random_family", {"mixed_rand"}),
        ("next_family", {"mixed_next"}),
    ],
)
def test_each_family_of_a_plan_is_seen_in_its_variants_alone(field: str, changed: set[str]) -> None:
    plan = draw_plan(0, "val", 0, variant="single-object", correlation=0.9)
    other = replace(plan, **{field: (getattr(plan, field) + 1) % NUM_CLASSES})
    before, mask = render_variants(plan, SIZE)
    after, _ = render_variants(other, SIZE)
    # `only_fg` shows a trace of the background through its antialiased edge.
    outside = ~cv2.dilate(mask.astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)
    differing = {name for name in VARIANTS if not np.array_equal(before[name][outside], after[name][outside])}
    assert differing == changed


def test_original_of_a_variant_is_the_scene() -> None:
    plan, image, masks = scenes("val", 9)[4]
    pictures, mask = render_variants(plan, SIZE)
    assert np.array_equal(pictures["original"], image)
    assert np.array_equal(mask, masks[0])


def test_box_is_covered_by_repeats_of_the_largest_strip() -> None:
    image = np.zeros((4, 6, 3), np.uint8)
    image[:, :, 0] = np.arange(6)
    image[:, :, 1] = np.arange(4)[:, None]
    mask = np.zeros((4, 6), bool)
    mask[1:4, 2:6] = True
    tiled = tile_over_box(image, mask)
    # Left of the box lies a strip 2 wide over the whole height (8 pixels), above it one 1 high and 6 wide.
    assert tiled[1:, 2:, 0].tolist() == [[0, 1, 0, 1]] * 3
    assert tiled[1:, 2:, 1].tolist() == [[0] * 4, [1] * 4, [2] * 4]
    assert np.array_equal(tiled[:, :2], image[:, :2])
    assert not black_out_box(image, mask)[1:, 2:].any()
    assert image[1:, 2:].any()
