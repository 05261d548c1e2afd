"""One small Ray cluster and one S3 server for the whole session, and text to feed them."""

from __future__ import annotations

import atexit
import gc
import json
import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest
from hypothesis import settings

# Ray takes its token when it is imported, and writes one into the home folder where it is not told of another.
_TOKEN = Path(tempfile.mkdtemp(prefix="electra-ray-")) / "token"
_TOKEN.write_text(secrets.token_hex(32))
_TOKEN.chmod(0o600)
atexit.register(shutil.rmtree, _TOKEN.parent, ignore_errors=True)
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(_TOKEN))

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def session_environment() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="session")
def s3_endpoint(session_environment: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 server of our own, found through the environment as a user's would be."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    session_environment.setenv("AWS_ENDPOINT_URL", endpoint)
    session_environment.setenv("AWS_ACCESS_KEY_ID", "testing")
    session_environment.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    session_environment.setenv("AWS_REGION", "us-east-1")
    yield endpoint
    server.stop()


@pytest.fixture(scope="session")
def bucket(s3_endpoint: str) -> str:
    """URI of an empty bucket."""
    from pyarrow import fs

    address = s3_endpoint.removeprefix("http://")
    admin = fs.S3FileSystem(endpoint_override=address, scheme="http", allow_bucket_creation=True)
    admin.create_dir("texts")
    return "s3://texts"


@pytest.fixture(scope="session")
def ray_cluster(s3_endpoint: str, session_environment: pytest.MonkeyPatch) -> Iterator[None]:
    """Two CPUs. Workers inherit this process's environment, so the S3 server comes first."""
    import ray

    if ray.is_initialized():
        yield
        return
    session_environment.setenv("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    session_environment.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    session_environment.delenv("RAY_ADDRESS", raising=False)
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=200 << 20,
        log_to_driver=False,
        configure_logging=False,
    )
    yield
    ray.shutdown()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves the processes it ended to the collector
        gc.collect()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Torch computes on one thread while the tests of a file run."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def documents() -> list[str]:
    """Real English that every Python carries: the topics of `help()`."""
    return [f"{name}\n\n{text}" for name, text in sorted(topics.items())]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The corpora beside the project."""
    path = Path(__file__).parents[3] / "shared" / "data"
    if not path.exists():
        pytest.skip(f"{path} is not beside the project")
    return path


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., Path]:
    """Write texts as JSON lines and return the file."""

    def write(name: str, texts: list[str], **fields: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"text": text, **fields}) + os.linesep for text in texts))
        return path

    return write
