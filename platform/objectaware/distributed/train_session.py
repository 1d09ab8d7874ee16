"""The training loop's session on top of Ray Train."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from ray import train
from ray.train.collective import broadcast_from_rank_zero
from ray.train.torch import get_device

from objectaware.data.storage import Storage
