"""Which network interface the processes of a training talk through."""

from __future__ import annotations

import os

import psutil
import ray


def use_rays_interface() -> None:
    """Makes gloo talk through the interface at which Ray's nodes know this one, unless the user has named one.

    Left alone it takes the address that the host's name stands for: on Debian and Ubuntu that is 127.0.1.1, at which
    no other machine is to be found. NCCL chooses among the interfaces itself.
    """
    interface = interface_of(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def interface_of(address: str) -> str | None:
    """The interface of this machine that has an address.

    Args:
        address: An IP address.

    Returns:
        Its name, `eth0` for example; None where no interface has the address, as behind a translated one.
    """
    for name, addresses in psutil.net_if_addrs().items():
        if address in (known.address for known in addresses):
            return name
    return None
