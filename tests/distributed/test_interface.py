from __future__ import annotations

import os

import psutil
import pytest
import ray

from objectaware.distributed.train import interface_of, use_rays_interface

LOOPBACK = next(name for name, known in psutil.net_if_addrs().items() if "127.0.0.1" in (one.address for one in known))


def test_an_address_has_its_interface() -> None:
    for name, addresses in psutil.net_if_addrs().items():
        assert interface_of(addresses[0].address) == name


def test_an_address_of_another_machine_has_none() -> None:
    assert interface_of("192.0.2.1") is None  # reserved for examples


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is set first goes again afterwards, whatever the test has set.
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")


def test_gloo_is_told_where_ray_is_and_not_where_the_name_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    use_rays_interface()
    assert os.environ["GLOO_SOCKET_IFNAME"] == LOOPBACK


@pytest.mark.parametrize(("address", "named"), [("127.0.0.1", "eth7"), ("192.0.2.1", None)])
def test_what_the_user_chose_stays_and_nothing_is_guessed(
    address: str, named: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named is not None:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", named)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: address)
    use_rays_interface()
    assert os.environ.get("GLOO_SOCKET_IFNAME") == named
