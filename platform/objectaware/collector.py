"""Python's garbage collector while a process starts.

Importing PyTorch, Ray and MLflow makes a million objects that stay. At Python's default the collector goes over them
again and again, which takes half of the start: 17 s of `import objectaware.stages.localize` became 9 s, on two cores
of 2.6 GHz. Of what mypy and Black do for their own start this is the milder form.
"""

from __future__ import annotations

import gc

_AT_WORK = gc.get_threshold()
_AT_START = (50_000, 10, 10)


def relax() -> None:
    """Makes the collector look less often, for a process that begins to import, unless that was set already."""
    if gc.get_threshold() == _AT_WORK:
        gc.set_threshold(*_AT_START)


def restore() -> None:
    """Makes it look as often as before, and only at what is made from now on, once work begins.

    Cycles that hold on to large tensors must not wait for tens of thousands of objects. Called before there are any:
    what is there by now is never looked at again. Processes that do little need not call it.
    """
    if gc.get_threshold() == _AT_START:
        gc.freeze()
        gc.set_threshold(*_AT_WORK)
