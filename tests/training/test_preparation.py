from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torchvision.transforms import functional as tvf

from kernels import KernelCount
from objectaware.augment.color import NUM_COLOR_DRAWS, ColorDistribution, sample_colors
from objectaware.training.pretraining import Trainer
from objectaware.training.views import ViewBatch, blur_kernel_size, prepare_view


def test_views_are_normalised_as_torchvision_does(trainer_in: Callable[..., Trainer]) -> None:
    trainer = trainer_in("run")
    (batch,) = trainer._views.epoch(0, [np.arange(4)])
    nothing = ColorDistribution(jitter_probability=0, grayscale_probability=0, blur_probability=0)
    plain = replace(batch, colors=(sample_colors(np.zeros((4, NUM_COLOR_DRAWS)), nothing),) * 2)
    expected = tvf.normalize(batch.views[0].float() / 255, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    torch.testing.assert_close(prepare_view(plain, 0, torch.device("cpu")).contiguous(), expected)


def test_a_gpu_gets_few_kernels_and_is_never_waited_for() -> None:
    random = np.random.default_rng(0)
    colors = sample_colors(random.random((256, NUM_COLOR_DRAWS)), ColorDistribution())
    assert len(set(colors.order.tolist())) == 24
    pixels = torch.empty(256, 3, 224, 224, dtype=torch.uint8, device="meta")
    batch = ViewBatch(
        views=(pixels, pixels),
        colors=(colors, colors),
        mix_draws=torch.empty(256, 0),
        masks=None,
        unreadable=np.zeros(256, dtype=np.bool_),
        indices=np.arange(256),
    )
    with KernelCount() as count:
        for position in range(2):
            view = prepare_view(batch, position, torch.device("meta"))
            assert view.shape == pixels.shape
    assert count.kernels.total() <= 600, count.kernels


def test_blur_keeps_the_papers_proportion() -> None:
    assert blur_kernel_size(224) == 23
    assert [blur_kernel_size(size) % 2 for size in range(16, 300)] == [1] * 284
