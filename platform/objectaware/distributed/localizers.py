"""The localizer that a configuration names, with the network that it looks through."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.config import LocalizeConfig
from objectaware.data.images import normalise
from objectaware.localize.classifier_cam import classifier_cam
from objectaware.localize.contracam import contracam
from objectaware.localize.expansion import expand_resolution
from objectaware.localize.integrated_gradients import integrated_gradients
from objectaware.localize.smoothgrad import smoothgrad
from objectaware.localize.trivial import center_box, full_image
from objectaware.methods.backbones import Activations, channels_last
from objectaware.methods.checkpoint import Encoder, load_encoder, local_checkpoint
from objectaware.methods.classifier import Classifier, load_classifier


class Localizer:
    """Soft masks of a group of images. Files are opened with the first group.

    Args:
        config: Which localizer, and its settings.
    """

    def __init__(self, config: LocalizeConfig) -> None:
        self._config = config
        self._device = torch.device("cuda" if config.execution.use_gpu else "cpu")

    def __call__(
        self,
        images: NDArray[np.uint8],
        filler: NDArray[np.uint8],
        *,
        is_self: NDArray[np.bool_],
        group: int,
        on_iteration: Callable[[NDArray[np.float32]], None] = lambda cams: None,
    ) -> NDArray[np.float32]:
        """Localizes the objects of a group.

        Args:
            images: (n, S, S, 3), n at least 1.
            filler: (m, S, S, 3), further negatives, or the only ones where the configuration gives some.
            is_self: (n, m), where an image and a filler are the same.
            group: Number of the group, for the noise.
            on_iteration: Called with the CAMs (n, S, S) of each of ContraCAM's iterations.

        Returns:
            (n, S, S) in [0, 1].
        """
        name = self._config.localizer
        if name in ("center_box", "full_image"):
            return np.repeat(self._trivial(images.shape[1])[None], len(images), axis=0)
        if name == "classifier_cam":
            classifier = self._classifier
            masks = classifier_cam(self._tensor(images), self._features, classifier.weight, classifier.bias)
            return _array(masks)
        batch, negatives = self._tensor(np.concatenate([images, filler])), self._negatives(is_self)
        if name == "contracam":
            masks = self._contracam(batch, negatives, lambda cams: on_iteration(_array(cams[: len(images)])))
        elif name == "integrated_gradients":
            masks = integrated_gradients(batch, self._features, self._projector, **self._gradients(), **negatives)
        else:
            assert self._config.noise_level is not None
            seed = int(np.random.SeedSequence([self._config.seed, group]).generate_state(1)[0])
            masks = smoothgrad(
                batch,
                self._features,
                self._projector,
                seed=seed,
                noise_level=self._config.noise_level,
                **self._gradients(),
                **negatives,
            )
        return _array(masks[: len(images)])

    def _trivial(self, size: int) -> NDArray[np.float32]:
        if self._config.side_fraction is None:
            return full_image(size, size).astype(np.float32)
        return center_box(size, size, self._config.side_fraction).astype(np.float32)

    def _contracam(self, batch: Tensor, negatives: dict[str, Any], on_iteration: Callable[[Tensor], None]) -> Tensor:
        config = self._config
        assert config.num_iterations is not None
        assert config.remove_negative_signals is not None
        assert config.temperature is not None
        color = None
        if config.mask_color is not None:
            color = self._normalised(np.array(config.mask_color, dtype=np.uint8).reshape(1, 1, 1, 3)).view(3)
        return contracam(
            batch,
            self._features,
            self._projector,
            num_iterations=config.num_iterations,
            remove_negative_signals=config.remove_negative_signals,
            temperature=config.temperature,
            mask_color=color,
            on_iteration=on_iteration,
            **negatives,
        )

    def _gradients(self) -> dict[str, Any]:
        return {"num_gradients": self._config.num_gradients, "temperature": self._config.temperature}

    def _negatives(self, is_self: NDArray[np.bool_]) -> dict[str, Any]:
        """Without a list of the user's the whole batch is its own negatives."""
        if self._config.negatives is None:
            return {}
        num_negatives = is_self.shape[1]
        own = np.concatenate([is_self, np.eye(num_negatives, dtype=np.bool_)])
        return {"num_negatives": num_negatives, "is_self": torch.from_numpy(own)}

    def _tensor(self, images: NDArray[np.uint8]) -> Tensor:
        return self._normalised(images).to(self._device, memory_format=torch.channels_last)

    def _normalised(self, images: NDArray[np.uint8]) -> Tensor:
        backbone = self._encoder.backbone
        return normalise(images, backbone.mean, backbone.std)

    @cached_property
    def _encoder(self) -> Encoder:
        assert self._config.checkpoint is not None
        with local_checkpoint(self._config.checkpoint) as folder:
            return load_encoder(folder)

    @cached_property
    def _features(self) -> Callable[[Tensor], Activations]:
        backbone = self._encoder.backbone
        if self._config.expansion is not None:
            backbone = expand_resolution(backbone, self._config.expansion)
        return channels_last(backbone, self._device).activations

    @cached_property
    def _projector(self) -> Callable[[Tensor], Tensor]:
        return self._encoder.projector.to(self._device)

    @cached_property
    def _classifier(self) -> Classifier:
        assert self._config.classifier is not None
        return load_classifier(self._config.classifier)


def _array(masks: Tensor) -> NDArray[np.float32]:
    return masks[:, 0].cpu().numpy()
