"""A sweep's identity: what decides the results of its trials, as one short name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from objectaware.config import GROUND_TRUTH, DataConfig, Model
from objectaware.config.sweep import SweepConfig
from objectaware.stages.identity import STAGE_VERSIONS, checkpoint_hash, classifier_hash, data_hash, masks_hash
from objectaware.stages.sweep_kinds import KINDS, STAND_IN

_HASHES = {
    "checkpoint": checkpoint_hash,
    "published": checkpoint_hash,
    "classifier": classifier_hash,
    "masks": masks_hash,
}
"""What hashes the addresses in a field."""


def stage_parts(config: SweepConfig, checked: Sequence[Mapping[str, Model]]) -> list[Model]:
    """The configurations that all trials' stages come down to.

    Args:
        config: The sweep.
        checked: The configurations of its trials' stages.
    """
    return [
        part
        for stages in checked
        for name, each in stages.items()
        for part in KINDS[config.stages[name].stage].parts(each)
    ]


def data_sets(parts: Iterable[Model]) -> Iterator[DataConfig]:
    """All data sets of configurations, each once."""
    seen = set()
    for part in parts:
        for value in vars(part).values():
            for data in value.values() if isinstance(value, dict) else (value,):
                if isinstance(data, DataConfig) and (text := data.model_dump_json()) not in seen:
                    seen.add(text)
                    yield data


def sweep_identity(config: SweepConfig, checked: Sequence[Mapping[str, Model]], *, verify: bool) -> str:
    """Hashes what decides the trials' results: the sweep, what it takes from outside, and the code of its stages.

    Args:
        config: The sweep.
        checked: The configurations of its trials' stages.
        verify: Hash the images' content instead of their times.

    Returns:
        20 hexadecimal digits.

    Raises:
        InputError: A data set, or a file from outside, is missing.
    """
    described = config.model_dump(mode="json", exclude={"execution", "plot", "paper"})
    for stage in described["stages"].values():
        stage["fields"] = _without_execution(stage["fields"])
    parts = stage_parts(config, checked)
    content = {
        "sweep": described,
        # All of them: a kind of stage may run several, and what has not changed is found finished by a trial.
        "versions": STAGE_VERSIONS,
        "data": [data_hash(data, verify=verify) for data in data_sets(parts)],
        "files": _file_hashes(parts),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]


def _without_execution(value: Any) -> Any:  # noqa: ANN401 - JSON is any value
    if isinstance(value, dict):
        return {key: _without_execution(item) for key, item in value.items() if key != "execution"}
    return value


def _file_hashes(parts: Iterable[Model]) -> dict[str, str]:
    """Hashes of checkpoints, classifiers and masks that no stage of the sweep makes, by address."""
    found: dict[str, str] = {}
    options = (value for part in parts for value in (part, *vars(part).values()) if isinstance(value, Model))
    for option in options:
        for name, hash_of in _HASHES.items():
            value = getattr(option, name, None)
            for address in value.values() if isinstance(value, dict) else (value,):
                if address is not None and address not in (GROUND_TRUTH, STAND_IN, *found):
                    found[address] = hash_of(address)
    return found
