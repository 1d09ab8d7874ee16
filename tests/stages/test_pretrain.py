from objectaware.config import PretrainConfig
from objectaware.stages.pretrain import progress_text


def test_progress_shows_the_loss_beside_its_chance_level() -> None:
    config = PretrainConfig.model_validate({"data": {"root": "photos"}})
    record = {"kind": "progress", "epoch": 0, "step": 1, "num_steps": 10, "loss": 9.5, "images_per_second": 100.0}
    shown = "epoch 1/800 · loss 9.500 (chance 11.090) · 100 images/s"
    assert progress_text(config, {**record, "chance_loss": 11.0904}, {}).startswith(f"{shown} · ")
    assert progress_text(config, {**record, "chance_loss": 11.0904}, {"knn_accuracy": 5.0}).startswith(
        f"{shown} · k-NN 5.0% · "
    )
