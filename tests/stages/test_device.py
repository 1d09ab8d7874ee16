from __future__ import annotations

from typing import Any

import pytest

from objectaware.commands.common import possible_needs
from objectaware.config import LocalizeConfig
from objectaware.stages import device
from objectaware.stages.device import device_name, on_available_device


def _config(**execution: Any) -> LocalizeConfig:
    return LocalizeConfig.model_validate(
        {"data": {"root": "photos"}, "checkpoint": "checkpoint", "execution": execution}
    )


@pytest.mark.parametrize(("gpus", "name"), [(True, "cuda"), (False, "cpu")])
def test_gpus_are_used_where_there_are_some(monkeypatch: pytest.MonkeyPatch, gpus: bool, name: str) -> None:
    monkeypatch.setattr(device, "has_gpus", lambda: gpus)
    assert device_name(on_available_device(_config(num_crf_actors=3))) == name


@pytest.mark.parametrize(("chosen", "name"), [(True, "cuda"), (False, "cpu")])
def test_what_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch, chosen: bool, name: str) -> None:
    monkeypatch.setattr(device, "has_gpus", lambda: not chosen)
    assert device_name(on_available_device(_config(use_gpu=chosen))) == name


def test_a_local_ray_is_sized_for_either_device() -> None:
    def gpus(**execution: Any) -> list[float]:
        return [max(need.num_gpus for need in needs) for needs in possible_needs([_config(**execution)])]

    assert gpus() == [0, 1]
    assert gpus(use_gpu=True) == [1, 1]
