from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torchvision.transforms import functional as tvf

from objectaware.augment.color import NUM_COLOR_DRAWS, ColorDistribution, sample_colors
from objectaware.training.pretraining import Trainer
from objectaware.training.views import blur_kernel_size, prepare_view


def test_views_are_normalised_as_torchvision_does(trainer_in: Callable[..., Trainer]) -> None:
    trainer = trainer_in("run")
    (batch,) = trainer._views.epoch(0, [np.arange(4)])
    nothing = ColorDistribution(jitter_probability=0, grayscale_probability=0, blur_probability=0)
    plain = replace(batch, colors=(sample_colors(np.zeros((4, NUM_COLOR_DRAWS)), nothing),) * 2)
    expected = tvf.normalize(batch.views[0].float() / 255, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    torch.testing.assert_close(prepare_view(plain, 0, torch.device("cpu")).contiguous(), expected)


def test_blur_keeps_the_papers_proportion() -> None:
    assert blur_kernel_size(224) == 23
    assert [blur_kernel_size(size) % 2 for size in range(16, 300)] == [1] * 284
