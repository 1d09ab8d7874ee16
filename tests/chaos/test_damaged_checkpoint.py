"""A checkpoint that lost its end while nobody looked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from inputs import write_pictures
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from ray_training import pretrain
from tiny_training import tiny_training


def _train(images: Path, storage: Path, num_epochs: int) -> tuple[Path, list[int]]:
    epochs: list[int] = []

    def record(entry: dict[str, Any]) -> None:
        if entry["kind"] == "epoch":
            epochs.append(entry["epoch"])

    config = tiny_training(images, num_epochs=num_epochs)
    return Path(pretrain(config, Storage.from_uri(storage), record)), epochs


@pytest.mark.slow
@pytest.mark.chaos(
    fault="a truncated checkpoint", holds="a message with its name, and no retries; nothing is overwritten"
)
@pytest.mark.timeout(600)
def test_a_truncated_checkpoint_is_named(ray_session: None, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    write_pictures(photos, 32, 40)
    checkpoint, _ = _train(photos, tmp_path, 2)
    state = checkpoint / "state.pt"
    whole = state.read_bytes()
    state.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"epoch_0001.*state\.pt") as refusal:
        _train(photos, tmp_path, 3)
    print(refusal.value)
    assert state.read_bytes() == whole[: len(whole) // 2]
    state.write_bytes(whole)
    _, epochs = _train(photos, tmp_path, 3)
    assert epochs[-1] == 2
    assert int(torch.load(tmp_path / "train" / "epoch_0002" / "state.pt", weights_only=True)["next_epoch"]) == 3
