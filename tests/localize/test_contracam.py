from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from objectaware.errors import InputError
from objectaware.localize import contracam, expand_resolution
from objectaware.localize.contracam import channel_weights, class_activation_map, contrastive_score, goes_on


class Recorder:
    """Features that keep what they were shown."""

    def __init__(self, features: Callable[[Tensor], Tensor]) -> None:
        self.features = features
        self.shown: list[Tensor] = []
        self.grad_enabled: list[bool] = []

    def __call__(self, images: Tensor) -> Tensor:
        self.shown.append(images)
        self.grad_enabled.append(torch.is_grad_enabled())
        return self.features(images)


def _unit(generator: torch.Generator, *shape: int) -> Tensor:
    return F.normalize(torch.randn(*shape, generator=generator), dim=-1)


def _random_network(seed: int) -> tuple[nn.Module, nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        encoder = nn.Sequential(nn.Conv2d(3, 12, 5, 2, 2), nn.ReLU(), nn.Conv2d(12, 10, 3, 2, 1), nn.ReLU())
        return encoder, nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 6))


def _random_images(seed: int, num_images: int = 4) -> Tensor:
    return torch.randn(num_images, 3, 16, 20, generator=torch.Generator().manual_seed(seed))


def _cams(*arguments: Any, **options: Any) -> list[Tensor]:
    """The map of each iteration."""
    cams: list[Tensor] = []
    contracam(*arguments, on_iteration=cams.append, **options)
    return cams


# --- the official code's numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expansion", "num_iterations"), [(1, 1), (1, 2), (1, 10), (2, 10), (4, 10)], ids=lambda value: str(value)
)
def test_official_masks_are_reproduced(reference: Any, expansion: int, num_iterations: int) -> None:
    mask = contracam(
        reference.images,
        expand_resolution(reference.encoder, expansion),
        reference.projector,
        num_iterations=num_iterations,
        compat="official",
    )
    expected = reference.arrays[f"mask_expand{expansion}_iterations{num_iterations}"]
    np.testing.assert_allclose(mask.numpy(), expected, atol=1e-4)


def test_official_cam_of_each_iteration_and_masked_image_are_reproduced(reference: Any) -> None:
    features = Recorder(reference.encoder)
    cams = _cams(reference.images, features, reference.projector, num_iterations=2, compat="official")
    np.testing.assert_allclose(cams[0].numpy(), reference.arrays["cam1_expand1"], atol=1e-4)
    np.testing.assert_allclose(cams[1].numpy(), reference.arrays["cam2_expand1"], atol=1e-4)
    masked = reference.arrays["masked_image_after1_expand1"]
    np.testing.assert_allclose(features.shown[1].numpy(), masked, atol=1e-4)


# --- the score ---------------------------------------------------------------------------------------------


def test_score_equals_its_formula_term_by_term() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, first, second = (_unit(generator, 3, 5) for _ in range(4))
    score = contrastive_score(query, key, [first, second], temperature=0.5)
    for i in range(3):
        denominator = sum(
            float(torch.exp(query[i] @ negatives[j] / 0.5)) if j != i else 1.0
            for negatives in (first, second)
            for j in range(3)
        )
        assert float(score[i]) == pytest.approx(float(query[i] @ key[i]) / 0.5 - np.log(denominator), abs=1e-5)


def test_score_ignores_the_image_itself_in_every_set_of_negatives() -> None:
    generator = torch.Generator().manual_seed(1)
    query, key, first, second = (_unit(generator, 4, 5) for _ in range(4))
    before = contrastive_score(query, key, [first, second])
    first[2], second[2] = -first[2], _unit(generator, 5)
    after = contrastive_score(query, key, [first, second])
    assert after[2] == before[2]
    assert (after[[0, 1, 3]] != before[[0, 1, 3]]).all()


@pytest.mark.parametrize("compat", [None, "official"])
def test_positive_weights_are_one_per_image_or_the_batch_softmax_under_compat(compat: str | None) -> None:
    generator = torch.Generator().manual_seed(2)
    query, key = _unit(generator, 6, 5).requires_grad_(), _unit(generator, 6, 5)
    score = contrastive_score(query, key, [torch.zeros(6, 5)], compat=compat)
    (gradient,) = torch.autograd.grad(score.sum(), query)
    weights = (gradient * key).sum(dim=1)
    positives = (query * key).sum(dim=1).detach()
    expected = torch.ones(6) if compat is None else 6 * positives.softmax(dim=0)
    torch.testing.assert_close(weights, expected)
    assert float(weights.mean()) == pytest.approx(1, abs=1e-6)


def test_compat_matters_from_the_second_iteration_on_only() -> None:
    encoder, projector = _random_network(3)
    images = _random_images(3)
    own = _cams(images, encoder, projector, num_iterations=2)
    official = _cams(images, encoder, projector, num_iterations=2, compat="official")
    torch.testing.assert_close(own[0], official[0])
    assert (own[1] - official[1]).abs().max() > 1e-4


def test_temperature_changes_the_map() -> None:
    encoder, projector = _random_network(4)
    images = _random_images(4)
    maps = [contracam(images, encoder, projector, num_iterations=1, temperature=t) for t in (1.0, 0.05)]
    assert (maps[0] - maps[1]).abs().max() > 1e-3


# --- the weights of the channels ---------------------------------------------------------------------------


@pytest.mark.parametrize("compat", [None, "official"])
def test_weights_equal_the_gradient_through_the_feature_map(reference: Any, compat: str | None) -> None:
    key = F.normalize(reference.projector(reference.encoder(reference.images).mean(dim=(2, 3))), dim=1).detach()
    activation = reference.encoder(reference.images.flip(3) * 0.7).detach().requires_grad_()

    def score(query: Tensor) -> Tensor:
        return contrastive_score(query, key, [key, query.detach()], compat=compat)

    embedding = F.normalize(reference.projector(activation.mean(dim=(2, 3))), dim=1)
    (gradient,) = torch.autograd.grad(score(embedding).sum(), activation)
    closed_form = channel_weights(activation.detach().mean(dim=(2, 3)), reference.projector, score)
    num_positions = activation.shape[2] * activation.shape[3]
    assert gradient.abs().max() > 1e-5
    torch.testing.assert_close(closed_form / num_positions, gradient.mean(dim=(2, 3)), atol=1e-6, rtol=0)
    spatially_constant = gradient.mean(dim=(2, 3), keepdim=True).expand_as(gradient)
    torch.testing.assert_close(gradient, spatially_constant, atol=1e-8, rtol=1e-5)


def test_positive_gives_no_gradient_in_the_first_iteration(reference: Any) -> None:
    pooled = reference.encoder(reference.images).mean(dim=(2, 3)).detach()

    def with_positive(query: Tensor) -> Tensor:
        return contrastive_score(query, query.detach(), [query.detach()])

    def without_positive(query: Tensor) -> Tensor:
        return contrastive_score(query, torch.zeros_like(query), [query.detach()])

    torch.testing.assert_close(
        channel_weights(pooled, reference.projector, with_positive),
        channel_weights(pooled, reference.projector, without_positive),
        atol=1e-7,
        rtol=1e-5,
    )


def test_trunk_is_called_once_an_iteration_without_gradients(reference: Any) -> None:
    features = Recorder(reference.encoder)
    contracam(reference.images, features, reference.projector, num_iterations=3)
    assert features.grad_enabled == [False] * 3
    assert all(parameter.grad is None for parameter in reference.projector.parameters())


def test_removing_negative_signals_is_a_relu_on_the_weights_and_nothing_else() -> None:
    encoder, projector = _random_network(5)
    images = _random_images(5)
    kept, removed = (
        contracam(images, encoder, projector, num_iterations=1, remove_negative_signals=remove)
        for remove in (False, True)
    )
    with torch.no_grad():
        activation = encoder(images)
    weights = channel_weights(
        activation.mean(dim=(2, 3)), projector, lambda q: contrastive_score(q, q.detach(), [q.detach()])
    )
    assert (weights < 0).any()
    torch.testing.assert_close(kept, class_activation_map(activation, weights, (16, 20)))
    torch.testing.assert_close(removed, class_activation_map(activation, weights.relu(), (16, 20)))
    assert (kept - removed).abs().max() > 1e-3


# --- the map -----------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), factor=st.sampled_from([1e-30, 1e-6, 0.5, 3.0, 1e8]))
def test_scaling_the_score_leaves_the_map_unchanged(seed: int, factor: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    activation = torch.rand(3, 7, 4, 5, generator=generator)
    weights = torch.randn(3, 7, generator=generator)
    torch.testing.assert_close(
        class_activation_map(activation, weights * factor, (16, 20)),
        class_activation_map(activation, weights, (16, 20)),
        atol=1e-4,
        rtol=0,
    )


def test_map_is_enlarged_after_the_relu() -> None:
    activation = torch.zeros(1, 1, 7, 7)
    activation[0, 0, 3, 3] = 1.0
    activation[0, 0, 3, 4] = -1.0
    cam = class_activation_map(activation, torch.ones(1, 1), (56, 56))
    mirrored = cam.flip(3)
    # Were the negative neighbour enlarged too, it would pull the map to the left.
    torch.testing.assert_close(cam, mirrored, atol=1e-5, rtol=0)
    # Bicubic undershoot: the true background lies above the minimum.
    assert float(cam[0, 0, 0, 0]) == pytest.approx(0.1, abs=0.03)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), compat=st.sampled_from([None, "official"]))
def test_maps_lie_in_the_unit_interval_and_masks_only_grow(seed: int, compat: str | None) -> None:
    encoder, projector = _random_network(seed)
    images = _random_images(seed)
    cams = _cams(images, encoder, projector, num_iterations=4, compat=compat)
    for cam in cams:
        assert cam.shape == (4, 1, 16, 20)
        assert cam.dtype == torch.float32
        low, high = cam.amin(dim=(1, 2, 3)), cam.amax(dim=(1, 2, 3))
        assert (low == 0).all()
        assert (((high - 1).abs() < 1e-6) | (high == 0)).all()
    masks = [contracam(images, encoder, projector, num_iterations=n, compat=compat) for n in (1, 2, 4)]
    assert (masks[1] >= masks[0] - 1e-6).all()
    assert (masks[2] >= masks[1] - 1e-6).all()
    torch.testing.assert_close(masks[2], torch.stack(cams).amax(dim=0))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.permutations(range(4)))
def test_permuting_the_batch_permutes_the_masks(seed: int, order: list[int]) -> None:
    encoder, projector = _random_network(seed)
    images = _random_images(seed)
    torch.testing.assert_close(
        contracam(images[order], encoder, projector, num_iterations=3),
        contracam(images, encoder, projector, num_iterations=3)[order],
        atol=2e-4,
        rtol=0,
    )


# --- the end of the iterations, which is not in the paper ---------------------------------------------------


def _masks(*shares: float) -> Tensor:
    """Masks of 10 × 10 pixels, each with 1 on a part of them."""
    masks = torch.zeros(len(shares), 1, 10, 10)
    for mask, share in zip(masks, shares, strict=True):
        mask.view(-1)[: round(100 * share)] = 1
    return masks


@pytest.mark.parametrize(
    ("min_change", "max_share", "expected"),
    [
        (None, None, [True, True, True, True]),
        (0.05, None, [False, True, True, True]),
        (None, 0.5, [True, True, False, True]),  # the last is a first iteration
        (0.05, 0.5, [False, True, False, True]),
        (0.01, 0.2, [True, False, False, True]),
    ],
)
def test_iterations_end_by_the_growth_or_the_share_of_a_mask(
    min_change: float | None, max_share: float | None, expected: list[bool]
) -> None:
    before, after = _masks(0.1, 0.1, 0.1, 0), _masks(0.11, 0.3, 0.8, 0.9)
    assert goes_on(before, after, min_change=min_change, max_share=max_share).tolist() == expected


def test_only_what_exceeds_a_half_counts_as_covered() -> None:
    before, after = _masks(0.1), _masks(0.1).clamp_min(0.5)
    assert goes_on(before, after, min_change=None, max_share=0.1).tolist() == [True]
    assert goes_on(before, after + 0.01, min_change=None, max_share=0.1).tolist() == [False]


def test_an_image_that_has_ended_keeps_the_mask_before_the_limit() -> None:
    encoder, projector = _random_network(3)
    images = _random_images(5, num_images=6)
    masks = [contracam(images, encoder, projector, num_iterations=number) for number in (1, 2)]
    shares = (masks[1] > 0.5).float().mean(dim=(1, 2, 3))
    limit = float(shares.sort().values[2:4].mean())
    stopped = contracam(images, encoder, projector, num_iterations=2, max_share=limit)
    is_over = shares > limit
    assert 0 < int(is_over.sum()) < len(images)
    assert stopped[is_over].equal(masks[0][is_over])
    assert stopped[~is_over].equal(masks[1][~is_over])
    assert not masks[0][is_over].equal(masks[1][is_over])


def test_an_image_never_starts_again_once_it_has_ended() -> None:
    encoder, projector = _random_network(3)
    images = _random_images(5, num_images=6)
    first = contracam(images, encoder, projector, num_iterations=1)
    # No mask grows by its whole range, so that each image ends after the first iteration.
    assert contracam(images, encoder, projector, num_iterations=5, min_change=1.0).equal(first)
    every = contracam(images, encoder, projector, num_iterations=5)
    assert contracam(images, encoder, projector, num_iterations=5, min_change=0.0, max_share=1.0).equal(every)


def test_other_images_of_the_batch_are_the_negatives() -> None:
    encoder, projector = _random_network(6)
    images = _random_images(6, num_images=6)
    few, many = (contracam(images[:n], encoder, projector, num_iterations=2) for n in (3, 6))
    assert (few - many[:3]).abs().max() > 1e-4


# --- masking -----------------------------------------------------------------------------------------------


def test_masked_pixels_take_the_mean_color_of_the_batch_or_the_given_one(reference: Any) -> None:
    color = torch.tensor([3.0, -2.0, 0.5])
    for given_color, expected in ((None, reference.images.mean(dim=(0, 2, 3))), (color, color)):
        features = Recorder(reference.encoder)
        first, _ = _cams(reference.images, features, reference.projector, num_iterations=2, mask_color=given_color)
        masked = features.shown[1]
        assert torch.equal(features.shown[0], reference.images)
        kept, covered = (first == 0).expand_as(masked), (first == 1).expand_as(masked)
        assert kept.any()
        assert covered.any()
        torch.testing.assert_close(masked[kept], reference.images[kept])
        torch.testing.assert_close(masked[covered], expected.view(1, 3, 1, 1).expand_as(masked)[covered])


# --- nothing to find ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_iterations", [1, 5])
@pytest.mark.parametrize("compat", [None, "official"])
def test_batch_of_one_has_score_one_and_an_empty_mask(reference: Any, num_iterations: int, compat: str | None) -> None:
    images = reference.images[:1]
    embedding = F.normalize(reference.projector(reference.encoder(images).mean(dim=(2, 3))), dim=1).detach()
    assert float(contrastive_score(embedding, embedding, [embedding], compat=compat)) == pytest.approx(1)
    mask = contracam(images, reference.encoder, reference.projector, num_iterations=num_iterations, compat=compat)
    assert torch.equal(mask, torch.zeros(1, 1, 64, 64))


def test_equal_images_have_empty_masks(reference: Any) -> None:
    images = reference.images[:1].repeat(4, 1, 1, 1)
    assert not contracam(images, reference.encoder, reference.projector, num_iterations=3).any()


def test_constant_image_has_an_empty_mask_and_the_others_do_not(reference: Any) -> None:
    images = reference.images.clone()
    images[2] = torch.tensor([0.3, -1.0, 0.0]).view(3, 1, 1)
    highest = contracam(images, reference.encoder, reference.projector, num_iterations=3).amax(dim=(1, 2, 3))
    assert highest.tolist() == pytest.approx([1, 1, 0, 1, 1])


def test_image_constant_in_one_channel_is_not_taken_for_constant(reference: Any) -> None:
    images = reference.images.clone()
    images[2, 0] = 0.0
    mask = contracam(images, reference.encoder, reference.projector, num_iterations=1)
    assert float(mask[2].max()) == pytest.approx(1)


def test_dead_features_have_an_empty_mask(reference: Any) -> None:
    mask = contracam(
        reference.images,
        lambda images: torch.zeros(len(images), 32, 2, 2),
        reference.projector,
        num_iterations=2,
    )
    assert torch.equal(mask, torch.zeros(5, 1, 64, 64))


def test_constant_map_becomes_zeros() -> None:
    cam = class_activation_map(torch.full((1, 3, 4, 4), 0.7), torch.tensor([[1.0, 2.0, 0.1]]), (30, 30))
    assert torch.equal(cam, torch.zeros(1, 1, 30, 30))


# --- precision and modes -----------------------------------------------------------------------------------


def test_bfloat16_features_are_scored_in_float32(reference: Any) -> None:
    seen: list[torch.dtype] = []

    def projector(pooled: Tensor) -> Tensor:
        output = reference.projector(pooled)
        seen.extend([pooled.dtype, output.dtype])
        return output

    def features(images: Tensor) -> Tensor:
        return reference.encoder(images).bfloat16()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        mask = contracam(reference.images, features, projector, num_iterations=2)
    assert set(seen) == {torch.float32}
    assert mask.dtype == torch.float32
    exact = contracam(reference.images, reference.encoder, reference.projector, num_iterations=1)
    rounded = contracam(reference.images, features, projector, num_iterations=1)
    assert float((exact - rounded).abs().mean()) < 0.05


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_runs_inside_inference_mode(reference: Any, mode: Callable[[], Any]) -> None:
    expected = contracam(reference.images, reference.encoder, reference.projector, num_iterations=2)
    with mode():
        found = contracam(reference.images.clone(), reference.encoder, reference.projector, num_iterations=2)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("images", {"images": torch.zeros(3, 64, 64)}),
        ("images", {"images": torch.zeros(2, 1, 64, 64)}),
        ("images", {"images": torch.zeros(0, 3, 64, 64)}),
        ("images", {"images": torch.zeros(2, 3, 64, 64, dtype=torch.uint8)}),
        ("num_iterations", {"num_iterations": 0}),
        ("temperature", {"temperature": 0.0}),
        ("temperature", {"temperature": float("nan")}),
        ("mask_color", {"mask_color": torch.zeros(1, 3)}),
        ("compat", {"compat": "moco"}),
    ],
)
def test_wrong_arguments_are_named(reference: Any, field: str, arguments: dict[str, Any]) -> None:
    given = {"images": reference.images, **arguments}
    with pytest.raises(InputError) as refusal:
        contracam(features=reference.encoder, projector=reference.projector, **given)
    assert refusal.value.field == field


def test_training_mode_and_broken_weights_are_refused(reference: Any) -> None:
    projector = nn.Sequential(nn.Linear(32, 8), nn.BatchNorm1d(8))
    with pytest.raises(InputError, match="batch normalisation"):
        contracam(reference.images, reference.encoder, projector)
    with pytest.raises(InputError, match="NaN"):
        contracam(reference.images, lambda images: reference.encoder(images) * torch.nan, reference.projector)
