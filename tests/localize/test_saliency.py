"""Classifier CAM, Integrated Gradients and SmoothGrad on the reference network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor

from objectaware.data.images import normalise
from objectaware.errors import InputError
from objectaware.localize import contracam
from objectaware.localize.classifier_cam import ClassifierCAM, classifier_cam
from objectaware.localize.contracam import class_activation_map, contrastive_score
from objectaware.localize.input_gradient import ContrastiveGradient, GradientLocalizer, saliency_map
from objectaware.localize.integrated_gradients import IntegratedGradients
from objectaware.localize.localizer import Group, Network
from objectaware.localize.smoothgrad import SmoothGrad


def _embed(reference: Any, images: Tensor) -> Tensor:
    return F.normalize(reference.projector(reference.encoder(images).mean(dim=(2, 3))), dim=1)


def _gradient(reference: Any, images: Tensor | None = None, **options: Any) -> ContrastiveGradient:
    images = reference.images if images is None else images
    return ContrastiveGradient(images, reference.encoder, reference.projector, **options)


def test_classifier_cam_is_the_predicted_class_weights_times_the_features(reference: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(4, 32, generator=generator), torch.tensor([0.0, 0.0, 1e4, 0.0])
    features = reference.encoder(reference.images)
    expected = class_activation_map(features, weight[[2] * 5], (64, 64))
    maps = classifier_cam(reference.images, reference.encoder, weight, bias)
    assert maps.shape == (5, 1, 64, 64)
    torch.testing.assert_close(maps, expected)
    other = classifier_cam(reference.images, reference.encoder, weight, -bias)
    assert (other - maps).abs().max() > 0.1


def test_classifier_cam_weights_are_the_gradient_of_the_logit(reference: Any) -> None:
    weight, bias = torch.randn(4, 32, generator=torch.Generator().manual_seed(1)), torch.zeros(4)
    features = reference.encoder(reference.images).detach().requires_grad_()
    logits = features.mean(dim=(2, 3)) @ weight.T + bias
    (gradient,) = torch.autograd.grad(logits.amax(dim=1).sum(), features)
    expected = class_activation_map(features.detach(), gradient.sum(dim=(2, 3)), (64, 64))
    torch.testing.assert_close(classifier_cam(reference.images, reference.encoder, weight, bias), expected)


def test_classifier_cam_without_negative_signals_is_the_sum_over_positive_weights() -> None:
    """Compare with Σ max(α, 0) A and Σ α A by hand, for α = (1, −1), at maps as large as the image."""
    images = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    left = torch.tensor([1.0, 1.0, 0.0, 0.0]).repeat(4, 1)
    maps = torch.stack([1 + 3 * left, 2 - left])[None]  # A of the two channels: 4 and 1 on the left, 1 and 2 beside it
    maps[0, 0, 0, 2] = 2.5
    weight, bias = torch.tensor([[1.0, -1.0], [-9.0, -9.0]]), torch.zeros(2)
    # With both weights: 3 on the left, 2.5 − 2 at the raised pixel, −1 elsewhere, which the outer ReLU makes 0.
    # With the positive weight alone: 4, 2.5 and 1. Each is then scaled to [0, 1].
    for remove, expected in ((False, 0.5 / 3), (True, 1.5 / 3)):
        found = classifier_cam(images, lambda batch: maps, weight, bias, remove_negative_signals=remove)[0, 0]
        torch.testing.assert_close(found[:, :2], torch.ones(4, 2))
        assert found[0, 2].item() == pytest.approx(expected)
        assert found[1:, 2:].abs().max() == 0


def test_the_localizer_passes_its_choice_of_negative_signals_on(reference: Any, tmp_path: Path) -> None:
    weight, bias = torch.randn(4, 32, generator=torch.Generator().manual_seed(2)), torch.zeros(4)
    torch.save({"fc.weight": weight, "fc.bias": bias}, tmp_path / "classifier.pt")
    pictures = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    images = normalise(pictures)

    class OneNetwork(Network):
        def features(self, expansion: int = 1) -> Any:
            return reference.encoder

        def tensor(self, images: Any) -> Tensor:
            return normalise(images)

    group = Group(pictures, pictures[:0], np.zeros((3, 0), dtype=np.bool_))
    for remove in (False, True):
        localizer = ClassifierCAM(classifier=str(tmp_path / "classifier.pt"), remove_negative_signals=remove)
        found = localizer.build(OneNetwork(None, torch.device("cpu")))(group)
        expected = classifier_cam(images, reference.encoder, weight, bias, remove_negative_signals=remove)
        np.testing.assert_array_equal(found, expected[:, 0].numpy())


def test_a_classifier_of_another_network_is_refused(reference: Any) -> None:
    with pytest.raises(InputError, match="classifier"):
        classifier_cam(reference.images, reference.encoder, torch.zeros(4, 31), torch.zeros(4))


def test_integrated_gradients_add_up_to_the_difference_of_the_scores(reference: Any) -> None:
    """Completeness, the method's axiom: Σ attributions = s(x) − s(0)."""
    images = reference.images
    attributions = IntegratedGradients(num_gradients=200).attributions(images, _gradient(reference))
    keys = _embed(reference, images).detach()
    changed = (images, torch.zeros_like(images))
    at_image, at_zero = (contrastive_score(_embed(reference, one), keys, [keys]).detach() for one in changed)
    torch.testing.assert_close(attributions.sum(dim=(1, 2, 3)), at_image - at_zero, rtol=0.05, atol=0.01)


def test_a_single_gradient_is_taken_at_the_image_itself(reference: Any) -> None:
    """The published sum goes from 1 to m, so that the last point is the image."""
    gradient = _gradient(reference)
    expected = reference.images * gradient(reference.images)
    found = IntegratedGradients(num_gradients=1).attributions(reference.images, gradient)
    torch.testing.assert_close(found, expected)


def test_gradient_is_of_each_images_own_score_with_the_others_as_negatives(reference: Any) -> None:
    changed = (0.5 * reference.images).requires_grad_()
    keys = _embed(reference, reference.images).detach()
    score = contrastive_score(_embed(reference, changed), keys, [keys], temperature=0.5)
    (expected,) = torch.autograd.grad(score.sum(), changed)
    torch.testing.assert_close(_gradient(reference, temperature=0.5)(changed.detach()), expected)


def test_images_are_differentiated_in_parts_without_a_difference(
    reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    localizer = IntegratedGradients(num_gradients=2)
    whole = localizer.maps(reference.images, _gradient(reference))
    monkeypatch.setattr("objectaware.localize.input_gradient._CHUNK", 2)
    parts = localizer.maps(reference.images, _gradient(reference))
    torch.testing.assert_close(whole, parts, atol=1e-3, rtol=0)
    assert whole.amax(dim=(1, 2, 3)).tolist() == [1.0] * 5


def test_smoothgrad_averages_gradients_of_noisy_copies(reference: Any) -> None:
    localizer, gradient = SmoothGrad(num_gradients=2, noise_level=0.1), _gradient(reference)
    found = localizer.maps(reference.images, gradient, seed=3)
    generator = torch.Generator().manual_seed(3)
    spread = 0.1 * (reference.images.amax(dim=(1, 2, 3)) - reference.images.amin(dim=(1, 2, 3))).view(-1, 1, 1, 1)
    total = sum(
        gradient(reference.images + spread * torch.randn(reference.images.shape, generator=generator)) for _ in range(2)
    )
    assert isinstance(total, Tensor)
    torch.testing.assert_close(found, saliency_map(total))
    assert (localizer.maps(reference.images, gradient, seed=4) - found).abs().max() > 0.05


def test_saliency_sums_magnitudes_and_saturates_one_per_cent() -> None:
    attributions = torch.zeros(1, 3, 10, 20)
    attributions[0, :, :, 10:] = torch.tensor([1.0, -2.0, 0.0]).view(3, 1, 1)
    attributions[0, 0, 0, 0] = 1000  # one pixel of 200 is less than a per cent
    expected = torch.zeros(1, 1, 10, 20)
    expected[..., 10:] = 1
    expected[..., 0, 0] = 1
    torch.testing.assert_close(saliency_map(attributions), expected)
    assert not saliency_map(torch.full((1, 3, 4, 4), 1e-30)).any()
    scaled = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(saliency_map(scaled * 1e-25), saliency_map(scaled))


@pytest.mark.parametrize("localizer", [IntegratedGradients(num_gradients=1), SmoothGrad(num_gradients=1)])
def test_an_image_of_one_colour_gets_zeros_and_a_batch_of_one_no_nan(
    reference: Any, localizer: GradientLocalizer
) -> None:
    images = reference.images.clone()
    images[1] = 0.3
    maps = localizer.maps(images, _gradient(reference, images))
    assert not maps[1].any()
    assert maps[0].amax() == 1
    assert torch.isfinite(localizer.maps(images[:1], _gradient(reference, images[:1]))).all()
    with torch.inference_mode():
        copy = images.clone()
        localizer.maps(copy, _gradient(reference, copy))


@pytest.mark.parametrize("arguments", [{"temperature": 0.0}, {"num_negatives": 6}])
def test_wrong_settings_are_named(reference: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        _gradient(reference, **arguments)


@pytest.mark.parametrize("fields", [{"num_gradients": 0}, {"noise_level": 0.0}])
def test_wrong_fields_are_named(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(fields))):
        SmoothGrad(**fields)


def test_given_negatives_are_the_only_ones(reference: Any) -> None:
    """Each image's map depends on itself and on the negatives, not on its companions."""
    images, negatives = reference.images[:3], reference.images[3:]
    color = torch.zeros(3)

    def run(members: Tensor) -> Tensor:
        batch = torch.cat([members, negatives])
        return contracam(
            batch, reference.encoder, reference.projector, num_iterations=3, num_negatives=2, mask_color=color
        )

    together = run(images)
    for index in range(3):
        torch.testing.assert_close(together[index], run(images[index : index + 1])[0], atol=1e-4, rtol=0)
    usual = contracam(reference.images, reference.encoder, reference.projector, num_iterations=3, mask_color=color)
    assert (together - usual).abs().max() > 0.05


def test_an_image_in_the_list_of_negatives_is_not_its_own(reference: Any) -> None:
    batch = torch.cat([reference.images, reference.images])
    is_self = torch.cat([torch.eye(5, dtype=torch.bool)] * 2)
    listed = contracam(
        batch, reference.encoder, reference.projector, num_iterations=3, num_negatives=5, is_self=is_self
    )
    usual = contracam(reference.images, reference.encoder, reference.projector, num_iterations=3)
    torch.testing.assert_close(listed[:5], usual, atol=1e-4, rtol=0)


def test_the_mask_is_the_maximum_of_the_iterations(reference: Any) -> None:
    cams: list[Tensor] = []
    mask = contracam(
        reference.images, reference.encoder, reference.projector, num_iterations=4, on_iteration=cams.append
    )
    assert len(cams) == 4
    np.testing.assert_array_equal(torch.stack(cams).amax(dim=0), mask)
