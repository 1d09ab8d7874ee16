"""As much of S3 as Arrow and Ray use of it, in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        key, query = self._address()
        if "list-type" in query:
            return self._list(query)
        content = self.server.objects.get(key)
        if content is None:
            return self._missing()
        if "Range" not in self.headers:
            return self._answer(200, content)
        first, last = (int(text) for text in self.headers["Range"].removeprefix("bytes=").split("-"))
        last = min(last, len(content) - 1)
        return self._answer(206, content[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(content)}"})

    def do_HEAD(self) -> None:
        key, _ = self._address()
        content = self.server.objects.get(key)
        if "/" not in key:
            return self._answer(200)  # the bucket
        return self._missing() if content is None else self._answer(200, content)

    def do_PUT(self) -> None:
        key, query = self._address()
        content = self._content()
        if "partNumber" in query:
            self.server.parts[query["uploadId"], int(query["partNumber"])] = content
        else:
            self.server.objects[key] = content
        self._answer(200, headers={"ETag": '"0"'})

    def do_POST(self) -> None:
        key, query = self._address()
        content = self._content()
        if "delete" in query:
            for element in ElementTree.fromstring(content).iter():
                if element.tag.endswith("Key"):
                    self.server.objects.pop(f"{key}/{element.text}", None)
            return self._xml("DeleteResult", "")
        if "uploads" in query:
            return self._xml("InitiateMultipartUploadResult", f"<UploadId>{next(self.server.numbers)}</UploadId>")
        numbers = sorted(number for upload, number in self.server.parts if upload == query["uploadId"])
        self.server.objects[key] = b"".join(self.server.parts.pop((query["uploadId"], number)) for number in numbers)
        return self._xml("CompleteMultipartUploadResult", '<ETag>"0"</ETag>')

    def do_DELETE(self) -> None:
        self.server.objects.pop(self._address()[0], None)
        self._answer(204)

    def log_message(self, *args: object) -> None: ...

    def _address(self) -> tuple[str, dict[str, str]]:
        """Bucket and key in one, and the query."""
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return unquote(parts.path).strip("/") if "list-type" in query else unquote(parts.path).lstrip("/"), query

    def _content(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            content = b"".join(_chunks(self.rfile))
        else:
            content = self.rfile.read(int(self.headers["Content-Length"]))
        return (
            b"".join(_chunks(BytesIO(content)))
            if "aws-chunked" in self.headers.get("Content-Encoding", "")
            else content
        )

    def _list(self, query: dict[str, str]) -> None:
        bucket = self._address()[0] + "/"
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        found, folders = list[str](), set[str]()
        for name, content in sorted(self.server.objects.items()):
            key = name.removeprefix(bucket)
            if not name.startswith(bucket) or not key.startswith(prefix):
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
                continue
            time = "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            found.append(f"<Contents><Key>{escape(key)}</Key>{time}<Size>{len(content)}</Size></Contents>")
        common = [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders)]
        count = f"<KeyCount>{len(found) + len(common)}</KeyCount><IsTruncated>false</IsTruncated>"
        self._xml("ListBucketResult", count + "".join(found + common))

    def _missing(self) -> None:
        self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def _xml(self, name: str, body: str) -> None:
        self._answer(200, f'<{name} xmlns="{_NAMESPACE}">{body}</{name}>'.encode(), {"Content-Type": "application/xml"})

    def _answer(self, status: int, content: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/octet-stream",
            "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    """The pieces of a chunked body, read to its end."""
    while size := int(stream.readline().split(b";")[0], 16):
        yield stream.read(size)
        stream.readline()
    while stream.readline().strip():  # trailers
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.parts: dict[tuple[str, int], bytes] = {}
        self.numbers = iter(range(10**6))


@contextmanager
def object_store() -> Iterator[str]:
    """Gives the form of a URI in a bucket, which names all that a process needs to reach it, credentials included."""
    server = _Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"endpoint_override=127.0.0.1:{server.server_port}&scheme=http&region=us-east-1"
        yield f"s3://key:secret@bucket/{{}}?{address}"
    finally:
        server.shutdown()
        server.server_close()
