"""What was loaded lately, up to a size, for many threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Values by key, each loaded once while it is in use; those that were not asked for longest make room.

    Threads that ask for the same value wait for the one that loads it; others do not wait.

    Args:
        load: Gives a key's value.
        size: Room that a value takes.
        capacity: Room in all. The newest value is kept, however large.
    """

    def __init__(self, load: Callable[[Key], Value], *, size: Callable[[Value], int], capacity: int) -> None:
        self._load = load
        self._size = size
        self._free = capacity
        self._values: OrderedDict[Key, Future[Value]] = OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, key: Key) -> Value:
        """The key's value. What its loading raises reaches all who wait for it; the next one tries again."""
        with self._lock:
            future = self._values.get(key)
            is_new = future is None
            if future is None:
                future = self._values[key] = Future()
            self._values.move_to_end(key)
        if is_new:
            self._fill(key, future)
        return future.result()

    def _fill(self, key: Key, future: Future[Value]) -> None:
        try:
            value = self._load(key)
        except BaseException as error:
            with self._lock:
                del self._values[key]
            future.set_exception(error)
            return
        future.set_result(value)
        with self._lock:
            self._free -= self._size(value)
            # One that is still being loaded has no size yet.
            old = [other for other, entry in self._values.items() if other != key and entry.done()]
            for other in old:
                if self._free >= 0:
                    break
                self._free += self._size(self._values.pop(other).result())
