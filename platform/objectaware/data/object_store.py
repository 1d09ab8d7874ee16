"""What Arrow's file systems cannot do in an object store: write on a condition, and delete many objects at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import GCSStore, S3Store
from pyarrow import fs

from objectaware.errors import InputError

_CLIENT_OPTIONS: Any = {"allow_http": True, "timeout": "20s", "connect_timeout": "5s"}
_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
_REMEDY = "Use a store that has them, such as Amazon S3, Google Cloud Storage, MinIO or Ceph, or a shared file system."


class ObjectStore:
    """A bucket of Amazon S3, of what speaks its protocol, or of Google Cloud Storage.

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
            filesystem: What Arrow made of it.
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

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; those that are not there are passed over."""
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
    except ModuleNotFoundError:
        return None
    try:
        return Boto3CredentialProvider()
    except ValueError:  # there are none
        return None


def _os_error(error: BaseError) -> OSError:
    return OSError(str(error).partition("\n\nDebug source")[0])
