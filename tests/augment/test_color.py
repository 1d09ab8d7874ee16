"""Each operation against torchvision's own, and the distribution of its parameters."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torchvision.transforms import functional as tvf

from objectaware.augment.color import (
    NUM_COLOR_DRAWS,
    ColorDistribution,
    ColorParameters,
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    augment_colors,
    gaussian_blur,
    sample_colors,
    to_gray,
)


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(6, 3, 20, 24, generator=torch.Generator().manual_seed(0))


def _column(values: list[float]) -> torch.Tensor:
    return torch.tensor(values).view(-1, 1, 1, 1)


FACTORS = [0.6, 0.8, 1.0, 1.1, 1.25, 1.4]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (adjust_brightness, tvf.adjust_brightness),
        (adjust_contrast, tvf.adjust_contrast),
        (adjust_saturation, tvf.adjust_saturation),
    ],
)
def test_factors_as_torchvision(images: torch.Tensor, ours, theirs) -> None:  # noqa: ANN001
    expected = torch.stack([theirs(image, factor) for image, factor in zip(images, FACTORS, strict=True)])
    torch.testing.assert_close(ours(images, _column(FACTORS)), expected, atol=2e-6, rtol=0)


def test_hue_as_torchvision(images: torch.Tensor) -> None:
    images[0, :, :5] = 0.5  # gray pixels have no hue
    images[1, 0] = images[1, 1]  # ties between channels
    shifts = [-0.5, -0.1, 0.0, 0.05, 0.1, 0.5]
    expected = torch.stack([tvf.adjust_hue(image, shift) for image, shift in zip(images, shifts, strict=True)])
    torch.testing.assert_close(adjust_hue(images, _column(shifts)), expected, atol=2e-6, rtol=0)


def test_gray_as_torchvision(images: torch.Tensor) -> None:
    torch.testing.assert_close(to_gray(images), tvf.rgb_to_grayscale(images), atol=1e-6, rtol=0)


def test_blur_as_torchvision(images: torch.Tensor) -> None:
    sigmas = [0.1, 0.4, 0.9, 1.3, 1.7, 2.0]
    expected = torch.stack([tvf.gaussian_blur(x, [9, 9], [s, s]) for x, s in zip(images, sigmas, strict=True)])
    blurred = gaussian_blur(images, torch.tensor(sigmas), kernel_size=9)
    torch.testing.assert_close(blurred, expected, atol=2e-6, rtol=0)


def test_order_of_the_four_is_each_samples_own(images: torch.Tensor) -> None:
    factors = torch.tensor([[0.7, 1.3, 0.6, 0.1]] * 6)
    parameters = ColorParameters(
        jitter=torch.tensor([True] * 5 + [False]),
        order=torch.tensor([0, 23, 7, 7, 12, 3]),
        factors=factors,
        grayscale=torch.tensor([False] * 4 + [True] * 2),
        sigma=torch.zeros(6),
    )
    before = images.clone()
    after = augment_colors(images, parameters, blur_kernel_size=3)
    operations = (tvf.adjust_brightness, tvf.adjust_contrast, tvf.adjust_saturation, tvf.adjust_hue)
    first = before[0]
    for operation, factor in zip(operations, factors[0].tolist(), strict=True):
        first = operation(first, factor)
    torch.testing.assert_close(after[0], first, atol=3e-6, rtol=0)
    second = before[1]
    for operation, factor in zip(operations[::-1], factors[0].tolist()[::-1], strict=True):
        second = operation(second, factor)
    torch.testing.assert_close(after[1], second, atol=3e-6, rtol=0)
    torch.testing.assert_close(after[5], tvf.rgb_to_grayscale(before[5], 3), atol=1e-6, rtol=0)


def test_a_sample_is_augmented_the_same_in_any_batch(images: torch.Tensor) -> None:
    draws = np.random.default_rng(0).random((6, NUM_COLOR_DRAWS))
    distribution = ColorDistribution()
    together = augment_colors(images.clone(), sample_colors(draws, distribution), blur_kernel_size=5)
    for index in range(6):
        alone = augment_colors(
            images[index : index + 1].clone(),
            sample_colors(draws[index : index + 1], distribution),
            blur_kernel_size=5,
        )
        torch.testing.assert_close(alone[0], together[index], atol=1e-6, rtol=0)


def test_parameters_are_distributed_as_asked() -> None:
    draws = np.random.default_rng(0).random((20_000, NUM_COLOR_DRAWS))
    parameters = sample_colors(draws, ColorDistribution())
    assert abs(parameters.jitter.float().mean() - 0.8) < 0.01
    assert abs(parameters.grayscale.float().mean() - 0.2) < 0.01
    assert torch.bincount(parameters.order, minlength=24).min() > 700
    assert parameters.factors[:, :3].min() >= 0.6
    assert parameters.factors[:, :3].max() <= 1.4
    assert parameters.factors[:, 3].abs().max() <= 0.1
    blurred = parameters.sigma[parameters.sigma > 0]
    assert abs(len(blurred) / 20_000 - 0.5) < 0.01
    assert blurred.min() >= 0.1
    assert blurred.max() <= 2.0


def test_without_chance_nothing_changes(images: torch.Tensor) -> None:
    nothing = replace(ColorDistribution(), jitter_probability=0, grayscale_probability=0, blur_probability=0)
    draws = np.random.default_rng(0).random((6, NUM_COLOR_DRAWS))
    after = augment_colors(images.clone(), sample_colors(draws, nothing), blur_kernel_size=5)
    assert torch.equal(after, images)
