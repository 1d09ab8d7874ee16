"""Ray Train's trainer and workers, made to find each other, and to end when they are told to."""

from __future__ import annotations

import logging
import os
from typing import Any

import psutil
from ray import get, kill, util
from ray.exceptions import RayActorError, RayError
from ray.train.torch import TorchConfig, TorchTrainer

from objectaware.distributed.abandoned import wait_and_remove_abandoned_groups
from objectaware.training.preemption import honour_termination

_SECONDS_TO_DIE = 30.0

_logger = logging.getLogger(__name__)


class TerminationBackend(TorchConfig().backend_cls):  # type: ignore[misc]  # Ray gives it no type
    """Ray Train's set-up of PyTorch, over the network that Ray's nodes are in, on workers that heed SIGTERM.

    Training runs in a thread of a worker's process, where Python lets no handler be set; this runs in the main one.
    """

    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:  # noqa: ANN401 - as Ray declares it
        """Sets up the process group, then the handler, which replaces Ray's that ends the process.

        SIGTERM is then a wish to end (`honour_termination`).
        """
        worker_group.execute(use_rays_interface)
        super().on_start(worker_group, backend_config)
        worker_group.execute(honour_termination)


class TerminationConfig(TorchConfig):
    """Names the backend to Ray Train."""

    @property
    def backend_cls(self) -> type[TerminationBackend]:
        """`TerminationBackend`."""
        return TerminationBackend


class StoppableTrainer(TorchTrainer):
    """Ray Train's trainer, on which Ctrl-C is an ordinary `KeyboardInterrupt`.

    Ray Train's own handler of Ctrl-C, which this takes the place of, ends the process without any clean-up.
    """

    _controller: Any = None

    def _register_sigint_handler(self, controller: Any) -> None:  # noqa: ANN401 - Ray's handles are Any
        self._controller = controller

    def stop(self, seconds: float) -> None:
        """Ends the training's processes, workers with their controller, and gives their CPUs and GPUs back.

        The controller is asked first. Killed while it starts workers anew, it would leave a placement group behind that
        no worker tells of, until this process ends.

        Args:
            seconds: How long the controller may take.
        """
        if self._controller is None:
            return
        try:
            get(self._controller.abort.remote(), timeout=seconds)
        except RayActorError:
            pass  # it ends itself when it is done
        except RayError as error:  # such as GetTimeoutError
            _logger.warning("the training's controller is killed (%s)", error)
        finally:
            kill(self._controller)
            wait_and_remove_abandoned_groups(_SECONDS_TO_DIE)


def use_rays_interface() -> None:
    """Makes gloo talk through the interface at which Ray's nodes know this one, unless the user has named one.

    Left alone it takes the address that the host's name stands for: on Debian and Ubuntu that is 127.0.1.1, at which
    no other machine is to be found. NCCL chooses among the interfaces itself.
    """
    interface = interface_of(util.get_node_ip_address())  # type: ignore[no-untyped-call]
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
