from __future__ import annotations

import json
import math
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.tracking.spool import (
    MAX_BYTES,
    MAX_PARAMETERS,
    MAX_RECORDS,
    MAX_TAGS,
    Artifact,
    MetricPoint,
    ModelMade,
    Parameter,
    Progress,
    Record,
    RunFinished,
    RunOpened,
    Spool,
    Tag,
    decode_record,
    encode_record,
    first_batch,
)
from objectaware.tracking.spools import Spools

OPENED = RunOpened("experiment", "name", "identity", "spool-number", 1000, "storage", "host", "1000", user_name="anna")


def everything_in(spool: Spool) -> list[Record]:
    records: list[Record] = []
    offset = 0
    while (batch := spool.read_batch(offset)) is not None:
        records += batch.records
        offset = batch.end
    return records


def points(spool: Spool) -> list[tuple[str, int, float]]:
    return [(r.key, r.step, r.value) for r in everything_in(spool) if isinstance(r, MetricPoint)]


@pytest.mark.parametrize(
    "record",
    [
        OPENED,
        MetricPoint("loss", math.inf, 3, 1700000000000),
        Parameter("name", "größe"),
        Tag("a\nb", "{}"),
        Artifact("tables/a.json", "0"),
        RunFinished("KILLED", 1),
    ],
)
def test_a_record_is_one_line_and_comes_back_as_it_was(record: Record) -> None:
    line = encode_record(record)
    assert line.count(b"\n") == 1
    assert decode_record(line) == record


@pytest.mark.parametrize(
    ("record", "newer"), [(OPENED, "user_name"), (ModelMade("moco", "a"), "type"), (MetricPoint("a", 1, 1, 1), "model")]
)
def test_a_record_of_an_earlier_version_is_read(record: Record, newer: str) -> None:
    fields = json.loads(encode_record(record))
    del fields[newer]
    assert type(decode_record(json.dumps(fields).encode())) is type(record)


def test_nan_comes_back() -> None:
    record = decode_record(encode_record(MetricPoint("loss", math.nan, 0, 0)))
    assert isinstance(record, MetricPoint)
    assert math.isnan(record.value)


@pytest.mark.parametrize("line", [b"\0\0\0\n", b"{}\n", b"[1]\n", b'{"kind": "Tag", "key": "a"}\n', b"{\n"])
def test_anything_else_is_not_a_record(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a record"):
        decode_record(line)


def test_a_restart_writes_no_step_twice(tmp_path: Path) -> None:
    Spool(tmp_path).append([OPENED, *(MetricPoint("loss", 1.0, step, step) for step in range(10))])
    restarted = Spool(tmp_path)
    restarted.append([MetricPoint("loss", 2.0, step, 50 + step) for step in range(5, 15)])
    restarted.append([MetricPoint("accuracy", 3.0, 5, 60)])
    assert points(restarted) == [
        *[("loss", step, 1.0) for step in range(10)],
        *[("loss", step, 2.0) for step in range(10, 15)],
        ("accuracy", 5, 3.0),
    ]


def test_two_writers_of_one_spool_know_of_each_other(tmp_path: Path) -> None:
    one, other = Spool(tmp_path), Spool(tmp_path)
    for step in range(20):
        one.append([MetricPoint("loss", 1.0, step, 0)])
        other.append([MetricPoint("loss", 2.0, step, 0), MetricPoint("loss", 2.0, 100 + step, 0)])
    assert len(points(one)) == 40
    assert all(value == (2.0 if step >= 100 else 1.0) for _, step, value in points(one))


def test_first_parameter_and_last_tag_hold(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for value in ("1", "2", "2"):
        spool.append([Parameter("p", value), Tag("t", value)])
    assert everything_in(spool) == [Parameter("p", "1"), Tag("t", "1"), Tag("t", "2")]


def test_a_half_written_line_is_cut_off_and_nothing_else_is_lost(tmp_path: Path) -> None:
    Spool(tmp_path).append([Tag("a", "1"), Tag("b", "2")])
    records = tmp_path / "records.jsonl"
    records.write_bytes(records.read_bytes() + encode_record(Tag("c", "3"))[:-4])
    assert everything_in(Spool(tmp_path)) == [Tag("a", "1"), Tag("b", "2")]
    restarted = Spool(tmp_path)
    restarted.append([Tag("c", "3"), Tag("d", "4")])
    assert everything_in(restarted) == [Tag("a", "1"), Tag("b", "2"), Tag("c", "3"), Tag("d", "4")]


def test_a_damaged_line_is_passed_over_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "records.jsonl").write_bytes(encode_record(OPENED) + b"\0\0\0\0\n" + encode_record(Tag("a", "1")))
    spool = Spool(tmp_path)
    assert everything_in(spool) == [OPENED, Tag("a", "1")]
    assert spool.known().tags == {"a": "1"}
    assert "damaged" in caplog.text


def test_only_what_is_noted_as_sent_is_not_sent_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert not spool.has_unsent()
    spool.append([OPENED, Tag("a", "1")])
    first = spool.read_batch(0)
    assert first is not None
    assert first.records == (OPENED,)
    spool.save_progress(Progress("run", first.end))
    assert spool.has_unsent()
    second = Spool(tmp_path).read_batch(Spool(tmp_path).progress().offset)
    assert second is not None
    assert second.records == (Tag("a", "1"),)
    spool.save_progress(Progress("run", second.end))
    assert not spool.has_unsent()


def test_a_spool_without_its_link_is_unsent_until_another_process_removes_it(tmp_path: Path) -> None:
    spool = settled(tmp_path / "spool")
    spool.save_progress(replace(spool.progress(), is_unlinked=True))
    assert spool.has_unsent()
    assert not spool.is_settled()
    shutil.rmtree(spool.folder)
    assert not spool.has_unsent()


@pytest.mark.parametrize("content", ["", "{", '{"unknown": 1}', '{"run_id": "run", "offset": 1000000}'])
def test_unusable_progress_means_sending_from_the_start(tmp_path: Path, content: str) -> None:
    spool = Spool(tmp_path)
    spool.append([OPENED])
    (tmp_path / "progress.json").write_text(content)
    assert spool.progress() == Progress()
    assert spool.has_unsent()


def test_an_artifact_is_kept_and_recorded_again_only_if_it_changed(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for content in (b"one", b"one", b"two"):
        spool.add_artifact("folder/name.txt", content)
    artifacts = everything_in(spool)
    assert [type(record) for record in artifacts] == [Artifact, Artifact]
    last = artifacts[-1]
    assert isinstance(last, Artifact)
    assert spool.file_of(last).read_text() == "two"


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b", ""])
def test_an_artifact_stays_inside_the_spool(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError):
        Spool(tmp_path).add_artifact(path, b"")


def test_an_abandoned_run_is_killed_at_its_last_sign_of_life(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    alive = spool.hold()
    spool.append([OPENED, MetricPoint("loss", 1.0, 0, 5000)])
    assert not Spool(tmp_path).close_if_abandoned()
    alive.close()
    assert Spool(tmp_path).close_if_abandoned()
    assert Spool(tmp_path).close_if_abandoned()
    assert everything_in(spool)[-1] == RunFinished("KILLED", 5000)
    assert sum(isinstance(record, RunFinished) for record in everything_in(spool)) == 1


def test_a_refused_record_is_kept_with_its_reason(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.reject(Tag("a", "1"), "bad key")
    (line,) = spool.rejected.read_text().splitlines()
    assert json.loads(line) == {"record": {"kind": "Tag", "key": "a", "value": "1"}, "reason": "bad key"}


def settled(folder: Path) -> Spool:
    """A spool whose run is finished and sent."""
    spool = Spool(folder)
    spool.append([OPENED, RunFinished("FINISHED", 1)])
    spool.save_progress(Progress("run", (folder / "records.jsonl").stat().st_size, is_finished=True))
    return spool


def test_a_spool_is_removed_where_open_files_cannot_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rmdir = os.rmdir

    def rmdir_of_nfs(path: str, **kwargs: int | None) -> None:
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):
                file = str(descriptor.readlink())
                if file.startswith(str(tmp_path)) and file.endswith(" (deleted)"):
                    raise OSError(39, "Directory not empty", path)
        rmdir(path, **kwargs)

    monkeypatch.setattr(os, "rmdir", rmdir_of_nfs)
    settled(tmp_path / "a~1").remove_if_settled()
    assert [path.name for path in tmp_path.rglob("*")] == ["removed"]


def test_what_cannot_be_deleted_yet_is_no_spool_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = settled(tmp_path / "a~1")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        spool.remove_if_settled()
    assert list(tmp_path.rglob("records.jsonl"))
    assert not Spools(tmp_path, Storage.from_uri(tmp_path / "left")).leftovers()


def test_a_spool_that_cannot_be_removed_stays_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool = settled(tmp_path / "a~1")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    spool.remove_if_settled()
    assert spool.is_settled()
    assert "Permission denied" in caplog.text


def test_looking_at_a_spool_makes_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "a~1"
    folder.mkdir()
    (folder / "records.jsonl").write_bytes(encode_record(OPENED))
    (spool,) = Spools(tmp_path, Storage.from_uri(tmp_path / "left")).leftovers()
    assert spool.known().opening == OPENED
    assert not spool.is_held()
    assert spool.has_unsent()
    assert [path.name for path in folder.iterdir()] == ["records.jsonl"]


any_record = st.sampled_from(
    [OPENED, MetricPoint("m", 0.0, 0, 0), Parameter("p", "v"), Tag("t", "v"), Artifact("a", "d"), None]
)


@settings(max_examples=30, deadline=None)
@given(
    blocks=st.lists(
        st.tuples(any_record, st.sampled_from([1, 2, 99, 101, 1001]), st.sampled_from([50, 7000])), max_size=5
    )
)
def test_batches_hold_every_record_once_in_order_and_keep_to_the_limits(
    blocks: list[tuple[Record | None, int, int]],
) -> None:
    lines = [(record, size) for record, repeats, size in blocks for _ in range(repeats)]
    rest, start, sent = lines, 0, []
    while (batch := first_batch(rest, start)) is not None:
        num_lines = length = 0
        while start + length < batch.end:
            length += rest[num_lines][1]
            num_lines += 1
        assert start + length == batch.end
        assert sum(size for record, size in rest[:num_lines] if record is not None) <= MAX_BYTES
        assert len(batch.records) <= MAX_RECORDS
        assert sum(isinstance(record, Parameter) for record in batch.records) <= MAX_PARAMETERS
        assert sum(isinstance(record, Tag) for record in batch.records) <= MAX_TAGS
        if any(isinstance(record, RunOpened | Artifact | RunFinished) for record in batch.records):
            assert len(batch.records) == 1
        sent += batch.records
        rest, start = rest[num_lines:], batch.end
    assert sent == [record for record, _ in lines if record is not None]


def test_a_spool_that_is_removed_between_two_looks_is_as_it_was_last_seen(tmp_path: Path) -> None:
    writer = Spool(tmp_path / "run")
    writer.append([OPENED])
    seen, unseen = (Spool(tmp_path / "run", is_leftover=True) for _ in range(2))
    assert seen.known().opening == OPENED
    shutil.rmtree(tmp_path / "run")
    assert (seen.known().opening, seen.known().is_running) == (OPENED, True)
    assert (unseen.known().opening, unseen.known().is_running) == (None, False)
