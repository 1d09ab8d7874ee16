"""Names of checkpoints' folders."""

from __future__ import annotations

from objectaware.training.loop import checkpoint_epoch, checkpoint_name, checkpoint_position


def test_checkpoint_names_sort_as_their_epochs() -> None:
    assert checkpoint_name(7) == "epoch_0007"
    assert sorted(map(checkpoint_name, (100, 9, 10))) == ["epoch_0009", "epoch_0010", "epoch_0100"]


def test_checkpoints_are_ordered_as_training_makes_them() -> None:
    made = [checkpoint_name(8), checkpoint_name(9, 5), checkpoint_name(9, 10), checkpoint_name(9), checkpoint_name(10)]
    assert sorted((made[index] for index in (4, 1, 3, 0, 2)), key=checkpoint_position) == made


def test_the_epoch_is_read_from_the_name_of_a_checkpoint_after_it() -> None:
    assert [checkpoint_epoch(checkpoint_name(epoch)) for epoch in (0, 99, 12_345)] == [0, 99, 12_345]
    assert checkpoint_epoch(checkpoint_name(3, 7)) is None
    assert checkpoint_epoch("kept") is None
