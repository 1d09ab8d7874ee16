"""A finding of `objectaware doctor`: one check, its outcome and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        name: Name of the check.
        state: `ok`; `limited`, works only slowly or in part; `broken`, nothing works until it is repaired;
            `not checked`, cannot be checked from here.
        found: Result of the check, as text.
        remedy: What the user should do; empty if there is nothing to do.
    """

    name: str
    state: Literal["ok", "limited", "broken", "not checked"]
    found: str
    remedy: str = ""
