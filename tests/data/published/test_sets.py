from __future__ import annotations

from pathlib import Path

import pytest

from objectaware.data.published import PUBLISHED_SETS, published_data, published_set
from objectaware.errors import InputError
from objectaware.paper import TABLE_LABELS, load_table

PARTS = [pytest.param(one.name, part, id=f"{one.name}: {part}") for one in PUBLISHED_SETS for part in one.parts]


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_every_part_is_a_configuration(name: str, part: str) -> None:
    data = published_data(name, part, "data")
    assert data.root == str(Path("data", published_set(name).folder).absolute())
    assert set(published_set(name).num_images) <= set(published_set(name).parts)


def test_names_and_what_goes_with_them_are_whole() -> None:
    assert len({one.name for one in PUBLISHED_SETS}) == len(PUBLISHED_SETS)
    assert all(one.licence and one.source and one.folder for one in PUBLISHED_SETS)


def test_a_set_is_found_by_its_name_however_it_is_written() -> None:
    assert published_set("backgrounds-challenge") is published_set("Backgrounds Challenge")
    with pytest.raises(InputError, match=r"data set = MNIST: is not known\. Use one of: .*COCO, "):
        published_set("MNIST")
    with pytest.raises(InputError, match=r"part = test: is not a part of COCO\. Use one of: train, val\."):
        published_data("COCO", "test", "data")


def test_sets_lie_where_the_user_says() -> None:
    assert published_data("COCO", "val", "data", {"COCO": "/mnt/photos"}).root == "/mnt/photos"
    assert published_data("COCO-Crop", "val", "data", {"COCO": "/mnt/photos"}).root == "/mnt/photos"
    both = {"ImageNet-R": "/mnt/r", "ImageNet-R-9": "/mnt/nine"}
    assert published_data("imagenet-r-9", "test", "data", both).root == "/mnt/nine"
    assert published_data("COCO", "val", "/data", {"ImageNet": "/mnt/photos"}).root == "/data/COCO"


def test_the_documentation_says_what_the_table_says() -> None:
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    papers = _papers_data_sets()
    for one in (one for one in PUBLISHED_SETS if one.name in papers):
        name = one.name.removesuffix("-9") if "classes" in next(iter(one.parts.values())) else one.name
        assert any(name in row.split("|")[1] and f"`{one.folder}`" in row for row in rows), one.name
        assert one.name in page
    used = {str(fields["layout"]) for one in PUBLISHED_SETS if one.name in papers for fields in one.parts.values()}
    for name in {*used, "folder", "class-folders", "shards"}:
        assert any(f"`{name}`" in row.split("|")[1] for row in rows), name


def test_every_data_set_of_the_papers_tables_is_known() -> None:
    assert _papers_data_sets() <= {one.name for one in PUBLISHED_SETS}


def _papers_data_sets() -> set[str]:
    return {name for label in TABLE_LABELS for name in load_table(label).datasets}
