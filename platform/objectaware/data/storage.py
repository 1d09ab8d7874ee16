"""Files of a run, on a local disk or in an object store, behind one small interface.

The file systems are Arrow's, which Ray and Parquet use too. fsspec would need s3fs and gcsfs beside them. The guard,
the replacement of a file in one step and the exclusive creation of a file would still be ours.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit, urlunsplit

import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import GCSStore, S3Store
from pyarrow import fs

from objectaware.errors import InputError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_TEMPORARY_PREFIX = ".tmp-"
_NUM_READ_AT_ONCE = 32
_TEMPORARY_NAME = re.compile(r"\.tmp-[0-9a-f]{32}")

Guard = Callable[[], None]
"""Raises an exception where a process may not write any more."""


class Storage:
    """A folder, local or in an object store. Make one with `Storage.from_uri`.

    Names are paths relative to the folder, with forward slashes; one that would lead out of it is refused
    with `InputError`. A folder begins to exist with its first file. A storage is safe to use from
    several threads, and picklable: the other process opens the file system again.

    Args:
        uri: See below.
        filesystem: Arrow's.
        path: Of the folder there.
        guard: See `guarded`.

    Attributes:
        uri: Absolute path of a local folder, or the URI of any other; `from_uri(uri)` gives an equal storage.
    """

    def __init__(self, uri: str, filesystem: fs.FileSystem, path: str, guard: Guard | None = None) -> None:
        self.uri = uri
        self._filesystem = filesystem
        self._path = path
        self._guard = guard

    @classmethod
    def from_uri(cls, uri: str | Path, guard: Guard | None = None) -> Storage:
        """Open a folder by its path or URI. It need not exist yet.

        Args:
            uri: A local path (absolute, relative to the working directory, or beginning with `~`), `file://…`,
                or whatever else pyarrow's file systems open, such as `s3://bucket/folder`.
            guard: See `guarded`.

        Raises:
            InputError: No file system answers to the URI.
        """
        text = str(uri)
        if not _SCHEME.match(text):
            return cls._local(Path(text).expanduser().absolute(), guard)
        try:
            filesystem, path = fs.FileSystem.from_uri(_with_single_puts(text))
        except (ValueError, OSError) as error:  # pyarrow.ArrowInvalid is a ValueError
            remedy = "Give a local path, file:///path or s3://bucket/folder."
            raise InputError("storage", text, f"cannot be opened ({error})", remedy) from error
        if isinstance(filesystem, fs.LocalFileSystem):
            return cls._local(Path(path), guard)
        return cls(text, filesystem, path, guard)

    @classmethod
    def _local(cls, path: Path, guard: Guard | None) -> Storage:
        return cls(str(path), fs.LocalFileSystem(), str(path), guard)

    def guarded(self, guard: Guard) -> Storage:
        """Return the same folder, in which nothing is written or deleted before the guard has been called.

        Folders inside it are guarded, too, and so is the storage in another process that it was sent to.

        Args:
            guard: Raises an exception where this process may not write any more; picklable.
        """
        return Storage(self.uri, self._filesystem, self._path, guard)

    def require_writable(self) -> None:
        """Call the guard, if there is one. Code that writes by other means than this class calls this first."""
        if self._guard is not None:
            self._guard()

    def __reduce__(self) -> tuple[Any, tuple[str, Guard | None]]:
        return Storage.from_uri, (self.uri, self._guard)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and self.uri == other.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __repr__(self) -> str:
        return f"Storage({self.uri!r})"

    def child(self, name: str) -> Storage:
        """Return the storage of a folder inside this one."""
        path = self._locate(name)
        if self.local_path() is not None:
            return self._local(Path(path), self._guard)
        parts = urlsplit(self.uri)
        uri = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(str(PurePosixPath(name)))}"))
        return Storage(uri, self._filesystem, path, self._guard)

    def split(self) -> tuple[Storage, str]:
        """Return the storage of the folder that this one lies in, and its name there."""
        if self.local_path() is not None:
            return self._local(Path(self._path).parent, self._guard), Path(self._path).name
        parts, path = urlsplit(self.uri), PurePosixPath(self._path)
        uri = urlunsplit(parts._replace(path=parts.path.rstrip("/").rpartition("/")[0]))
        return Storage(uri, self._filesystem, str(path.parent), self._guard), path.name

    def local_path(self, name: str = "") -> Path | None:
        """Return where a file, or this folder itself, lies on this machine; None in an object store."""
        path = self._locate(name) if name else self._path
        return Path(path) if isinstance(self._filesystem, fs.LocalFileSystem) else None

    def exists(self, name: str) -> bool:
        """Tell whether there is a file or folder of that name."""
        return bool(self._filesystem.get_file_info(self._locate(name)).type != fs.FileType.NotFound)

    def is_file(self, name: str) -> bool:
        """Tell whether there is a file of that name."""
        return bool(self._filesystem.get_file_info(self._locate(name)).type == fs.FileType.File)

    def read_bytes(self, name: str) -> bytes:
        """Read a file whole.

        Raises:
            FileNotFoundError: There is none of that name.
        """
        path = self._locate(name)
        with self._filesystem.open_input_file(path) as stream:
            try:
                return bytes(stream.read())
            except OSError as error:
                # Arrow asks for an object before it reads it, and has no name for one that went in between.
                if "NO_SUCH_KEY" not in str(error) and self.exists(name):
                    raise
                raise FileNotFoundError(path) from error

    def read_small(self, names: Iterable[str]) -> dict[str, bytes]:
        """Read small files, many at once, with one request each in an object store.

        Returns:
            Contents by name, without files that do not exist.
        """
        names = list(names)
        with ThreadPoolExecutor(_NUM_READ_AT_ONCE) as pool:
            found = zip(names, pool.map(self._read_small, names), strict=True)
            return {name: content for name, content in found if content is not None}

    def _read_small(self, name: str) -> bytes | None:
        if self._object_store is not None:
            return self._object_store.read(self._locate(name))  # Arrow asks for the size first
        try:
            return self.read_bytes(name)
        except FileNotFoundError:
            return None

    def open_file(self, name: str) -> pa.NativeFile:
        """Open a file to read at any place; as a context manager it is closed again.

        Raises:
            FileNotFoundError: There is none of that name.
        """
        return self._filesystem.open_input_file(self._locate(name))

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a file whole or not at all; one that exists is replaced.

        Locally the content goes to a temporary file in the same folder, is flushed to the disk, and takes the
        name in one step. In an object store an object appears when its upload is complete.
        """
        self.require_writable()
        path = self._locate(name)
        if self.local_path() is not None:
            _replace(Path(path), [content])
            return
        with self._filesystem.open_output_stream(path) as stream:
            stream.write(content)

    def write_pieces(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file as `write_bytes` does, with one piece of it in memory at a time."""
        self.require_writable()
        path = self._locate(name)
        if self.local_path() is not None:
            _replace(Path(path), pieces)
            return
        # Arrow completes an upload even where it is left half-way, so that all pieces have to be there first.
        with tempfile.TemporaryFile() as gathered:
            gathered.writelines(pieces)
            gathered.seek(0)
            with self._filesystem.open_output_stream(path) as stream:
                shutil.copyfileobj(gathered, stream, length=2**20)

    def create_exclusive(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one of that name already.

        Of several processes that try at once, exactly one succeeds, and nobody sees the file before its content is
        whole (on a file system without hard links, such as FAT, it can be seen empty for a moment). That holds for
        local and network file systems, Amazon S3 and stores with its protocol, and Google Cloud Storage. Any other
        store is asked first and then written to: two writers in the same moment can both succeed there.

        Returns:
            Whether this call wrote the file.

        Raises:
            InputError: The object store has no conditional writes.
        """
        self.require_writable()
        path = self._locate(name)
        if self.local_path() is not None:
            return _create_exclusive(Path(path), content)
        if self._object_store is not None:
            return self._object_store.create(path, content)
        if self.exists(name):
            return False
        self.write_bytes(name, content)
        return True

    def read_json(self, name: str) -> Any:  # noqa: ANN401 - JSON is any value
        """Read a JSON file.

        Raises:
            FileNotFoundError: There is none of that name.
            InputError: It is not JSON.
        """
        try:
            return json.loads(self.read_bytes(name))
        except ValueError as error:
            remedy = "Restore the file, or delete it to have it made again."
            raise InputError(name, self.uri, f"is not valid JSON ({error})", remedy) from error

    def write_json(self, name: str, value: object) -> None:
        """Write a value as indented JSON with sorted keys; see `write_bytes`."""
        self.write_bytes(name, (json.dumps(value, indent=2, sort_keys=True) + "\n").encode())

    def list_names(self, prefix: str = "") -> list[str]:
        """List the files directly in this folder whose name begins with `prefix`, sorted.

        Files that are still being written do not show. A folder that does not exist holds none.
        """
        names = sorted(info.base_name for info in self._list() if info.type == fs.FileType.File)
        return [name for name in names if name.startswith(prefix) and not name.startswith(_TEMPORARY_PREFIX)]

    def list_folders(self) -> list[str]:
        """List the folders directly in this folder, sorted."""
        return sorted(info.base_name for info in self._list() if info.type == fs.FileType.Directory)

    def list_entries(self) -> list[str]:
        """List all files and folders directly in this folder, sorted, those that are still being written among them."""
        return sorted(info.base_name for info in self._list())

    def list_files(self) -> list[tuple[str, int, int]]:
        """List all files at any depth, sorted: name, size in bytes and time of change in nanoseconds since 1970."""
        files = [info for info in self._list(recursive=True) if info.type == fs.FileType.File]
        return sorted((info.path.removeprefix(f"{self._path}/"), info.size, info.mtime_ns or 0) for info in files)

    def _list(self, recursive: bool = False) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self._path, allow_not_found=True, recursive=recursive)
        return list(self._filesystem.get_file_info(selector))

    def delete(self, name: str) -> None:
        """Delete a file, if there is one of that name."""
        self.require_writable()
        self._delete([self._locate(name)])

    def delete_files(self, names: Iterable[str]) -> None:
        """Delete files, as far as they exist, and the local folders that are empty then, this one included."""
        self.require_writable()
        paths = [self._locate(name) for name in names]
        self._delete(paths)
        if (local := self.local_path()) is not None:
            _delete_empty({Path(path).parent for path in paths}, local)

    def _delete(self, paths: list[str]) -> None:
        if self._object_store is not None:
            self._object_store.delete(paths)
            return
        for path in paths:
            with suppress(FileNotFoundError):  # another process may delete it, too
                self._filesystem.delete_file(path)

    def delete_unfinished(self) -> None:
        """Delete half-written files of killed writers directly in this folder. Call it only while nobody writes."""
        self.require_writable()
        local = self.local_path()  # object stores have an object whole or not at all
        for temporary in local.iterdir() if local is not None and local.is_dir() else ():
            if is_temporary(temporary.name):
                temporary.unlink()

    def delete_all(self) -> None:
        """Delete this folder with its content, if it exists. Call it only where nobody else can have written."""
        self.require_writable()
        if self._filesystem.get_file_info(self._path).type != fs.FileType.NotFound:
            self._filesystem.delete_dir(self._path)

    @cached_property
    def _object_store(self) -> ObjectStore | None:
        return ObjectStore.of(self.uri, self._filesystem)

    def _locate(self, name: str) -> str:
        # Names can come from image files of other people's data sets, and must not lead elsewhere.
        path = PurePosixPath(name)
        if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
            remedy = "Give a relative path without '..'."
            raise InputError("name", ascii(name), "does not name a file inside the storage folder", remedy)
        return f"{self._path.rstrip('/')}/{path}"


def is_temporary(name: str) -> bool:
    """Tell whether a name is one under which this module writes a file before the file gets its own name."""
    return _TEMPORARY_NAME.fullmatch(name) is not None


def _delete_empty(folders: set[Path], last: Path) -> None:
    """Delete folders that are empty, and those that they lie in, up to a last one."""
    for folder in folders:
        for each in (folder, *folder.parents):
            try:
                each.rmdir()
            except OSError:  # it holds something, or is gone
                break
            if each == last:
                break


def _with_single_puts(uri: str) -> str:
    """Have S3 objects of up to some megabytes sent in one request, where Arrow would take three for each."""
    parts = urlsplit(uri)
    if parts.scheme.lower() != "s3" or "allow_delayed_open" in parts.query:
        return uri
    return urlunsplit(parts._replace(query=f"{parts.query}&allow_delayed_open=true".lstrip("&")))


def _replace(target: Path, pieces: Iterable[bytes]) -> None:
    temporary = _write_temporary(target, pieces)
    try:
        temporary.replace(target)
    except OSError:
        temporary.unlink()
        raise


def _create_exclusive(target: Path, content: bytes) -> bool:
    temporary = _write_temporary(target, [content])
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        # A network file system repeats a request whose answer was lost, and then finds the link that it made.
        return temporary.stat().st_nlink > 1
    except OSError:  # no hard links here
        try:
            with target.open("xb") as stream:
                stream.write(content)
        except FileExistsError:
            return False
    finally:
        temporary.unlink()
    return True


def _write_temporary(target: Path, pieces: Iterable[bytes]) -> Path:
    """Write content beside its target, flushed to the disk: a power cut must not leave an empty target."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex}"
    try:
        with temporary.open("xb") as stream:
            stream.writelines(pieces)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:  # Ctrl-C too must leave nothing behind
        temporary.unlink(missing_ok=True)
        raise
    return temporary


_CLIENT_OPTIONS: Any = {"allow_http": True, "timeout": "20s", "connect_timeout": "5s"}
_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
_REMEDY = "Use a store that has them, such as Amazon S3, Google Cloud Storage, MinIO or Ceph, or a shared file system."


class ObjectStore:
    """A bucket of Amazon S3, of a store with its protocol, or of Google Cloud Storage, for what Arrow cannot do there.

    Arrow cannot write on a condition, nor delete many objects at once.

    Paths are Arrow's: they begin with the bucket's name. A failed request is an `OSError`.

    Args:
        name: Name of the bucket.
        store: The bucket.
    """

    def __init__(self, name: str, store: S3Store | GCSStore) -> None:
        self._name = name
        self._store = store
        self._is_proven = False

    @classmethod
    def of(cls, uri: str, filesystem: fs.FileSystem) -> ObjectStore | None:
        """Open the bucket of a folder; None where Arrow's file system is not one of an object store known here.

        Args:
            uri: The folder's address, as Arrow takes it.
            filesystem: Arrow's file system for it.
        """
        parts = urlsplit(uri)
        bucket = parts.netloc.rpartition("@")[2]
        if isinstance(filesystem, fs.S3FileSystem):
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            endpoint = query.get("endpoint_override", "")
            if endpoint and "://" not in endpoint:
                endpoint = f"{query.get('scheme', 'https')}://{endpoint}"
            endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
            key, secret = unquote(parts.username or ""), unquote(parts.password or "")
            return _open_s3(bucket, filesystem.region, endpoint, key, secret)
        if isinstance(filesystem, fs.GcsFileSystem):
            return _open_gcs(bucket)
        return None

    def create(self, path: str, content: bytes) -> bool:
        """Write an object unless there is one; of several writers at once, exactly one succeeds.

        A request that is repeated because its answer was lost can find the object that it wrote itself.

        Returns:
            Whether this call wrote it.

        Raises:
            InputError: The store has no conditional writes.
        """
        created = self._put(path, content)
        if created and not self._is_proven:
            # Some stores take the condition and ignore it: a second write of the same must be refused.
            if self._put(path, content):
                raise self._refusal("ignores conditional writes (If-None-Match)")
            self._is_proven = True
        return created

    def read(self, path: str) -> bytes | None:
        """Read a small object whole; None if there is none."""
        try:
            return bytes(self._store.get(self._key(path)).bytes())
        except (FileNotFoundError, NotFoundError):
            return None
        except BaseError as error:
            raise _os_error(error) from error

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; ignore those that do not exist."""
        keys = [self._key(path) for path in paths]
        try:
            self._store.delete(keys)
        except NotFoundError:
            if len(keys) > 1:  # the others may still be there
                for path in paths:
                    self.delete([path])
        except BaseError as error:
            raise _os_error(error) from error

    def _put(self, path: str, content: bytes) -> bool:
        try:
            self._store.put(self._key(path), content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except BaseError as error:
            if "501 Not Implemented" in str(error):
                raise self._refusal("has no conditional writes (If-None-Match)") from error
            raise _os_error(error) from error
        return True

    def _refusal(self, problem: str) -> InputError:
        return InputError("storage", self._name, f"{problem}, so that two commands could compute one stage", _REMEDY)

    def _key(self, path: str) -> str:
        return path.removeprefix(f"{self._name}/")


@lru_cache(maxsize=64)
def _open_s3(bucket: str, region: str, endpoint: str, key: str, secret: str) -> ObjectStore:
    settings: dict[str, Any] = {"region": region, "client_options": _CLIENT_OPTIONS, "retry_config": _RETRIES}
    if endpoint:
        settings["endpoint"] = endpoint
    if key:
        settings |= {"access_key_id": key, "secret_access_key": secret}
    elif "AWS_ACCESS_KEY_ID" not in os.environ:
        settings["credential_provider"] = _profile_credentials()
    return ObjectStore(bucket, S3Store(bucket, **settings))


@lru_cache(maxsize=64)
def _open_gcs(bucket: str) -> ObjectStore:
    return ObjectStore(bucket, GCSStore(bucket, client_options=_CLIENT_OPTIONS, retry_config=_RETRIES))


def _profile_credentials() -> Any:  # noqa: ANN401 - None, or a class of obstore's that needs boto3
    """Read AWS's profiles, as Arrow does, where boto3 is installed; None leaves the search to obstore."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider

        return Boto3CredentialProvider()
    except (ModuleNotFoundError, ValueError):  # boto3 is not installed, or there are no profiles
        return None


def _os_error(error: BaseError) -> OSError:
    return OSError(str(error).partition("\n\nDebug source")[0])
