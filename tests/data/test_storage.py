from __future__ import annotations

import os
import pickle
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from s3_server import BUCKET, object_store


def in_memory() -> fs.FileSystem:
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    return fs.PyFileSystem(fs.FSSpecHandler(MemoryFileSystem(skip_instance_cache=True)))


@pytest.fixture(params=["local", "object-store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A local folder, and a file system in memory, which is handled as object stores are."""
    if request.param == "local":
        return Storage.from_uri(tmp_path / "runs")
    return Storage("memory://bucket/runs", in_memory(), "/bucket/runs")


def test_what_is_written_is_read(storage: Storage) -> None:
    storage.write_bytes("a.bin", b"\0\1\2")
    storage.write_bytes("a.bin", b"again")
    storage.write_json("b.json", {"z": 1, "a": [0.5, None, "é"]})
    assert storage.read_bytes("a.bin") == b"again"
    assert storage.read_json("b.json") == {"a": [0.5, None, "é"], "z": 1}
    assert storage.read_bytes("b.json").startswith(b'{\n  "a"')


def test_missing_files(storage: Storage) -> None:
    assert not storage.exists("nothing")
    with pytest.raises(FileNotFoundError):
        storage.read_bytes("nothing")
    with pytest.raises(FileNotFoundError):
        storage.read_json("nothing")
    storage.delete("nothing")
    assert storage.child("nothing").list_names() == []
    storage.child("nothing").delete_all()


def test_list_names_shows_files_of_this_folder_alone(storage: Storage) -> None:
    for name in ("shard-2", "shard-10", "other", ".tmp-123", "b c\nd"):
        storage.write_bytes(name, b"")
    storage.child("folder").write_bytes("shard-3", b"")
    assert storage.list_names() == ["b c\nd", "other", "shard-10", "shard-2"]
    assert storage.list_names("shard-") == ["shard-10", "shard-2"]
    assert storage.child("folder").list_names() == ["shard-3"]


def test_many_small_files_are_read_as_far_as_they_exist(storage: Storage) -> None:
    for name in ("a", "deep/é"):
        storage.write_bytes(name, name.encode())
    assert storage.read_small(["deep/é", "nothing", "a"]) == {"deep/é": "deep/é".encode(), "a": b"a"}
    assert storage.read_small([]) == {}
    assert storage.list_folders() == ["deep"]


def test_delete_and_delete_all(storage: Storage) -> None:
    storage.write_bytes("a", b"")
    storage.child("deep").child("er").write_bytes("b", b"")
    storage.delete("a")
    assert not storage.exists("a")
    assert storage.exists("deep")
    storage.child("deep").delete_all()
    assert not storage.child("deep").child("er").exists("b")
    assert storage.list_names() == []


def test_create_exclusive_lets_the_first_one_win(storage: Storage) -> None:
    assert storage.create_exclusive("lease", b"first")
    assert not storage.create_exclusive("lease", b"second")
    assert storage.read_bytes("lease") == b"first"
    storage.delete("lease")
    assert storage.create_exclusive("lease", b"third")
    assert storage.list_names() == ["lease"]


def test_malformed_json_is_named(storage: Storage) -> None:
    storage.write_bytes("store.json", b'{"half": ')
    with pytest.raises(InputError, match=r"store\.json = .*runs: is not valid JSON"):
        storage.read_json("store.json")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/../../x", "/etc/passwd", "nul\0"])
def test_names_that_lead_elsewhere_are_refused(storage: Storage, name: str) -> None:
    for action in (storage.read_bytes, storage.exists, storage.delete, storage.child):
        with pytest.raises(InputError):
            action(name)
    for write in (storage.write_bytes, storage.create_exclusive):
        with pytest.raises(InputError):
            write(name, b"")


def test_child_of_an_object_store_has_a_uri_of_its_own() -> None:
    storage = Storage("s3://bucket/runs/?region=eu-west-1", in_memory(), "/bucket/runs")
    child = storage.child("pretrain").child("run 1#a")
    assert child.uri == "s3://bucket/runs/pretrain/run%201%23a?region=eu-west-1"
    assert child.local_path("x") is None
    child.write_bytes("x", b"content")
    assert storage.read_bytes("pretrain/run 1#a/x") == b"content"


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    storage = Storage.from_uri("some/runs")
    assert storage.uri == str(tmp_path / "some" / "runs")
    assert Storage.from_uri("~/runs").uri == str(tmp_path / "home" / "runs")
    storage.write_bytes("a", b"1")
    monkeypatch.chdir("/")
    assert Storage.from_uri(storage.uri).read_bytes("a") == b"1"
    assert storage.local_path() == tmp_path / "some" / "runs"
    assert storage.local_path("a") == tmp_path / "some" / "runs" / "a"


def test_file_uris_and_odd_paths_name_the_same_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a b%20#c?d é"
    storage = Storage.from_uri(folder)
    storage.child("x y").write_bytes("z", b"1")
    assert (folder / "x y" / "z").read_bytes() == b"1"
    assert Storage.from_uri(folder.as_uri()) == storage
    assert Storage.from_uri(storage.child("x y").uri) == storage.child("x y")
    assert len({storage, Storage.from_uri(folder), storage.child("x y")}) == 2


@pytest.mark.parametrize("uri", ["foo://bucket/x", "http://host/x", "s3:///no-bucket", "file://relative/x", "s3://a b"])
def test_uri_that_no_file_system_answers_to_is_refused(uri: str) -> None:
    with pytest.raises(InputError, match=r"storage = .*cannot be opened"):
        Storage.from_uri(uri)


class ObjectStore(BaseHTTPRequestHandler):
    """The least of S3 that takes an upload."""

    protocol_version = "HTTP/1.1"
    requests: ClassVar[list[tuple[str, str, bytes]]] = []

    def do_PUT(self) -> None:
        body = b""
        if self.headers["Transfer-Encoding"] == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self.requests.append((self.command, self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.do_PUT()

    def log_message(self, *args: object) -> None: ...


def test_an_object_of_ordinary_size_is_one_put(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), ObjectStore)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    ObjectStore.requests.clear()
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        storage = Storage.from_uri("s3://bucket/runs?region=us-east-1")
        assert storage.uri == "s3://bucket/runs?region=us-east-1"
        assert storage.local_path() is None
        pickle.loads(pickle.dumps(storage)).child("a b").write_bytes("x", b"content")
        server.shutdown()
    ((command, path, body),) = ObjectStore.requests
    assert (command, path) == ("PUT", "/bucket/runs/a%20b/x")
    assert b"content" in body  # perhaps with checksums around it


def test_storage_survives_pickling(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path).child("runs")
    storage.write_bytes("a", b"1")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy == storage
    assert copy.read_bytes("a") == b"1"


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage.from_uri(tmp_path)
    storage.write_bytes("a", b"old")

    def disk_full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        storage.write_bytes("a", b"new")
    assert storage.read_bytes("a") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_write_onto_a_folder_fails_and_leaves_nothing(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    storage.child("folder").write_bytes("x", b"")
    with pytest.raises(OSError, match="folder"):
        storage.write_bytes("folder", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_readers_never_see_part_of_a_file(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    contents = [bytes([value]) * 300_000 for value in range(4)]
    storage.write_bytes("a", contents[0])
    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(storage.write_bytes, "a", contents[turn % 4]) for turn in range(40)]
        seen = [storage.read_bytes("a") for _ in range(40)]
        for write in writes:
            write.result()
    assert set(seen) <= set(contents)
    assert storage.list_names() == ["a"]


def test_files_follow_the_umask(tmp_path: Path) -> None:
    """Others in a lab read the results; temporary files made by `tempfile` would be private."""
    before = os.umask(0o022)
    try:
        Storage.from_uri(tmp_path).write_bytes("a", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


def compete(storage: Storage, num_threads: int = 8) -> list[bytes]:
    """Let threads create the same file at the same moment; return what each then finds in it."""
    barrier = threading.Barrier(num_threads)

    def create(number: int) -> tuple[bool, bytes]:
        barrier.wait()
        return storage.create_exclusive("lease", b"x" * (number + 1)), storage.read_bytes("lease")

    with ThreadPoolExecutor(num_threads) as pool:
        results = list(pool.map(create, range(num_threads)))
    assert [created for created, _ in results].count(True) == 1
    return [found for _, found in results]


def test_exactly_one_of_several_threads_creates_and_all_see_its_content(tmp_path: Path) -> None:
    for turn in range(20):
        found = compete(Storage.from_uri(tmp_path / str(turn)))
        assert len(set(found)) == 1
        assert found[0]


def test_exactly_one_of_several_threads_creates_an_object() -> None:
    with object_store() as form:
        for turn in range(5):
            found = compete(Storage.from_uri(form.format(f"a%20b/{turn}")))
            assert len(set(found)) == 1


def test_a_link_whose_answer_was_lost_is_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of NFS sends the request again, and is told that there is one."""
    link = Path.hardlink_to

    def link_twice(path: Path, target: Path) -> None:
        link(path, target)
        link(path, target)

    monkeypatch.setattr(Path, "hardlink_to", link_twice)
    assert Storage.from_uri(tmp_path).create_exclusive("lease", b"mine")


@pytest.mark.parametrize("answer", ["501", "ignored"])
def test_a_store_without_conditional_writes_is_refused(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.s3.responses import S3Response

    put_object = S3Response.put_object

    def put(self: S3Response) -> object:
        if answer == "501" and self.headers.get("If-None-Match"):
            return 501, {}, "<Error><Code>NotImplemented</Code></Error>"
        self.headers = {name: value for name, value in self.headers.items() if name != "If-None-Match"}
        return put_object(self)

    monkeypatch.setattr(S3Response, "put_object", put)
    with object_store() as form, pytest.raises(InputError, match="conditional writes"):
        Storage.from_uri(form.format("folder")).create_exclusive("lease", b"")


def test_a_store_that_is_away_is_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    from objectaware.data import storage as module

    monkeypatch.setitem(module._RETRIES, "max_retries", 0)
    storage = Storage.from_uri("s3://key:secret@bucket/x?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:9")
    with pytest.raises(OSError, match="HTTP error"):
        storage.create_exclusive("lease", b"")


def test_deleted_files_leave_no_empty_folders_and_others_alone(storage: Storage) -> None:
    for name in ("train/a", "train/deep/b", "notes/c"):
        storage.write_bytes(name, b"")
    storage.delete_files(["train/a", "train/deep/b", "no such file"])
    assert [name for name, _, _ in storage.list_files()] == ["notes/c"]
    if storage.local_path() is not None:
        assert storage.list_entries() == ["notes"]
    storage.delete_files(["notes/c"])
    assert storage.list_entries() == []


def test_objects_are_read_and_deleted_many_at_a_time_with_odd_names() -> None:
    with object_store() as form:
        store = Storage.from_uri(form.format("a%20b"))
        names = [f"shard {number}%20#+é" for number in range(5)]
        for name in names:
            store.write_bytes(name, b"")
        assert store.read_small([*names, "no such object"]) == dict.fromkeys(names, b"")
        store.delete_files(names[1:])
        assert store.list_names() == names[:1]
        store.delete(names[0])
        store.delete(names[0])
        assert store.list_entries() == []


def test_a_guard_is_asked_before_each_change(storage: Storage) -> None:
    calls: list[str] = []
    guarded = storage.guarded(lambda: calls.append("asked"))
    guarded.write_bytes("a", b"")
    guarded.child("deep").write_json("b", {})
    guarded.child("deep").split()[0].delete("a")
    assert len(calls) == 3
    assert guarded.list_entries() == ["deep"]
    assert len(calls) == 3
    storage.write_bytes("a", b"")
    assert len(calls) == 3


def test_exclusive_creation_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    storage = Storage.from_uri(tmp_path)
    compete(storage)
    assert storage.read_bytes("lease")
    assert [path.name for path in tmp_path.iterdir()] == ["lease"]


def _failing_pieces() -> Iterator[bytes]:
    yield b"first"
    raise RuntimeError("the second cannot be made")


def test_pieces_make_one_file_or_none(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    storage.write_pieces("a.json", iter([b"[1, ", b"2]"]))
    assert storage.read_json("a.json") == [1, 2]
    with pytest.raises(RuntimeError):
        storage.write_pieces("a.json", _failing_pieces())
    assert storage.read_json("a.json") == [1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_pieces_that_fail_leave_no_object_in_a_store() -> None:
    storage = Storage("memory://folder", in_memory(), "folder")
    storage.write_pieces("a.json", iter([b"[1, ", b"2]"]))
    assert storage.read_json("a.json") == [1, 2]
    with pytest.raises(RuntimeError):
        storage.write_pieces("b.json", _failing_pieces())
    assert storage.list_names() == ["a.json"]


def test_a_storage_is_split_into_folder_and_name(tmp_path: Path) -> None:
    parent, name = Storage.from_uri(tmp_path / "a" / "b.pth").split()
    assert (parent.local_path(), name) == (tmp_path / "a", "b.pth")
    remote = Storage("s3://bucket/a/b.pth?region=x", in_memory(), "bucket/a/b.pth")
    parent, name = remote.split()
    assert (parent.uri, name) == ("s3://bucket/a?region=x", "b.pth")
    assert parent.child(name).uri == "s3://bucket/a/b.pth?region=x"


def test_files_are_told_from_folders(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    storage = Storage.from_uri(tmp_path)
    assert [storage.is_file(name) for name in ("file", "folder", "missing", "file/inner")] == [
        True,
        False,
        False,
        False,
    ]


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60)


@settings(max_examples=25, deadline=None)
@given(content=st.dictionaries(NAMES.filter(lambda name: name not in {".", ".."}), st.binary(), max_size=5))
def test_round_trip_of_any_names_and_contents(content: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage.from_uri(folder)
        for name, value in content.items():
            storage.write_bytes(name, value)
        for name, value in content.items():
            assert storage.exists(name)
            assert storage.read_bytes(name) == value
        assert storage.list_names() == sorted(name for name in content if not name.startswith(".tmp-"))
        storage.delete_all()
        assert storage.list_names() == []


def test_what_killed_writers_left_is_deleted_and_nothing_else(storage: Storage) -> None:
    storage.write_bytes("shard-1", b"whole")
    local = storage.local_path()
    if local is not None:
        (local / f".tmp-{'0f' * 16}").write_bytes(b"half")
        (local / ".tmp-notes").write_bytes(b"of the user's")
    storage.delete_unfinished()
    assert storage.read_bytes("shard-1") == b"whole"
    assert [name for name, _, _ in storage.list_files()] == ([".tmp-notes"] if local else []) + ["shard-1"]


@pytest.mark.parametrize("num_bytes", [2, 512])
def test_an_object_that_goes_between_being_found_and_being_read_is_missing(num_bytes: int) -> None:
    """As a lease does that is given back while another command looks who has it."""
    with object_store() as form:
        store = Storage.from_uri(form.format("folder"))
        store.write_bytes("lease.json", b"{}".ljust(num_bytes))
        with store.open_file("lease.json") as found:
            store.delete("lease.json")
            file_info = store._filesystem.get_file_info
            late = SimpleNamespace(open_input_file=lambda path: found, get_file_info=file_info)
            with pytest.raises(FileNotFoundError):
                Storage(store.uri, late, f"{BUCKET}/folder").read_bytes("lease.json")
