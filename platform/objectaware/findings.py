"""What `objectaware doctor` finds: one check, its outcome, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        name: What was looked at.
        state: `ok`; `limited`, works but slowly or in part; `broken`, nothing works before it is mended;
            `not checked`, cannot be told from here.
        found: What was seen.
        remedy: What to do; empty where nothing is to be done.
    """

    name: str
    state: Literal["ok", "limited", "broken", "not checked"]
    found: str
    remedy: str = ""
