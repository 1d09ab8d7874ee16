"""The thread that sends this process's spools."""

from __future__ import annotations

import logging
import threading

from mlflow.exceptions import MlflowException

from objectaware.tracking.delivery import Delivery, MissingParentError
from objectaware.tracking.server import Server
from objectaware.tracking.spool import Spool
from objectaware.tracking.spools import Spools

THREAD_NAME = "mlflow-sender"
POLL_SECONDS = 1.0
MAX_DELAY_SECONDS = 30.0

# A server that is there, and that does not let this user in or write.
_REFUSALS_OF_USER = {"PERMISSION_DENIED", "UNAUTHENTICATED"}

_logger = logging.getLogger(__name__)
# Each failed try of ours is a warning of urllib3's; an outage is reported once, by us.
logging.getLogger("urllib3.connectionpool").addFilter(lambda record: record.threadName != THREAD_NAME)


class Sender:
    """Sends spools in the order in which they were added, parents before their children.

    One thread sends them all; it starts with the first spool and ends with the last. Records are collected
    for a second, so that a fast stage makes few large requests. While the server is away the thread tries
    again after 2, 4, 8, … up to 30 seconds.

    Args:
        server: Where to.
        spools: Where spools of this host and user lie.
    """

    def __init__(self, server: Server, spools: Spools) -> None:
        self._server = server
        self._delivery = Delivery(server, spools)
        self._changed = threading.Condition()
        self._spools: list[Spool] = []
        self._released: set[Spool] = set()
        self._thread: threading.Thread | None = None
        self._is_hurried = False
        self._is_away = False

    def add(self, spool: Spool) -> None:
        """Sends a spool from now on, at once and whenever it grows."""
        with self._changed:
            self._spools.append(spool)
            self._hurry()
            if self._thread is None:
                # A daemon: an interrupted command must not wait for a server; what is unsent stays in the
                # spool.
                self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()

    def flush(self, spool: Spool, timeout_seconds: float) -> bool:
        """Waits until a spool is sent, at most so long.

        Returns:
            Whether all of it arrived.
        """
        with self._changed:
            self._hurry()
            return self._changed.wait_for(
                lambda: not spool.has_unsent() and spool not in self._released, timeout_seconds
            )

    def stop(self, timeout_seconds: float) -> None:
        """Begin to send nothing more; wait for the requests that are under way, at most so long."""
        with self._changed:
            self._spools.clear()
            self._released.clear()
            self._hurry()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_seconds)

    def release(self, spool: Spool) -> None:
        """Forgets a spool that grows no more, and removes it, once it is sent."""
        with self._changed:
            self._released.add(spool)
            self._hurry()

    def _hurry(self) -> None:
        self._is_hurried = True
        self._changed.notify_all()

    def _run(self) -> None:
        delay = POLL_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_hurried, delay)
                self._is_hurried = False
                spools = list(self._spools)
            delay = POLL_SECONDS if self._send(spools) else min(2 * delay, MAX_DELAY_SECONDS)
            with self._changed:
                try:
                    self._forget_released()
                except Exception:  # without this thread all records to come would wait
                    _logger.exception("sent records could not be removed; this is tried again")
                self._changed.notify_all()
                if not self._spools:
                    self._thread = None
                    return

    def _forget_released(self) -> None:
        done = {spool for spool in self._released if not spool.has_unsent()}
        for spool in done:
            spool.remove_if_settled()
        self._spools = [spool for spool in self._spools if spool not in done]
        self._released -= done

    def _send(self, spools: list[Spool]) -> bool:
        """Sends all spools; stops at the first failure, since the next would only wait for the same server.

        Returns:
            Whether the server answers.
        """
        for spool in spools:
            try:
                if spool.has_unsent():
                    self._delivery.send(spool)
            except MissingParentError as error:
                _logger.info("%s waits: %s", spool.folder, error)
            except Exception as error:  # whatever happens to the records, the work that they describe goes on
                self._report_away(spool, error)
                return False
        if self._is_away:
            _logger.warning("MLflow at %s takes records again.", self._server.shown_address)
            self._is_away = False
        return True

    def _report_away(self, spool: Spool, error: Exception) -> None:
        level = logging.DEBUG if self._is_away else logging.WARNING
        reason = self._server.without_password(str(error))
        if isinstance(error, MlflowException) and error.error_code in _REFUSALS_OF_USER:
            problem = "refuses what this user records"
            remedy = "Ask for the right to edit the experiment, or give another one by --experiment. "
        else:
            problem, remedy = "takes no records", ""
            reason = f"{type(error).__name__}: {reason}"
        message = "MLflow at %s %s (%s). %sThe work goes on; the records stay in %s and are sent later."
        _logger.log(level, message, self._server.shown_address, problem, reason, remedy, spool.folder)
        self._is_away = True
