"""The Helm chart on this machine without Kubernetes: its pods as processes in networks of their own, and faults.

`helm template` renders `values/minimal.yaml` with two Ray workers. Each pod then runs with the commands, environment,
volumes, user and read-only root of its manifest (PostgreSQL, both migrations, MLflow, the service, Ray's head and two
workers, whose `ray start` is KubeRay's), and the chart's NetworkPolicies are enforced as nftables rules. Then:

1. who reaches whom, with the policies and without them: every port that anybody listens at, from every pod and from an
   outsider without a label; and Ray's jobs are asked for without its token;
2. a job with a worker on either host, from the outsider's `electra submit` to the registered model;
3. the same job while the plug of one worker is pulled for half a minute: it must end with the same weights;
4. the database is dumped, restored into another server, and a service that is led there tells the same list of jobs.

With `--storage s3` everything lies in a bucket of an S3 server in a pod of its own, OpenStack Swift's, instead of on a
shared volume; text is read from there too. It must refuse a wrong secret. And after 2 the prepared corpora are deleted
and the job runs once more, while the server's host goes away in the middle of preparation and of training, and the
server hangs while the model is scored and written: the same weights again, and nothing half written.

    sudo .venv/bin/python benchmarks/chart.py [--storage s3 --swift DIR] [--home PATH] [--quick]

Needs Linux, root, nftables, PostgreSQL on the path, and Helm or npm. Nothing outside these networks is reached.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import chart_s3
from chaos import made_spec
from chart_jobs import Fault, at_step, failing, in_stage, outside, run_job
from chart_plans import TEXTS, WORKERS, plans_of, render
from chart_pods import ChartHosts, PodPlan, renamed
from common import option_parser

RAY_PODS = {"head", *WORKERS}
WIDE = {"hidden_size": 256, "embedding_size": 128, "num_attention_heads": 4, "intermediate_size": 1024}
"""Large enough that a checkpoint is uploaded in parts, which pyarrow does from 10 MB on."""
Tell = Callable[[str], None]


def main() -> None:
    options = _options()
    if os.geteuid() != 0 or shutil.which("nft") is None:
        raise SystemExit("this needs root, and `nft` of the package nftables")
    is_s3 = options.storage == "s3"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no pod is left
    home = options.home or Path(tempfile.mkdtemp(prefix="electra-chart-"))
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o755)
    tell = partial(_tell, time.monotonic())
    sources = f"s3://{chart_s3.TEXTS_BUCKET}" if is_s3 else TEXTS
    objects = render(chart_s3.values() if is_s3 else (), sources)
    password, token = secrets.token_urlsafe(12) + "/ @'%", secrets.token_hex(32)
    given = {"electra-database": {"password": password}, "electra-ray": {"auth_token": token}}
    plans = {plan.name: plan for plan in plans_of(objects)}
    if is_s3:
        given[chart_s3.SECRET] = chart_s3.made_credentials()
        plans["s3"] = chart_s3.server_plan(given[chart_s3.SECRET], options.swift)
    wrong: list[str] = []
    with ChartHosts(home, objects, given) as hosts:
        _start_all(hosts, plans, objects)
        tell(f"{len(hosts.pods)} pods are ready: {', '.join(hosts.pods)}")
        wrong += _paths(hosts, tell)
        if is_s3:
            wrong += chart_s3.refusals(hosts, given[chart_s3.SECRET], tell)
        key = hosts.execute("service", "electra", "keys", "create", "first", "--owner", "root", "--bootstrap", "--json")
        client = {"ELECTRA_URL": "http://rel-electra-service:8080", "ELECTRA_API_KEY": json.loads(key)["key"]}
        spec = job_spec(hosts.claim("texts"), sources)
        if is_s3:
            spec["model"] |= WIDE
            chart_s3.upload(hosts, given[chart_s3.SECRET], hosts.claim("texts") / "text.jsonl")
        first = run_job(hosts, client, spec, tell)
        wrong += first.wrong
        for faults in () if options.quick else _troubles(hosts, plans, options):
            if is_s3:
                chart_s3.forget_corpora(hosts)
            again = run_job(hosts, client, spec, tell, faults)
            wrong += again.wrong
            if again.weights != first.weights:
                wrong.append(f"the weights are other ones after: {', '.join(fault.name for fault in faults)}")
        wrong += _restore(hosts, plans, client, tell)
    for one in wrong:
        print(f"WRONG: {one}")
    print(f"{len(wrong)} things are not as they should be")
    if options.home is None and not wrong:
        shutil.rmtree(home, ignore_errors=True)
    sys.exit(1 if wrong else 0)


def job_spec(texts: Path, sources: str) -> dict[str, Any]:
    """One for two workers, on a text that lies in the folder `texts`, which jobs know as `sources`."""
    spec = made_spec(texts)
    spec["corpus"]["sources"][0]["uris"] = [f"{sources}/text.jsonl"]
    spec["training"]["num_train_steps"] = 800 if sources.startswith("s3://") else 3000
    return {**spec, "name": "chart", "compute": {"num_workers": len(WORKERS)}}


def _troubles(hosts: ChartHosts, plans: Mapping[str, PodPlan], options: argparse.Namespace) -> list[list[Fault]]:
    """What happens to each of the jobs after the first."""
    unplug = Fault(f"{WORKERS[1]} was unplugged", at_step(200), lambda: _unplug(hosts, options.cut_seconds))
    if options.storage != "s3" or options.storage_stays:
        return [[unplug]]
    seconds = options.away_seconds
    killed = partial(chart_s3.kill, hosts, plans["s3"], seconds)
    return [
        [
            Fault("the S3 server's host was away", in_stage("prepare"), killed),
            Fault("the S3 server's host was away", at_step(200), killed),
            Fault("the S3 server hung", in_stage("evaluate"), partial(chart_s3.hang, hosts, seconds)),
        ],
        [unplug],
    ]


def _unplug(hosts: ChartHosts, seconds: float) -> None:
    hosts.cut(WORKERS[1], is_cut=True)
    time.sleep(seconds)
    hosts.cut(WORKERS[1], is_cut=False)


def _start_all(hosts: ChartHosts, plans: Mapping[str, PodPlan], objects: Sequence[Mapping[str, Any]]) -> None:
    """In the order of Helm's hooks and of what waits for what."""
    services = {one["metadata"]["name"] for one in objects if one["kind"] == "Service"}
    for name in plans:
        host = f"rel-electra-ray-{name}-svc" if name == "head" else f"rel-electra-{name}"
        names = [host + end for end in ("", ".ns", ".ns.svc", ".ns.svc.cluster.local")]
        outer = (chart_s3.HOST,) if name == "s3" else ()
        hosts.name_host(name, *(names if name == "head" or host in services else outer))
    for name in (one for one in ("s3", "postgresql") if one in plans):
        hosts.start(plans[name])
        hosts.wait_until_ready(name)
    for name in ("mlflow-migrate", "migrate"):
        hosts.start(plans[name])
        hosts.apply_policies()
        code = hosts.wait_for_end(name)
        if code:
            raise SystemExit(f"{name} ended with {code}: see {hosts.home / 'logs' / name}.log")
    for name in ("mlflow", "head", *WORKERS, "service", "outsider"):
        hosts.start(plans[name])
        hosts.apply_policies()
    for name in ("mlflow", "service"):
        hosts.wait_until_ready(name)


def _paths(hosts: ChartHosts, tell: Tell) -> list[str]:
    """Who reaches whom, and who should."""
    targets = [(name, port) for name in hosts.pods for port in sorted(hosts.listening(name))]
    wrong, num_refused = [], 0
    for source in hosts.pods:
        for (name, port), is_reached in zip(targets, hosts.reachable(source, targets), strict=True):
            should = is_meant(source, name, port)
            num_refused += not is_reached
            if is_reached != should:
                wrong.append(f"{source} {'reaches' if is_reached else 'does not reach'} {name}:{port}")
    hosts.apply_policies(are_enforced=False)
    open_to_outsider = sum(hosts.reachable("outsider", targets))
    ask = "import urllib.request as u;u.urlopen('http://rel-electra-ray-head-svc:8265/api/jobs/',timeout=10)"
    answer = failing(hosts, "outsider", sys.executable, "-c", ask)
    if "401" not in answer and "403" not in answer:
        wrong.append(f"without policies and token Ray's jobs are answered with {answer!r}")
    hosts.apply_policies()
    meant = sum(is_meant("outsider", *one) for one in targets)
    tell(f"{len(hosts.pods)} pods × {len(targets)} ports: {num_refused} ways closed, {len(wrong)} unmeant")
    tell(f"without policies the outsider reaches {open_to_outsider} ports instead of {meant}")
    tell(f"without policies and token Ray answers {answer[-40:]!r}")
    if open_to_outsider != len(targets):
        wrong.append("ports are closed without any policy: what was refused above says nothing")
    return wrong


def is_meant(source: str, target: str, port: int) -> bool:
    """What the chart promises: the service is open; Ray is open to itself, and its jobs to the service; MLflow to the
    service and to Ray; the database to the service and to MLflow. An S3 server is open to all who may leave.
    """
    if source == target or {source, target} <= RAY_PODS:
        return True
    callers = {
        ("service", 8080): {"outsider", "s3"},
        ("head", 8265): {"service"},
        ("mlflow", 5000): {"service", *RAY_PODS},
        ("postgresql", 5432): {"service", "mlflow"},
        ("s3", chart_s3.PORT): {"outsider", "service", "mlflow", *RAY_PODS},
    }
    return source in callers.get((target, port), set())


def _restore(hosts: ChartHosts, plans: Mapping[str, PodPlan], client: Mapping[str, str], tell: Tell) -> list[str]:
    """Dump and restore as docs/deploy.md says, into another server; the list of jobs from there must be the same."""
    before = json.loads(outside(hosts, client, "electra", "jobs", "--json"))
    hosts.stop("service")
    other = {"rel-electra-postgresql.ns.svc": "restored-database"}
    hosts.start(renamed(plans["postgresql"], "restored-database", {}))
    hosts.apply_policies()
    hosts.wait_until_ready("restored-database")
    at = "-h localhost -U electra"
    password = 'export PGPASSWORD="$(cat "$POSTGRES_PASSWORD_FILE")"; '
    for database in ("electra", "mlflow"):
        dump = hosts.execute("postgresql", "bash", "-c", f"{password} pg_dump -Fc {at} {database} | base64")
        restore = f"{password} base64 -d | pg_restore --clean --if-exists {at} -d {database}"
        hosts.execute("restored-database", "bash", "-c", restore, stdin=dump)
    hosts.name_host("service-again", "rel-electra-service")
    hosts.stop("outsider")
    hosts.start(plans["outsider"])
    hosts.start(renamed(plans["service"], "service-again", other))
    hosts.apply_policies()
    hosts.wait_until_ready("service-again")
    after = json.loads(outside(hosts, client, "electra", "jobs", "--json"))
    tell(f"restored into another server: {len(after)} of {len(before)} jobs are listed, and a new service is ready")
    return [] if after == before else [f"the list of jobs is another one after the restore: {before} {after}"]


def _tell(started: float, line: str) -> None:
    print(f"{time.monotonic() - started:6.0f} s  {line}", flush=True)


def _options() -> argparse.Namespace:
    parser = option_parser(__doc__ or "", "one job only, and no faults")
    parser.add_argument("--home", type=Path, help="folder for volumes and logs, which stays  [a temporary one]")
    parser.add_argument("--storage", choices=("claim", "s3"), default="claim", help="where everything lies  [claim]")
    parser.add_argument("--swift", type=Path, metavar="DIR", help="folder of Swift's programs  [those on the path]")
    parser.add_argument("--away-seconds", type=float, default=10.0, help="how long the S3 server is away each time")
    parser.add_argument("--storage-stays", action="store_true", help="the S3 server is never away")
    parser.add_argument("--cut-seconds", type=float, default=30.0, help="how long a worker is unplugged")
    return parser.parse_args()


if __name__ == "__main__":
    main()
