from __future__ import annotations

import ray
from ray.util.placement_group import placement_group, remove_placement_group

from objectaware.distributed.abandoned import placement_groups, wait_and_remove_new_groups


def test_groups_made_since_are_removed_even_where_no_worker_names_them(ray_session: None) -> None:
    """A training that is stopped just before its workers start leaves such a group; it held its CPUs for good."""
    kept = placement_group([{"CPU": 1}])
    ray.get(kept.ready())
    before = placement_groups()
    assert kept.id.hex() in before
    abandoned = placement_group([{"CPU": 1}])
    ray.get(abandoned.ready())
    assert placement_groups() - before == {abandoned.id.hex()}
    wait_and_remove_new_groups(before, 60)
    assert placement_groups() == before
    remove_placement_group(kept)
