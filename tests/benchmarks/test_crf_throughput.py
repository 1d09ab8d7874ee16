from __future__ import annotations

from pathlib import Path

import numpy as np

from crf_throughput import Work, check_against_bare, stage_config, tables
from objectaware.data.storage import Storage
from objectaware.distributed.localize_steps import CrfActor
from objectaware.planning.measure import soft_masks


def test_the_stage_takes_the_groups_that_are_made_for_it_and_stores_what_the_bare_loop_gets(tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    work = Work(pictures, soft_masks(4, 32), group_size=2)
    store = Storage.from_uri(tmp_path)
    actor = CrfActor(stage_config(work), store)
    for table in tables(work):
        actor(table)
    check_against_bare(work, store)
