"""What the rest of the platform asks of a localizer, and one that another package brings."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError

from objectaware.config import LocalizeConfig, Localizer
from objectaware.config.localize import Cost
from objectaware.localize.center_box import CenterBox
from objectaware.localize.classifier_cam import ClassifierCAM
from objectaware.localize.contracam import ContraCAM
from objectaware.localize.full_image import FullImage
from objectaware.localize.integrated_gradients import IntegratedGradients
from objectaware.localize.localizer import Group, Network, SoftMaps
from objectaware.localize.smoothgrad import SmoothGrad
from objectaware.stages.localizers import LocalizersConfig

PICTURES = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
GROUP = Group(PICTURES, PICTURES[:0], np.zeros((2, 0), dtype=np.bool_))


def test_what_an_image_takes_is_counted_in_passes() -> None:
    assert ContraCAM(num_iterations=3, expansion=4).cost == Cost(3, expansion=4)
    assert ClassifierCAM(classifier="k").cost == Cost(1)
    assert IntegratedGradients(num_gradients=4).cost == SmoothGrad(num_gradients=4).cost == Cost(12)
    assert CenterBox(side_fraction=0.5).cost == FullImage().cost == Cost()


@pytest.mark.parametrize("name", Localizer.variants())
def test_a_localizer_has_the_fields_of_what_it_needs(name: str) -> None:
    variant = Localizer.variants()[name]
    assert variant.needs_classifier == ("classifier" in variant.model_fields)
    assert variant.needs_negatives == ("negatives" in variant.model_fields)
    assert variant.needs_network or variant.model_construct().cost == Cost()


def test_negatives_of_the_users_are_the_only_ones() -> None:
    assert ContraCAM().only_negatives is None
    assert SmoothGrad(negatives=("a.png",)).only_negatives == ("a.png",)
    assert FullImage().only_negatives is None


@pytest.fixture
def brightness(monkeypatch: pytest.MonkeyPatch) -> None:
    """A localizer as another package defines it, for the length of a test."""
    Localizer.variants()
    monkeypatch.setattr(Localizer, "_registered", dict(Localizer._registered))

    class Brightness(Localizer):
        """Bright pixels are objects."""

        name: Literal["brightness"] = "brightness"
        needs_network: ClassVar[bool] = False

        power: float = 1.0

        def build(self, network: Network) -> SoftMaps:
            def find(group: Group) -> NDArray[np.float32]:
                return (group.images.mean(axis=-1) / 255).astype(np.float32) ** np.float32(self.power)

            return find


@pytest.mark.usefixtures("brightness")
def test_a_localizer_needs_nothing_but_its_class() -> None:
    given = {"data": {"root": "photos"}, "localizer": {"name": "brightness", "power": 2}}
    config = LocalizeConfig.model_validate(given)
    assert config.model_dump()["localizer"] == {"name": "brightness", "power": 2.0}
    maps = config.localizer.build(Network(None, torch.device("cpu")))(GROUP)
    np.testing.assert_allclose(maps, (PICTURES.mean(axis=-1) / 255) ** 2, rtol=1e-5)
    with pytest.raises(ValidationError, match="checkpoint has no meaning for the localizer brightness"):
        LocalizeConfig.model_validate({**given, "checkpoint": "c"})
    with pytest.raises(ValidationError, match=r"is named localizer\.power"):
        LocalizeConfig.model_validate({"data": {"root": "photos"}, "localizer": "brightness", "power": 2})


@pytest.mark.usefixtures("brightness")
def test_a_row_of_several_localizers_is_given_what_its_localizer_needs() -> None:
    table = LocalizersConfig.model_validate(
        {
            "data": {"root": "coco", "layout": "coco", "split": "val"},
            "checkpoint": "/network",
            "shared": {"localizer": {"temperature": 0.5}, "crf": False},
            "localizers": {
                "ours": {},
                "plain": {"localizer": {"expansion": 1}},
                "theirs": {"localizer": "brightness"},
                "cam": {"localizer": "classifier_cam"},
                "fitted": {"localizer": {"name": "classifier_cam", "classifier": "/fitted"}},
            },
            "linear": {"train": {"root": "coco", "layout": "coco-crop", "split": "train"}, "tests": {}},
        }
    )
    rows = {name: table.localize_config(name, classifier="/made") for name in table.localizers}
    assert rows["ours"].localizer == ContraCAM(temperature=0.5)
    assert rows["plain"].localizer == ContraCAM(temperature=0.5, expansion=1)
    assert rows["cam"].localizer == ClassifierCAM(classifier="/made")
    assert rows["fitted"].localizer == ClassifierCAM(classifier="/fitted")
    assert [name for name in rows if table.lacks_classifier(name)] == ["cam"]
    assert [name for name, row in rows.items() if row.checkpoint is None] == ["theirs"]
    assert not any(row.crf for row in rows.values())


def test_only_localizers_with_a_network_alone_can_be_untrained() -> None:
    fields = {"data": {"root": "photos"}, "untrained": True}
    assert LocalizeConfig.model_validate({**fields, "checkpoint": "c"}).untrained
    with pytest.raises(ValidationError, match="untrained has no meaning for the localizer full_image; leave it out"):
        LocalizeConfig.model_validate({**fields, "localizer": "full_image"})
    supervised = {"name": "classifier_cam", "classifier": "k"}  # it is fitted to the trained network's features
    with pytest.raises(ValidationError, match="untrained has no meaning for the localizer classifier_cam"):
        LocalizeConfig.model_validate({**fields, "checkpoint": "c", "localizer": supervised})
