"""What a stage asks of a cluster, what is refused, and what is said while it waits."""

from __future__ import annotations

import json
from typing import Any

import pytest
import ray

from actors import placement_groups
from objectaware.distributed import room
from objectaware.distributed.room import (
    Capacity,
    Need,
    NodeType,
    NoRoomError,
    configured_types,
    first_autoscalers_report,
    refusal,
    require_possible,
    total_cpus,
    wait_for_room,
    waiting_line,
)
from objectaware.errors import InputError

SMALL, GPU = NodeType({"CPU": 8}, 4), NodeType({"CPU": 16, "GPU": 4}, 2)
HEAD = {"CPU": 0.0}
GROWING = Capacity([HEAD], {}, can_grow=True, node_types=[SMALL, GPU])
UNKNOWN = Capacity([HEAD], {}, can_grow=True)


def _problem(needs: list[Need], capacity: Capacity) -> str:
    error = refusal("localize", needs, capacity)
    return "" if error is None else error.problem


def test_the_needs_add_up() -> None:
    assert total_cpus([Need("readers", 2, 0.5), Need("actors", 3, 2), Need("gpus", 4, 0, 1)]) == 7


def test_a_cluster_that_cannot_grow_refuses_more_than_it_has() -> None:
    static = Capacity([{"CPU": 4}, {"CPU": 4}], {"CPU": 8})
    assert _problem([Need("readers", 4, 2)], static) == ""
    needs = [Need("readers", 1, 1), Need("num_cam_actors", 4, 2.5), Need("idle", 5, 0)]
    assert _problem(needs, static) == "needs 1 readers × 1 + 4 num_cam_actors × 2.5 = 11 CPUs, the cluster has 8"
    assert _problem([Need("num_workers", 2, 0, 1)], static) == "needs 2 num_workers × 1 = 2 GPUs, the cluster has 0"


def test_a_process_that_is_larger_than_each_node_is_refused() -> None:
    """The nodes have enough CPUs together, so that it would wait without end."""
    static = Capacity([{"CPU": 4}, {"CPU": 4}], {"CPU": 8})
    assert (
        _problem([Need("num_workers", 1, 6)], static) == "each of 1 num_workers needs 6 CPUs, which no single node has"
    )
    assert _problem([Need("num_workers", 1, 17, 1)], GROWING).startswith(
        "each of 1 num_workers needs 17 CPUs and 1 GPU"
    )


def test_a_cluster_that_grows_refuses_only_what_no_shape_of_it_could_hold() -> None:
    assert _problem([Need("num_workers", 8, 2, 1)], GROWING) == ""
    assert _problem([Need("num_workers", 9, 1, 1)], GROWING).endswith("= 9 GPUs, the cluster can have at most 8")
    assert _problem([Need("readers", 65, 1)], GROWING).endswith("= 65 CPUs, the cluster can have at most 64")
    fewer = Capacity([HEAD], {}, can_grow=True, node_types=[SMALL, GPU], max_nodes=3)
    assert _problem([Need("readers", 41, 1)], fewer).endswith("= 41 CPUs, the cluster can have at most 40")


def test_nothing_is_refused_where_the_nodes_to_come_are_not_known() -> None:
    assert _problem([Need("num_workers", 1000, 64, 8)], UNKNOWN) == ""


def test_what_lives_counts_even_if_the_configuration_does_not_name_it() -> None:
    with_machine = Capacity([{"CPU": 100}], {}, can_grow=True, node_types=[SMALL])
    assert _problem([Need("num_workers", 1, 90)], with_machine) == ""


def test_the_line_says_what_is_waited_for_what_there_is_and_what_comes() -> None:
    needs = [Need("num_workers", 2, 6, 1), Need("decoders", 4, 2)]
    busy = Capacity([{"CPU": 32, "GPU": 1}], {"CPU": 3.5}, can_grow=True, coming={"gpu-worker": 1, "cpu-worker": 2})
    assert waiting_line("training", needs, busy, 5) == (
        "training waits for 20 CPUs and 2 GPUs: the cluster has 32 CPUs and 1 GPU, of which 3.5 CPUs and 0 GPUs are "
        "free; on their way: 2 cpu-worker, 1 gpu-worker"
    )
    assert waiting_line("localize", needs, UNKNOWN, 190).endswith("; no node is on its way (3 min)")
    static = Capacity([{"CPU": 8}], {})
    assert waiting_line("localize", [Need("readers", 2, 1)], static, 5).endswith("8 CPUs, of which 0 CPUs are free")


def test_room_is_counted_in_whole_stages() -> None:
    capacity = Capacity([{"CPU": 10, "GPU": 4}], {})
    assert capacity.room([Need("num_workers", 2, 2)]) == 2
    assert capacity.room([Need("num_workers", 1, 1, 1)]) == 4
    assert GROWING.room([Need("num_workers", 1, 1, 1)]) == 0
    assert GROWING.most_room([Need("num_workers", 1, 1, 1)]) == 8


def test_the_launchers_configuration_says_what_there_can_be() -> None:
    config: dict[str, Any] = {
        "max_workers": 5,
        "head_node_type": "head",
        "available_node_types": {
            "head": {"resources": {"CPU": 2}},
            "small": {"resources": {"CPU": 8}, "max_workers": 50},
            "gpu": {"resources": {"CPU": 16, "GPU": 4}, "max_workers": 2},
        },
    }
    kinds, max_nodes = configured_types(config)
    assert kinds == [NodeType({"CPU": 2}, 1), NodeType({"CPU": 8}, 5), GPU]
    assert max_nodes == 6
    config["available_node_types"]["gpu"].pop("resources")
    assert configured_types(config) == (None, 6)
    assert configured_types({"max_workers": 5})[0] is None


def _status(active: dict[str, int]) -> bytes:
    report = {
        "active_nodes": active,
        "pending_launches": {"gpu": 2},
        "pending_nodes": [["10.0.0.7", "gpu", "setting-up"], ["10.0.0.8", "cpu", "waiting-for-ssh"]],
    }
    return json.dumps({"time": 0.0, "autoscaler_report": report}).encode()


def test_the_first_autoscaler_is_told_from_a_cluster_without_one() -> None:
    assert first_autoscalers_report(None) is None
    assert first_autoscalers_report(b'{"time": 0.0}') is None
    assert first_autoscalers_report(_status({"node_0123": 1, "node_4567": 1})) is None
    assert first_autoscalers_report(_status({"head": 1})) == {"gpu": 3, "cpu": 1}


def test_a_ray_without_an_autoscaler_cannot_grow(ray_session: None) -> None:
    capacity = room.current_capacity()
    assert not capacity.can_grow
    assert capacity.total("CPU") == ray.cluster_resources()["CPU"]
    with pytest.raises(InputError, match=rf"= 1000 GPUs, the cluster has {capacity.total('GPU'):g}"):
        require_possible("pretrain", [Need("num_workers", 1000, 0, 1)])


def test_what_is_free_is_not_waited_for(ray_session: None) -> None:
    lines: list[str] = []
    assert not wait_for_room("localize", [Need("readers", 1, 1), Need("idle", 3, 0)], say=lines.append)
    assert lines == []


@pytest.mark.parametrize(
    ("capacity", "number"),
    [
        (Capacity([{"GPU": 2}, {"GPU": 1}], {}), 3),
        (GROWING, 8),
        (UNKNOWN, 0),
        (Capacity([{"GPU": 2}], {}, can_grow=True), 2),
    ],
)
def test_gpus_count_if_the_cluster_has_them_or_can_have_them(
    capacity: Capacity, number: int, ray_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "current_capacity", lambda: capacity)
    assert room.num_gpus() == number


def test_the_wait_for_a_neighbour_is_said_and_ends_with_it_or_at_the_limit(
    ray_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Neighbour:  # in the test, since a worker cannot import this module
        def ping(self) -> None:
            pass

    monkeypatch.setattr(room, "_SECONDS_UNTIL_SAID", 0.0)
    neighbour = ray.remote(Neighbour).options(num_cpus=ray.cluster_resources()["CPU"]).remote()
    ray.get(neighbour.ping.remote())
    before = placement_groups()
    needs, lines = [Need("readers", 2, 1)], list[str]()
    # Ray's view of what is free may be older than the neighbour.
    monkeypatch.setattr(room, "free_resources", dict)
    with pytest.raises(NoRoomError, match=r"execution\.max_wait_minutes = 0\.001"):
        wait_for_room("localize", needs, max_wait_minutes=0.001, say=lambda line: None)

    def say(line: str) -> None:
        lines.append(line)
        if len(lines) == 1:
            ray.kill(neighbour)

    assert wait_for_room("localize", needs, say=say)
    assert lines[0].startswith("localize waits for 2 CPUs: the cluster has ")
    assert lines[1:] == ["localize: there is room"]
    assert placement_groups() <= before
