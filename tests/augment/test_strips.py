"""The official code's backgrounds, with its inaccuracies."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.augment.strips import foreground_bounds, strip_background


def _picture(height: int, width: int) -> torch.Tensor:
    """Channel 0 is the row, channel 1 the column."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([rows, columns, torch.zeros_like(rows)]).float()


def test_seven_of_fifteen_object_pixels_survive() -> None:
    """official-implementation §2: the paste leaves out the last row and column of the object's box."""
    foreground = torch.zeros(20, 12, dtype=torch.bool)
    foreground[12:15, 4:9] = True
    (bounds,) = foreground_bounds(foreground[None])
    assert bounds == (12, 14, 4, 8)
    picture = torch.where(foreground, 1.0, 0.0).expand(3, -1, -1)
    assert strip_background(picture, bounds)[0].sum() == 7


def test_the_strip_above_is_tiled_over_the_picture_and_seen_in_the_box() -> None:
    covered = strip_background(_picture(20, 12), (12, 14, 4, 8))
    assert covered[0, 12:14, 4:8].tolist() == [[0.0] * 4, [1.0] * 4]  # 12 rows repeat from row 12 on
    assert covered[1, 12:14, 4:8].tolist() == [[4.0, 5.0, 6.0, 7.0]] * 2


def test_the_strip_to_the_left() -> None:
    covered = strip_background(_picture(12, 20), (4, 8, 12, 14))
    assert covered[0, 4:8, 12].tolist() == [4.0, 5.0, 6.0, 7.0]
    assert covered[1, 4, 12:14].tolist() == [0.0, 1.0]


def test_the_strip_to_the_right_begins_with_the_objects_last_column() -> None:
    covered = strip_background(_picture(10, 20), (0, 9, 2, 5))
    # Columns 5 to 19, fifteen of them, from column 0 on.
    assert covered[1, 0, 2:5].tolist() == [7.0, 8.0, 9.0]
    pictured = strip_background(_picture(10, 20), (0, 9, 0, 5))
    assert pictured[1, 0, 0:5].tolist() == [5.0, 6.0, 7.0, 8.0, 9.0]


def test_the_strip_below_begins_with_the_objects_last_row() -> None:
    covered = strip_background(_picture(20, 10), (0, 5, 0, 9))
    assert covered[0, 0:5, 0].tolist() == [5.0, 6.0, 7.0, 8.0, 9.0]
    assert covered[0, 5, 0] == 5


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 11), st.integers(0, 11))
def test_outside_the_box_nothing_changes(y0: int, y1: int, x0: int, x1: int) -> None:
    foreground = torch.zeros(1, 10, 12, dtype=torch.bool)
    foreground[0, min(y0, y1), min(x0, x1)] = foreground[0, max(y0, y1), max(x0, x1)] = True
    (bounds,) = foreground_bounds(foreground)
    if {y0, y1} == {0, 9} and {x0, x1} == {0, 11}:
        assert bounds is None
        return
    assert bounds == (min(y0, y1), max(y0, y1), min(x0, x1), max(x0, x1))
    picture = _picture(10, 12)
    covered = strip_background(picture, bounds)
    inside = torch.zeros(10, 12, dtype=torch.bool)
    inside[bounds[0] : bounds[1], bounds[2] : bounds[3]] = True
    assert torch.equal(covered[:, ~inside], picture[:, ~inside])


def test_empty_and_spanning_masks_have_no_bounds() -> None:
    masks = torch.zeros(3, 6, 6, dtype=torch.bool)
    masks[1] = True
    masks[2, 1:, :] = True
    assert foreground_bounds(masks) == [None, None, (1, 5, 0, 5)]
