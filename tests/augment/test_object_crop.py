import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from objectaware.augment.object_crop import object_region

BOXES = np.array([[0.1, 0.2, 0.5, 0.6], [0.5, 0.0, 1.0, 0.3]], dtype=np.float32)


def test_without_boxes_the_whole_image() -> None:
    assert object_region(np.zeros((0, 4), dtype=np.float32), 0.7, 30, 40) == (0, 0, 30, 40)


def test_each_box_is_picked_equally_often() -> None:
    regions = [object_region(BOXES, uniform, 100, 200) for uniform in np.linspace(0, 0.999, 100)]
    assert regions.count(regions[0]) == 50
    assert regions[0] == (20, 20, 41, 80)
    assert regions[-1] == (0, 100, 31, 100)


@given(st.floats(0, 0.999), st.integers(1, 300), st.integers(1, 300))
def test_a_region_lies_in_the_image_and_covers_its_box(uniform: float, height: int, width: int) -> None:
    top, left, region_height, region_width = object_region(BOXES, uniform, height, width)
    assert 0 <= top < top + region_height <= height
    assert 0 <= left < left + region_width <= width
    x0, y0, x1, y1 = BOXES[int(uniform * 2)]
    assert left <= x0 * width
    assert top <= y0 * height
    assert left + region_width >= min(x1 * width, width) - 1e-3
    assert top + region_height >= min(y1 * height, height) - 1e-3
