"""Any network of timm as a backbone. No other module imports timm.

The import stands inside the functions. Loading the methods imports all modules of this folder, and importing timm takes
a second.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from objectaware.errors import InputError
from objectaware.methods.backbones import Activations, Backbone


class TimmBackbone(Backbone):
    """A network of timm, with maps (N, C, h, w) whatever form its features have, and with its own pooling.

    Weights are random and are not downloaded. Vision transformers take images of any size that is a multiple of their
    patch size: position embeddings have the same size as in timm, and are interpolated.

    Args:
        network: Name in timm, with or without a tag.

    Raises:
        InputError: The name is not known.
    """

    def __init__(self, network: str) -> None:
        super().__init__()
        self.check(network)
        self.name = f"timm/{network}"
        self.network, self._takes_any_size = _create(network)
        published: Mapping[str, Any] = self.network.pretrained_cfg
        self.mean, self.std = published["mean"], published["std"]
        self.input_size = published["input_size"][-1]
        self._takes_any_size |= not published.get("fixed_input_size", False)
        # Some networks have layers between pooling and classifier, which change the number of features.
        self.num_features = getattr(self.network, "head_hidden_size", None) or self.network.num_features
        self.stride = self.network.feature_info[-1]["reduction"]
        self._num_prefix_tokens = getattr(self.network, "num_prefix_tokens", 0)
        patch_size = getattr(getattr(self.network, "patch_embed", None), "patch_size", None)
        self._patch = patch_size[0] if isinstance(patch_size, tuple) else 1

    @staticmethod
    def check(network: str) -> None:
        """Check that timm has a network.

        Raises:
            InputError: timm does not have it. The message names the networks with the closest names.
        """
        import timm

        architecture, _, tag = network.partition(".")
        if not timm.is_model(architecture):
            known, what = timm.list_models(), "network"
        elif tag and network not in timm.list_models(architecture, pretrained=True):
            known, what = timm.list_models(architecture, pretrained=True), "tag"
        else:
            return
        closest = ", ".join(f"timm/{name}" for name in difflib.get_close_matches(network, known, n=3, cutoff=0.3))
        remedy = f"The closest are {closest}." if closest else "timm.list_models() lists all."
        raise InputError("backbone", f"timm/{network}", f"timm {timm.__version__} has no such {what}", remedy)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the pooled features (N, num_features) of images (N, 3, H, W)."""
        self.check_size(images.shape[2], images.shape[3])
        return self._pool(self.network.forward_features(images))

    def activations(self, images: Tensor) -> Activations:
        """Compute the maps of images (N, 3, H, W), with the function that pools them.

        If the network pools by its class token, the maps are the input of the last block: the block's output for the
        patches is not used, and has no gradient.
        """
        self.check_size(images.shape[2], images.shape[3])
        if self._num_prefix_tokens and getattr(self.network, "global_pool", None) == "token":
            return self._before_last_block(images)
        features = self.network.forward_features(images)
        if not isinstance(features, Tensor):
            self._refuse("its features are not one tensor")
        if features.ndim == 3:
            return self._of_tokens(features, images, self._pool)
        if features.ndim != 4:
            self._refuse(f"its features have the shape {tuple(features.shape)}")
        if features.shape[1] == self.network.num_features:
            return Activations(features, self._pool)
        return Activations(features.permute(0, 3, 1, 2), lambda maps: self._pool(maps.permute(0, 2, 3, 1)))

    def weights(self) -> Mapping[str, Tensor]:
        """Return the state under timm's names."""
        return self.network.state_dict()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load a state that `weights` returned; it must be complete."""
        self.network.load_state_dict(weights)

    def stages(self) -> Sequence[nn.Module]:
        """Return the stem and the four stages of a ResNet; nothing for other networks."""
        from timm.models import ResNet

        if not isinstance(self.network, ResNet):
            return ()
        stem = [self.network.get_submodule(name) for name in ("conv1", "bn1", "act1", "maxpool")]
        return nn.Sequential(*stem), *(self.network.get_submodule(f"layer{number}") for number in range(1, 5))

    def _pool(self, features: Tensor) -> Tensor:
        return self.network.forward_head(features, pre_logits=True)

    def _before_last_block(self, images: Tensor) -> Activations:
        network = self.network
        from timm.models import Beit, Eva, VisionTransformer, VisionTransformerRelPos

        # In these networks the class token passes through the last of `blocks` and then `norm`.
        if not isinstance(network, VisionTransformer | VisionTransformerRelPos | Eva | Beit):
            self._refuse("how its class token is made is not known")
        given: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        last_block = network.blocks[-1]
        hook = last_block.register_forward_pre_hook(
            lambda _, positional, named: given.append((positional, named)), with_kwargs=True
        )
        try:
            network.forward_features(images)
        finally:
            hook.remove()
        (tokens, *others), named = given[0]
        return self._of_tokens(tokens, images, lambda x: self._pool(network.norm(last_block(x, *others, **named))))

    def _of_tokens(self, tokens: Tensor, images: Tensor, pool: Callable[[Tensor], Tensor]) -> Activations:
        """Arrange tokens (N, T, C) as maps. The tokens that are not patches come first."""
        size = -(-images.shape[2] // self.stride), -(-images.shape[3] // self.stride)
        prefix, patches = tokens[:, : self._num_prefix_tokens], tokens[:, self._num_prefix_tokens :]
        if patches.shape[1] != size[0] * size[1]:
            self._refuse(f"its {patches.shape[1]} tokens are not a map of {size[0]} × {size[1]}")

        def pool_maps(maps: Tensor) -> Tensor:
            # Copy it: a tensor made in inference mode cannot take part in a gradient.
            return pool(torch.cat([prefix.clone().to(maps.dtype), maps.flatten(2).transpose(1, 2)], dim=1))

        return Activations(patches.transpose(1, 2).reshape(len(tokens), -1, *size), pool_maps)

    def check_size(self, height: int, width: int) -> None:
        """Check that the network takes images of a size.

        Raises:
            InputError: The network does not take images of this size.
        """
        size = f"{height} × {width}"
        if not self._takes_any_size and (height, width) != (self.input_size, self.input_size):
            problem = f"{self.name} takes only images of {self.input_size} × {self.input_size} pixels"
            raise InputError("image_size", size, problem, f"Give {self.input_size}.")
        if self._takes_any_size and (height % self._patch or width % self._patch):
            problem = f"is not a multiple of {self._patch}, the side of a patch of {self.name}"
            raise InputError("image_size", size, problem, f"Give {max(height // self._patch, 1) * self._patch}.")

    def _refuse(self, reason: str) -> NoReturn:
        raise InputError("backbone", self.name, f"gives no maps to find objects in: {reason}", "Use another network.")


def _create(network: str) -> tuple[Any, bool]:
    """Return a new network without classifier, and whether it was built to take images of any size."""
    import timm

    try:
        return timm.create_model(network, pretrained=False, num_classes=0, dynamic_img_size=True), True
    except TypeError as error:  # most networks have no such option
        if "dynamic_img_size" not in str(error):
            raise
    return timm.create_model(network, pretrained=False, num_classes=0), False
