"""An object store for tests: moto's server speaks S3 on this machine; the environment has its endpoint and keys."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any
from urllib.request import Request, urlopen

import pytest

BUCKET = "bucket"
KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}


@cache
def _endpoint() -> str:
    """The URL of the server of this process, which ends with it."""
    logging.getLogger("werkzeug").disabled = True  # a line for each request
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}"


def object_store(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the store, which has an empty bucket and nothing else."""
    boto3, s3fs = pytest.importorskip("boto3"), pytest.importorskip("s3fs")
    with urlopen(Request(f"{_endpoint()}/moto-api/reset", method="POST")):
        s3fs.S3FileSystem.clear_instance_cache()  # with what it knows of the bucket
    for name, value in {"AWS_ENDPOINT_URL": _endpoint(), "AWS_ALLOW_HTTP": "true", **KEYS}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    return client
