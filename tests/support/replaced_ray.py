"""A stand-in for the start of Ray, for tests in whose process Ray may run for others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import ray


def replace_ray(monkeypatch: pytest.MonkeyPatch, init: Callable[..., object]) -> None:
    """Have Ray look as if it did not run, and start by `init`.

    Its end is replaced, too: a start that fails is cleaned up by it, which would end the Ray of all other tests.
    """
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
