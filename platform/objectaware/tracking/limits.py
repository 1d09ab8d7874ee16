"""Names and values made to fit what MLflow takes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence

MAX_KEY_LENGTH = 250
MAX_PARAMETER_LENGTH = 6000
MAX_DIGEST_LENGTH = 36
MAX_TAG_LENGTH = 5000  # what every version of the server takes

_FORBIDDEN = re.compile(r"[^/\w.\- :]")


def fit_key(key: str) -> str:
    """A metric's, parameter's or tag's name as MLflow takes it.

    Characters other than letters, digits and `/_.-: ` become `_`. A name above 250 characters is cut and ends
    in a digest of the whole, so that two long names stay two.
    """
    name = _FORBIDDEN.sub("_", key)
    if len(name) <= MAX_KEY_LENGTH:
        return name
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{name[: MAX_KEY_LENGTH - 9]}-{digest}"


def fit_text(text: str, max_length: int) -> str:
    """A text cut to a length, in characters; a cut one ends in three dots."""
    return text if len(text) <= max_length else text[: max_length - 3] + "..."


def flatten_config(config: Mapping[str, object]) -> dict[str, str]:
    """A nested configuration as MLflow parameters.

    Args:
        config: Nested mappings of anything that JSON or str() can show.

    Returns:
        One entry a leaf: names joined by dots, lists and empty mappings as JSON, everything cut to MLflow's
        limits.

    Example:
        >>> flatten_config({"optimizer": {"lr": 0.03, "betas": [0.9, 0.999]}})
        {'optimizer.lr': '0.03', 'optimizer.betas': '[0.9, 0.999]'}
    """
    return {fit_key(key): fit_text(text, MAX_PARAMETER_LENGTH) for key, text in _leaves(config, "")}


def _leaves(config: Mapping[str, object], prefix: str) -> list[tuple[str, str]]:
    leaves: list[tuple[str, str]] = []
    for name, value in config.items():
        match value:
            case Mapping() if value:
                leaves += _leaves(value, f"{prefix}{name}.")
            case str():
                leaves.append((f"{prefix}{name}", value))
            case Mapping() | Sequence():
                leaves.append((f"{prefix}{name}", json.dumps(value, default=str)))
            case _:
                leaves.append((f"{prefix}{name}", str(value)))
    return leaves
