"""Watch a process for `tools/shape.py`; Python imports a module of this name at its start.

Written into the folder that `OBJECTAWARE_SHAPE` names: `stack-*.json`, the package's functions on the stack where Ray
Train is called and where the training loop begins; `travel-*.json`, the modules whose functions are handed a
configuration of localization, in the order of the calls.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

FOLDER = os.environ.get("OBJECTAWARE_SHAPE", "")
_PACKAGE = f"{os.sep}objectaware{os.sep}"
_CONFIG = "LocalizeConfig"
# Where a stack is kept: the module, the class and its function, and what the stack is called.
_STACKS = {
    "objectaware.training.loop": ("Trainer", "run", "worker"),  # where older commits have it
    "objectaware.training.pretraining": ("Trainer", "run", "worker"),
    "ray.train.v2.api.data_parallel_trainer": ("DataParallelTrainer", "fit", "driver"),
}


class _Finder(importlib.abc.MetaPathFinder):
    """Wraps the functions at which stacks are kept, once their modules are imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _STACKS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_wrap(module: ModuleType) -> None:
                execute(module)
                _wrap(module, *_STACKS[fullname])

            spec.loader.exec_module = execute_and_wrap  # type: ignore[method-assign]
        return spec


def _wrap(module: ModuleType, name: str, function: str, at: str) -> None:
    of_class = getattr(module, name, None)
    if of_class is None:
        return
    inner = getattr(of_class, function)

    def outer(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - of any function
        functions = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if _PACKAGE in frame.f_code.co_filename and frame.f_code.co_name != "<module>":
                functions.append(f"{_module(frame.f_code)}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        content = {"at": at, "functions": functions[::-1]}
        Path(FOLDER, f"stack-{at}-{os.getpid()}.json").write_text(json.dumps(content))
        return inner(*arguments, **named)

    setattr(of_class, function, outer)


def _module(code: CodeType) -> str:
    return code.co_filename.rsplit(_PACKAGE, 1)[1]


modules: list[str] = []
_ours: dict[CodeType, bool] = {}


def _watch(frame: FrameType, event: str, of_event: Any) -> None:  # noqa: ANN401 - as `sys.setprofile` calls it
    """Note the module of a call that is handed a configuration of localization."""
    if event != "call":
        return
    code = frame.f_code
    is_ours = _ours.get(code)
    if is_ours is None:
        is_ours = _ours[code] = _PACKAGE in code.co_filename
    if is_ours:
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(type(frame.f_locals.get(name)).__name__ == _CONFIG for name in names):
            module = _module(code)
            if not modules or modules[-1] != module:
                modules.append(module)


def _keep_travel() -> None:
    Path(FOLDER, f"travel-{os.getpid()}.json").write_text(json.dumps(modules))


# At this point the command is not in `sys.argv` yet, but among what the interpreter was started with.
if FOLDER:
    sys.meta_path.insert(0, _Finder())
    if "objectaware.cli" in sys.orig_argv and "localize" in sys.orig_argv:
        sys.setprofile(_watch)
        threading.setprofile(_watch)
        atexit.register(_keep_travel)
