"""Few-shot error, class distance, nearest neighbours, shift and loss curves, as stages around their functions."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from in_process import Tasks, write_colours
from objectaware.config import DataConfig, PretrainConfig
from objectaware.errors import InputError
from objectaware.evaluate.linear import CORRUPTIONS, shift_result
from objectaware.stages.class_distance import ClassDistanceConfig, class_distance
from objectaware.stages.few_shot import FewShotConfig, few_shot
from objectaware.stages.knn import KnnConfig, knn
from objectaware.stages.linear import LinearConfig
from objectaware.stages.runner import Context, StageResult, StageRun
from objectaware.studies.curves import epoch_of, run_few_shot_curve, run_losses
from objectaware.studies.engine import Outcome, Step
from objectaware.studies.shift import published_tests, run_shift, shift_table
from stage_runs import run_as

CPU = {"image_size": 32, "execution": {"use_gpu": False}}


@pytest.fixture
def herd(tmp_path: Path) -> DataConfig:
    return write_colours(tmp_path / "herd", {"zebra": "grey", "giraffe": "orange", "grass": "green"}, 6)


def artifacts(context: Context, run_id: str | None) -> set[str]:
    assert run_id is not None
    return {file.path for file in context.services.tracking.server.client.list_artifacts(run_id)}


def runs_of(context: Context, study: str) -> list[Any]:
    client = context.services.tracking.server.client
    experiment = context.services.tracking.server.experiment_id("objectaware")
    return list(client.search_runs([experiment], f"tags.study = '{study}'"))


def test_few_shot_errors_over_seeds_and_over_checkpoints(
    context: Context, tasks: Tasks, herd: DataConfig, tiny_checkpoint: Path
) -> None:
    config = FewShotConfig.model_validate({"checkpoint": str(tiny_checkpoint), "data": herd, "seeds": [0, 1, 2], **CPU})
    result = few_shot(context, config)
    assert result.values["error"] == {"mean": 0.0, "std": 0.0}
    assert list(result.values["errors"]) == ["0", "1", "2"]
    assert result.values["num_images"] == {"giraffe": 6, "zebra": 6}
    # Another number of shots is another result of the same features; a curve of one checkpoint reuses the stage.
    few_shot(context, config.model_copy(update={"num_shots": 2}))
    curve = run_few_shot_curve(context, config, [str(tiny_checkpoint)])["curve"]
    assert curve == [{"checkpoint": str(tiny_checkpoint), "epoch": None, "mean": 0.0, "std": 0.0}]
    assert (tasks.count("write_parts"), tasks.count("measure_few_shot")) == (1, 2)
    (parent,) = runs_of(context, "few_shot")
    assert parent.data.metrics["error"] == 0.0
    assert "few_shot.png" in artifacts(context, parent.info.run_id)


def test_the_epoch_is_read_off_the_checkpoints_folder() -> None:
    assert epoch_of("/runs/pretrain/abc/train/kept/epoch_0099") == 100
    assert epoch_of("s3://bucket/train/epoch_0799/") == 800
    assert epoch_of("/runs/train/epoch_0003_step_00000007") is None
    assert epoch_of("/models/moco.pth.tar") is None


def test_distance_and_picture_of_two_classes(
    context: Context, tasks: Tasks, herd: DataConfig, tiny_checkpoint: Path
) -> None:
    values = {"checkpoint": str(tiny_checkpoint), "data": herd, "perplexity": 2, "num_points": 4, **CPU}
    result = class_distance(context, ClassDistanceConfig.model_validate(values))
    assert result.values["distance"] > 0
    assert 0 < result.values["distance_normalised"] < 4
    points = result.values["tsne"]
    assert [name for _, _, name in points] == ["giraffe"] * 4 + ["zebra"] * 4
    assert all(isinstance(place, float) for x, y, _ in points for place in (x, y))
    Image.open(io.BytesIO(result.folder.read_bytes("embedding.png"))).verify()
    assert "embedding.png" in artifacts(context, result.run_id)
    with pytest.raises(InputError, match="class_names = lion"):
        class_distance(context, ClassDistanceConfig.model_validate({**values, "class_names": ["lion", "zebra"]}))


def test_neighbours_of_the_same_colour_have_the_same_class(
    context: Context, tasks: Tasks, herd: DataConfig, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    swapped = write_colours(tmp_path / "swapped", {"giraffe": "orange", "grass": "grey", "zebra": "grey"}, 2)
    config = KnnConfig.model_validate(
        {
            "checkpoint": str(tiny_checkpoint),
            "train": herd,
            "tests": {"same": herd, "swapped": swapped},
            "num_neighbours": 3,
            **CPU,
        }
    )
    assert knn(context, config).values["accuracies"] == {"same": 100.0, "swapped": pytest.approx(200 / 3)}


def test_shift_over_two_checkpoints_is_a_table_of_means(
    context: Context, tasks: Tasks, herd: DataConfig, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in tiny_checkpoint.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    swapped = write_colours(tmp_path / "swapped", {"giraffe": "orange", "grass": "grey", "zebra": "grey"}, 2)
    tests = {"mixed_same": herd, "mixed_rand": swapped, "fog-1": herd, "fog-2": swapped}
    values = {"checkpoint": "c", "train": herd, "tests": tests, "holdout_size": 3, "num_penalties": 3, **CPU}
    config = LinearConfig.model_validate(values)
    found = run_shift(context, config, [str(tiny_checkpoint), str(other)])
    expected = {"mixed_same": 100, "mixed_rand": 200 / 3, "bg_gap": 100 / 3, "fog": 250 / 3, "corruption_mean": 250 / 3}
    assert found["mean"] == pytest.approx(expected)
    assert found["std"] == pytest.approx(dict.fromkeys(expected, 0.0), abs=1e-9)
    assert found["accuracies"][str(other)]["fog-2"] == pytest.approx(200 / 3)
    assert "mean over 2 checkpoints" in shift_table(found)
    assert "33.33 ± 0.00" in shift_table(found)
    # The other file has the same content: what was computed of the first serves it.
    assert tasks.count("measure_linear") == 1
    (parent,) = runs_of(context, "shift")
    assert parent.data.metrics["accuracy.bg_gap"] == pytest.approx(100 / 3)
    bad = config.model_copy(update={"tests": {"fog-1": herd, "snow-2": herd}})
    with pytest.raises(InputError, match="different severities"):
        run_shift(context, bad, [str(tiny_checkpoint)])


def test_each_checkpoint_is_compared_with_its_own_baseline(
    context: Context, monkeypatch: pytest.MonkeyPatch, herd: DataConfig, tmp_path: Path
) -> None:
    accuracies = {"a0": 50.0, "a1": 70.0, "b0": 48.0, "b1": 64.0}

    def measured(context: Context, steps: Sequence[Step]) -> Outcome:
        checkpoints = {step.name: Path(step.config.checkpoint).name for step in steps}
        return Outcome(
            {
                name: StageResult("", context.services.storage, {"accuracies": {"mixed": accuracies[one]}}, None, False)
                for name, one in checkpoints.items()
            }
        )

    monkeypatch.setattr("objectaware.studies.shift.run", measured)
    monkeypatch.setattr("objectaware.studies.shift.check_sources", lambda *_, **__: None)
    config = LinearConfig.model_validate({"checkpoint": "c", "train": herd, "tests": {"mixed": herd}, **CPU})
    after, before = ([str(tmp_path / f"{name}{seed}") for seed in (0, 1)] for name in "ab")
    found = run_shift(context, config, after, baselines=before)
    assert found["change"]["mixed"] == {"by_seed": (2.0, 6.0), "mean": 4.0, "std": pytest.approx(8**0.5)}
    assert found["baseline"]["mean"] == {"mixed": 56.0}
    assert "60.00 ± 14.14" in shift_table(found)
    assert "4.00 ± 2.83" in shift_table(found)
    with pytest.raises(InputError, match=r"baselines = .*: are 1, and the checkpoints are 2"):
        run_shift(context, config, after, baselines=before[:1])


def test_published_test_sets_have_the_names_that_the_table_knows(tmp_path: Path) -> None:
    tests = published_tests(["Backgrounds Challenge", "imagenet_9"], str(tmp_path))
    assert {"mixed_same", "mixed_rand", "only_bg_b"} <= tests.keys()
    assert tests["ImageNet-9"].split == "val"
    assert tests["mixed_rand"].root == str(tmp_path / "bg_challenge")
    corrupted = published_tests(["ImageNet-C-9"], str(tmp_path))
    assert len(CORRUPTIONS) == 15
    assert list(shift_result(dict.fromkeys(corrupted, 1.0))) == [*CORRUPTIONS, "corruption_mean"]
    with pytest.raises(InputError, match="sets = ImageNet-C: has a test set gaussian_noise-1"):
        published_tests(["ImageNet-C-9", "ImageNet-C"], str(tmp_path))


def test_losses_of_trainings_are_read_back_from_their_runs(context: Context) -> None:
    def trained(seed: int, losses: list[float]) -> str:
        def compute(run: StageRun, _: object) -> Mapping[str, Any]:
            for epoch, loss in enumerate(losses):
                run.tracker.log_metrics({"loss": loss}, step=epoch)
            return {}

        config = PretrainConfig.model_validate({"data": {"root": "photos"}, "seed": seed})
        return run_as(context, "pretrain", "pretrain", config, {"data": "d"}, compute, tags={}).folder.uri

    runs = {"baseline": trained(0, [7.0, 6.0]), "crops": f"{trained(1, [6.5, 5.5, 5.0])}/train/kept/epoch_0002"}
    found = run_losses(context, runs)
    assert found["curves"] == {
        "baseline": {"epochs": [1, 2], "values": [7.0, 6.0]},
        "crops": {"epochs": [1, 2, 3], "values": [6.5, 5.5, 5.0]},
    }
    Image.open(found["picture"]).verify()
    with pytest.raises(InputError, match="has no knn_accuracy"):
        run_losses(context, runs, metric="knn_accuracy")
    with pytest.raises(InputError, match="is neither the folder of a pretraining"):
        run_losses(context, {"none": str(context.services.storage.child("elsewhere").uri)})
