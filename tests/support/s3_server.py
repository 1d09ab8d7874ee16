"""moto's S3, in threads of this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from urllib.request import Request, urlopen

import pytest

BUCKET = "objectaware"


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Gives the environment in which Arrow and boto3 find it, with an empty bucket."""
    boto3, moto = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    from moto.s3.responses import S3Response

    put_object, one_at_a_time = S3Response.put_object, threading.Lock()

    def put_atomically(*arguments: Any, **keywords: Any) -> Any:
        with one_at_a_time:  # moto looks at a condition, and writes after that
            return put_object(*arguments, **keywords)

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        environment = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        client = boto3.client(
            "s3",
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            region_name=environment["AWS_REGION"],
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        )
        reset = Request(f"{environment['AWS_ENDPOINT_URL']}/moto-api/reset", method="POST")
        urlopen(reset).close()  # all servers of a process have one memory
        client.create_bucket(Bucket=BUCKET)
        with patch.object(S3Response, "put_object", put_atomically):
            yield environment
    finally:
        server.stop()


@contextmanager
def object_store() -> Iterator[str]:
    """Gives the form of a URI in the bucket, which names all that a process needs to reach it, credentials included."""
    with s3_server() as environment:
        key, secret = environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]
        host = environment["AWS_ENDPOINT_URL"].removeprefix("http://")
        query = f"endpoint_override={host}&scheme=http&region={environment['AWS_REGION']}"
        yield f"s3://{key}:{secret}@{BUCKET}/{{}}?{query}"
