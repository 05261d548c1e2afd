"""An S3 server beside the chart's pods that checks signatures: OpenStack Swift with its S3 layer, in a pod of its own.

What it holds outlives the pod, so that it can be killed and started again.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from chart_plans import ROOT
from chart_pods import ChartHosts, PodPlan

HOST = "s3.storage.test"
PORT = 9000
REGION = "eu-west-7"
BUCKET = "electra"
TEXTS_BUCKET = "texts"
SECRET = "electra-s3"
_SERVERS = {"account": 6202, "container": 6201, "object": 6200}
_USER = 10007
_HOME = "/var/lib/swift"


def made_credentials() -> dict[str, str]:
    """As the Secret holds them; with what has to be escaped somewhere."""
    return {"AWS_ACCESS_KEY_ID": "jobs:electra", "AWS_SECRET_ACCESS_KEY": f"{secrets.token_urlsafe(18)}/+="}


def values() -> list[str]:
    """Settings of the chart for this server, instead of a volume."""
    return [
        "storage.claim.create=false",
        f"storage.uri=s3://{BUCKET}/team",
        f"storage.s3.existingSecret={SECRET}",
        f"storage.s3.endpoint=http://{HOST}:{PORT}",
        f"storage.s3.region={REGION}",
    ]


def client_environment(credentials: Mapping[str, str]) -> dict[str, str]:
    """Of a program that is no part of the chart."""
    return {**credentials, "AWS_ENDPOINT_URL_S3": f"http://{HOST}:{PORT}", "AWS_REGION": REGION}


def server_plan(credentials: Mapping[str, str], programs: Path | None) -> PodPlan:
    """The server's pod.

    Args:
        credentials: the one key that it knows.
        programs: folder of Swift's programs; None where they are on the path.

    Raises:
        SystemExit: Swift is not installed.
    """
    found = shutil.which("swift-proxy-server", path=None if programs is None else str(programs))
    if found is None:
        raise SystemExit(
            "--storage s3 needs OpenStack Swift: python3 -m venv DIR && DIR/bin/pip install swift pyeclib, "
            "then --swift DIR/bin"
        )
    ports = " ".join(str(port) for port in (PORT, *_SERVERS.values()))
    ask = f"for port in {ports}; do exec 3<>/dev/tcp/127.0.0.1/$port || exit 1; done"
    container = {
        "name": "s3",
        "ports": [{"name": "s3", "containerPort": PORT}],
        "workingDir": _HOME,
        "volumeMounts": [{"name": "data", "mountPath": _HOME}],
        "readinessProbe": {"exec": {"command": ["bash", "-c", ask]}},
    }
    spec: dict[str, Any] = {
        "securityContext": {"runAsUser": _USER, "fsGroup": _USER},
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "s3"}}],
    }
    script = _entrypoint(credentials, Path(found).parent)
    return PodPlan("s3", {"metadata": {"labels": {}}, "spec": spec}, ["bash", "-c", script])


def _entrypoint(credentials: Mapping[str, str], programs: Path) -> str:
    """One device, one copy of everything, no memcached: it serves one rehearsal."""
    lines = ["set -eu", f"export PATH={programs}:$PATH", "mkdir -p conf disk/one", "cd conf"]
    lines += _file("swift.conf", "[swift-hash]\nswift_hash_path_prefix = chart\nswift_hash_path_suffix = chart")
    for name, port in _SERVERS.items():
        made = f"swift-ring-builder {name}.builder"
        ring = f"{made} create 4 1 1; {made} add r1z1-127.0.0.1:{port}/one 1; {made} rebalance"
        lines.append(f"[ -e {name}.ring.gz ] || {{ {ring}; }}")
        lines += _file(f"{name}.conf", _backend(name, port))
    lines += _file("proxy.conf", _proxy(credentials))
    lines += [f"swift-{name}-server {name}.conf -v &" for name in _SERVERS]
    return "\n".join([*lines, "exec swift-proxy-server proxy.conf -v"])


def _file(name: str, content: str) -> list[str]:
    return [f"cat > {name} <<'END_OF_FILE'", content, "END_OF_FILE"]


def _common(host: str, port: int) -> str:
    return f"""[DEFAULT]
bind_ip = {host}
bind_port = {port}
swift_dir = {_HOME}/conf
devices = {_HOME}/disk
mount_check = false
user = pod
workers = 0"""


def _backend(name: str, port: int) -> str:
    return f"""{_common("127.0.0.1", port)}
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}"""


def _proxy(credentials: Mapping[str, str]) -> str:
    filters = dict.fromkeys(("catch_errors", "gatekeeper", "listing_formats", "bulk", "slo"), "")
    filters["s3api"] = f"location = {REGION}"
    account, _, user = credentials["AWS_ACCESS_KEY_ID"].partition(":")
    filters["tempauth"] = f"user_{account}_{user} = {credentials['AWS_SECRET_ACCESS_KEY']} .admin"
    sections = [f"[filter:{name}]\nuse = egg:swift#{name}\n{more}" for name, more in filters.items()]
    return "\n".join([
        _common("0.0.0.0", PORT),
        "[pipeline:main]",
        "pipeline = catch_errors gatekeeper listing_formats s3api tempauth bulk slo proxy-server",
        "[app:proxy-server]",
        "use = egg:swift#proxy",
        "account_autocreate = true",
        *sections,
    ])  # fmt: skip


def refusals(hosts: ChartHosts, credentials: Mapping[str, str], tell: Callable[[str], None]) -> list[str]:
    """Make the buckets, and see that the server takes nobody else's signature; what was wrong."""
    made = client_environment(credentials)
    _python(hosts, made, _MAKE_BUCKETS, BUCKET, TEXTS_BUCKET)
    wrong = []
    others = {
        "another secret": {**made, "AWS_SECRET_ACCESS_KEY": credentials["AWS_SECRET_ACCESS_KEY"][:-1]},
        "another key": {**made, "AWS_ACCESS_KEY_ID": "jobs:nobody"},
    }
    for name, environment in others.items():
        answers = json.loads(_python(hosts, environment, _TRY_ALL, f"s3://{BUCKET}/probe"))
        tell(f"with {name} the S3 server says: {answers}")
        wrong += [
            f"with {name} {act} is answered with {said!r}" for act, said in answers.items() if "denied" not in said
        ]
    answers = json.loads(_python(hosts, made, _TRY_ALL, f"s3://{BUCKET}/probe"))
    wrong += [
        f"with the right secret {act} is answered with {said!r}" for act, said in answers.items() if said != "taken"
    ]
    return wrong


def upload(hosts: ChartHosts, credentials: Mapping[str, str], text: Path) -> None:
    """Put a text where jobs may read."""
    content = text.read_text(encoding="utf-8")
    _python(hosts, client_environment(credentials), _UPLOAD, f"s3://{TEXTS_BUCKET}/{text.name}", stdin=content)


def forget_corpora(hosts: ChartHosts) -> None:
    """Delete what is prepared, so that the next job has to prepare it."""
    hosts.execute("head", sys.executable, "-c", _FORGET)


def kill(hosts: ChartHosts, plan: PodPlan, seconds: float) -> None:
    """The server ends without a last write, and its address with it; some seconds later it is started again."""
    hosts.stop("s3", grace_seconds=0.0)
    time.sleep(seconds)
    hosts.start(plan)
    hosts.apply_policies()
    hosts.wait_until_ready("s3")


def hang(hosts: ChartHosts, seconds: float) -> None:
    """Connections are taken, and nobody answers."""
    hosts.pause("s3", is_paused=True)
    time.sleep(seconds)
    hosts.pause("s3", is_paused=False)


def _python(hosts: ChartHosts, environment: Mapping[str, str], program: str, *arguments: str, stdin: str = "") -> str:
    """Run a program outside of the chart."""
    given = [f"{name}={value}" for name, value in environment.items()]
    return hosts.execute(
        "outsider", "env", f"PYTHONPATH={ROOT}", *given, sys.executable, "-c", program, *arguments, stdin=stdin
    )


_MAKE_BUCKETS = """
import os, sys
from pyarrow import fs
endpoint = os.environ["AWS_ENDPOINT_URL_S3"].removeprefix("http://")
store = fs.S3FileSystem(endpoint_override=endpoint, scheme="http", allow_bucket_creation=True)
for bucket in sys.argv[1:]:
    store.create_dir(bucket)
"""
_TRY_ALL = """
import json, sys
from pipelines import storage
uri = sys.argv[1]
acts = {
    "writing": lambda: storage.write_bytes(uri, b"1"),
    "reading": lambda: storage.read_bytes(uri),
    "listing": lambda: storage.list_directory(uri.rpartition("/")[0]),
    "deleting": lambda: storage.delete_tree(uri),
}
answers = {}
for name, act in acts.items():
    try:
        act()
        answers[name] = "taken"
    except storage.StorageError as error:
        answers[name] = error.reason
print(json.dumps(answers))
"""
_UPLOAD = """
import sys
from pipelines import storage
storage.write_bytes(sys.argv[1], sys.stdin.buffer.read())
"""
_FORGET = """
import os
from pipelines import storage
for name in ("corpora", "texts", "tokenizers"):
    storage.delete_tree(storage.join(os.environ["ELECTRA_STORAGE_URI"], name))
"""
