"""A sweep's identity: what decides the results of its trials, as one short name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

from objectaware.config import GROUND_TRUTH, DataConfig, Model
from objectaware.config.sweep import SweepConfig
from objectaware.stages.identity import STAGE_VERSIONS, checkpoint_hash, classifier_hash, data_hash, masks_hash
from objectaware.stages.sweep_points import STAND_IN


def data_sets(checked: Sequence[Mapping[str, Model]]) -> Iterator[DataConfig]:
    """All data sets of all trials, each once."""
    seen = set()
    for stages in checked:
        for stage in stages.values():
            for value in vars(stage).values():
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
        stage["fields"].pop("execution", None)
    kinds = sorted({stage.stage for stage in config.stages.values()})
    content = {
        "sweep": described,
        "versions": {kind: STAGE_VERSIONS[kind] for kind in kinds},
        "data": [data_hash(data, verify=verify) for data in data_sets(checked)],
        "files": _file_hashes(checked),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]


def _file_hashes(checked: Sequence[Mapping[str, Model]]) -> dict[str, str]:
    """Hashes of checkpoints, classifiers and masks that no stage of the sweep makes, by address."""
    found: dict[str, str] = {}
    for stage in (stage for stages in checked for stage in stages.values()):
        for name, hash_of in (("checkpoint", checkpoint_hash), ("classifier", classifier_hash), ("masks", masks_hash)):
            value = getattr(stage, name, None)
            for address in value.values() if isinstance(value, dict) else (value,):
                if address is not None and address not in (GROUND_TRUTH, STAND_IN, *found):
                    found[address] = hash_of(address)
    return found
