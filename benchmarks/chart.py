"""The Helm chart on this machine without Kubernetes: its pods as processes in networks of their own, and faults.

`helm template` renders `values/minimal.yaml` with two Ray workers. Each pod then runs with the commands, environment,
volumes, user and read-only root of its manifest (PostgreSQL, both migrations, MLflow, the service, Ray's head and two
workers, whose `ray start` is KubeRay's), and the chart's NetworkPolicies are enforced as nftables rules. Then:

1. who reaches whom, with the policies and without them: every port that anybody listens at, from every pod and from an
   outsider without a label; and Ray's jobs are asked for without its token;
2. a job with a worker on either host, from the outsider's `electra submit` to the registered model;
3. the same job while the plug of one worker is pulled for half a minute: it must end with the same weights;
4. the database is dumped, restored into another server, and a service that is led there tells the same list of jobs.

    sudo .venv/bin/python benchmarks/chart.py [--home PATH] [--cut-seconds 30] [--quick]

Needs Linux, root, nftables, PostgreSQL on the path, and Helm or npm. Nothing outside these networks is reached.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from chaos import made_spec
from chaos_verdict import weights_of
from chart_pods import ChartHosts, PodPlan, renamed
from common import option_parser

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy/helm/electra"
TEXTS = "/srv/texts"
WORKERS = ("worker-1", "worker-2")
RAY_PODS = {"head", *WORKERS}
JOB_SECONDS = 900.0
GIB = 1 << 30


def main() -> None:
    options = _options()
    if os.geteuid() != 0 or shutil.which("nft") is None:
        raise SystemExit("this needs root, and `nft` of the package nftables")
    home = options.home or Path(tempfile.mkdtemp(prefix="electra-chart-"))
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o755)
    started = time.monotonic()
    objects = render()
    password, token = secrets.token_urlsafe(12) + "/ @'%", secrets.token_hex(32)
    given = {"electra-database": {"password": password}, "electra-ray": {"auth_token": token}}
    plans = {plan.name: plan for plan in plans_of(objects)}
    wrong: list[str] = []
    with ChartHosts(home, objects, given) as hosts:
        _start_all(hosts, plans, objects)
        _tell(started, f"{len(hosts.pods)} pods are ready: {', '.join(hosts.pods)}")
        wrong += _paths(hosts, started)
        key = hosts.execute("service", "electra", "keys", "create", "first", "--owner", "root", "--bootstrap", "--json")
        client = {"ELECTRA_URL": "http://rel-electra-service:8080", "ELECTRA_API_KEY": json.loads(key)["key"]}
        storage = hosts.claim("rel-electra-storage")
        spec = job_spec(hosts.claim("texts"))
        first = _job(hosts, client, spec, storage, started, cut_seconds=0.0)
        wrong += first[1]
        if not options.quick:
            second = _job(hosts, client, spec, storage, started, cut_seconds=options.cut_seconds)
            wrong += second[1]
            if second[0] != first[0]:
                wrong.append("the weights of the job whose link was cut are other ones")
        wrong += _restore(hosts, plans, client, started)
    for one in wrong:
        print(f"WRONG: {one}")
    print(f"{len(wrong)} things are not as they should be")
    if options.home is None and not wrong:
        shutil.rmtree(home, ignore_errors=True)
    sys.exit(1 if wrong else 0)


def render() -> list[dict[str, Any]]:
    """The objects of the chart, for a small machine."""
    workers = [{"name": "cpu", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "shmSize": "1Gi"}]
    workers[0]["resources"] = {"cpu": "1", "memory": "4Gi", "ephemeralStorage": "10Gi"}
    command = [
        str(ROOT / "scripts/helm"),
        "template",
        "rel",
        str(CHART),
        "--namespace",
        "ns",
        "--kube-version",
        "1.33.0",
    ]
    command += ["--values", str(CHART / "values/minimal.yaml"), "--set-json", f"ray.workerGroups={json.dumps(workers)}"]
    command += ["--set-json", f'access.sourceRoots=["{TEXTS}"]']
    command += ["--set-json", f'storage.dataClaims=[{{"claimName": "texts", "mountPath": "{TEXTS}"}}]']
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise SystemExit(f"helm template failed: {done.stderr}")
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def plans_of(objects: Sequence[Mapping[str, Any]]) -> list[PodPlan]:
    """A plan for each pod that the chart, KubeRay and an outsider have."""
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    unbuffered = {
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "ELECTRA_STACK_ID": "chart",
        "SPT_NOENV": "1",
    }

    def of(kind: str, name: str, *entrypoint: str) -> PodPlan:
        template = found[kind, f"rel-electra-{name}"]["spec"]["template"]
        return PodPlan(name, template, [*entrypoint, *template["spec"]["containers"][0]["args"]], unbuffered)

    postgres = found["StatefulSet", "rel-electra-postgresql"]["spec"]["template"]
    outsider = {"metadata": {}, "spec": {"containers": [{"name": "outsider"}]}}
    return [
        PodPlan("postgresql", postgres, ["bash", "-c", _postgres_entrypoint()]),
        of("Job", "mlflow-migrate", "mlflow"),
        of("Job", "migrate", "electra"),
        of("Deployment", "mlflow", "mlflow"),
        *_ray_plans(found["RayCluster", "rel-electra-ray"], unbuffered),
        of("Deployment", "service", "electra"),
        PodPlan("outsider", outsider, ["sleep", "infinity"]),
    ]


def _ray_plans(cluster: Mapping[str, Any], environment: Mapping[str, str]) -> list[PodPlan]:
    """As KubeRay makes them: its labels, the token of the Secret, its `ray start` with the limits of the container."""
    name, spec = cluster["metadata"]["name"], cluster["spec"]
    auth = {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": "electra-ray", "key": "auth_token"}}}
    head_address = f"{name}-head-svc.ns.svc.cluster.local"
    groups = [("head", "head", spec["headGroupSpec"])]
    groups += [(worker, "worker", spec["workerGroupSpecs"][0]) for worker in WORKERS]
    plans = []
    for pod_name, node_type, group in groups:
        template = json.loads(json.dumps(group["template"]))
        container = template["spec"]["containers"][0]
        container["env"] = [*container.get("env", ()), auth]
        limits = container["resources"]["limits"]
        memory = int(limits["memory"].removesuffix("Gi")) * GIB
        where = ["--head"] if node_type == "head" else [f"--address={head_address}:6379"]
        flags = {"num-cpus": limits["cpu"], "memory": memory, "object-store-memory": memory // 4}
        flags |= {"metrics-export-port": 8080, "dashboard-agent-listen-port": 52365} | group["rayStartParams"]
        command = ["ray", "start", *where, "--block", *(f"--{flag}={value}" for flag, value in flags.items())]
        labels = {"ray.io/cluster": name, "ray.io/node-type": node_type}
        kuberay = {"RAY_AUTH_MODE": "token", "RAY_worker_niceness": "0"}
        plans.append(PodPlan(pod_name, template, command, {**environment, **kuberay}, labels))
    return plans


def _postgres_entrypoint() -> str:
    """What the official image does at its first start, with this machine's programs."""
    found = shutil.which("initdb")
    if found is None:
        raise SystemExit("this needs PostgreSQL on the path")
    programs = Path(found).resolve().parent
    return f"""set -eu; export PATH={programs}:$PATH
    initdb -D "$PGDATA" -U "$POSTGRES_USER" -A scram-sha-256 --pwfile="$POSTGRES_PASSWORD_FILE" -E UTF8 --no-locale
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    export PGPASSWORD="$(cat "$POSTGRES_PASSWORD_FILE")"
    pg_ctl -D "$PGDATA" -w -o "-c listen_addresses= -k /var/run/postgresql" start
    createdb -h /var/run/postgresql -U "$POSTGRES_USER" "$POSTGRES_DB"
    for file in /docker-entrypoint-initdb.d/*.sql; do
        psql -v ON_ERROR_STOP=1 -h /var/run/postgresql -U "$POSTGRES_USER" -d "$POSTGRES_DB" -f "$file"
    done
    pg_ctl -D "$PGDATA" -w stop
    exec postgres -D "$PGDATA" -c "listen_addresses=*" -k /var/run/postgresql"""


def _start_all(hosts: ChartHosts, plans: Mapping[str, PodPlan], objects: Sequence[Mapping[str, Any]]) -> None:
    """In the order of Helm's hooks and of what waits for what."""
    services = {one["metadata"]["name"] for one in objects if one["kind"] == "Service"}
    for name in plans:
        host = f"rel-electra-ray-{name}-svc" if name == "head" else f"rel-electra-{name}"
        names = [host + end for end in ("", ".ns", ".ns.svc", ".ns.svc.cluster.local")]
        hosts.name_host(name, *(names if name == "head" or host in services else ()))
    hosts.start(plans["postgresql"])
    hosts.wait_until_ready("postgresql")
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


def _paths(hosts: ChartHosts, started: float) -> list[str]:
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
    answer = _fails(hosts, "outsider", sys.executable, "-c", ask)
    if "401" not in answer and "403" not in answer:
        wrong.append(f"without policies and token Ray's jobs are answered with {answer!r}")
    hosts.apply_policies()
    meant = sum(is_meant("outsider", *one) for one in targets)
    _tell(started, f"{len(hosts.pods)} pods × {len(targets)} ports: {num_refused} ways closed, {len(wrong)} unmeant")
    _tell(started, f"without policies the outsider reaches {open_to_outsider} ports instead of {meant}")
    _tell(started, f"without policies and token Ray answers {answer[-40:]!r}")
    if open_to_outsider != len(targets):
        wrong.append("ports are closed without any policy: what was refused above says nothing")
    return wrong


def is_meant(source: str, target: str, port: int) -> bool:
    """What the chart promises: the service is open; Ray is open to itself, and its jobs to the service; MLflow to the
    service and to Ray; the database to the service and to MLflow.
    """
    if source == target or {source, target} <= RAY_PODS:
        return True
    callers = {
        ("service", 8080): {"outsider"},
        ("head", 8265): {"service"},
        ("mlflow", 5000): {"service", *RAY_PODS},
        ("postgresql", 5432): {"service", "mlflow"},
    }
    return source in callers.get((target, port), set())


def job_spec(texts: Path) -> dict[str, Any]:
    """One for two workers, on a text that every pod of Ray and the service mount."""
    spec = made_spec(texts)
    spec["corpus"]["sources"][0]["uris"] = [f"{TEXTS}/text.jsonl"]
    spec["training"]["num_train_steps"] = 3000
    return {**spec, "name": "chart", "compute": {"num_workers": len(WORKERS)}}


def _job(
    hosts: ChartHosts,
    client: Mapping[str, str],
    spec: Mapping[str, Any],
    storage: Path,
    started: float,
    *,
    cut_seconds: float,
) -> tuple[dict[str, str], list[str]]:
    """From submit to model; the weights, and what was wrong."""
    text = yaml.safe_dump(dict(spec))
    command = "cat > /tmp/spec.yaml <<'END'\n" + text + "END\nelectra submit /tmp/spec.yaml --json"
    job_id = json.loads(_outside(hosts, client, "bash", "-c", command))["job_id"]
    places: set[str] = set()
    deadline, is_cut = time.monotonic() + JOB_SECONDS, False
    while True:
        job = json.loads(_outside(hosts, client, "electra", "show", job_id, "--json"))
        places |= {name for name in WORKERS if _trains(hosts, name)}
        step = (job.get("progress") or {}).get("step") or 0
        if cut_seconds and not is_cut and step >= 200:
            is_cut = True
            hosts.cut(WORKERS[1], is_cut=True)
            time.sleep(cut_seconds)
            hosts.cut(WORKERS[1], is_cut=False)
            _tell(started, f"{job_id}: {WORKERS[1]} was unplugged for {cut_seconds:g} s at step {step}")
        for name in hosts.restart_ended():
            _tell(started, f"{name} has ended by itself, and is started again; the job: {_said(job)}")
        if job["state"] in ("SUCCEEDED", "FAILED", "CANCELLED"):
            break
        if time.monotonic() > deadline:
            return {}, [f"{job_id} is {job['state']} after {JOB_SECONDS:.0f} s: {job.get('progress')}"]
        time.sleep(1.0)
    models = [one["name"] for one in (job.get("result") or {}).get("models", ())]
    _tell(
        started, f"{job_id} is {job['state']}, attempt {job['attempt']}, workers on {sorted(places)}, models {models}"
    )
    wrong = [] if job["state"] == "SUCCEEDED" and models else [f"{job_id} is {job['state']}: {job.get('reason')}"]
    if places != set(WORKERS):
        wrong.append(f"{job_id} trained on {sorted(places)} and not on {WORKERS}")
    if cut_seconds and not is_cut:
        wrong.append(f"{job_id} was over before its link was cut")
    return weights_of(storage / "jobs" / job_id), wrong


def _restore(hosts: ChartHosts, plans: Mapping[str, PodPlan], client: Mapping[str, str], started: float) -> list[str]:
    """Dump and restore as docs/deploy.md says, into another server; the list of jobs from there must be the same."""
    before = json.loads(_outside(hosts, client, "electra", "jobs", "--json"))
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
    after = json.loads(_outside(hosts, client, "electra", "jobs", "--json"))
    _tell(
        started,
        f"restored into another server: {len(after)} of {len(before)} jobs are listed, and a new service is ready",
    )
    return [] if after == before else [f"the list of jobs is another one after the restore: {before} {after}"]


def _outside(hosts: ChartHosts, client: Mapping[str, str], *command: str) -> str:
    return hosts.execute("outsider", "env", *(f"{name}={value}" for name, value in client.items()), *command)


def _fails(hosts: ChartHosts, name: str, *command: str) -> str:
    """What a command says that should fail."""
    try:
        return hosts.execute(name, *command)
    except SystemExit as error:
        return str(error).strip()


def _said(job: Mapping[str, Any]) -> str:
    progress = job.get("progress") or {}
    return f"step {progress.get('step')}, {progress.get('message')!r}"


def _trains(hosts: ChartHosts, name: str) -> bool:
    pids = subprocess.run(
        ["ip", "netns", "pids", hosts.pods[name].network], capture_output=True, text=True, timeout=30, check=False
    ).stdout.split()
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::RayTrainWorker"):
                return True
        except OSError:
            continue
    return False


def _tell(started: float, line: str) -> None:
    print(f"{time.monotonic() - started:6.0f} s  {line}", flush=True)


def _options() -> argparse.Namespace:
    parser = option_parser(__doc__ or "", "no link is cut")
    parser.add_argument("--home", type=Path, help="folder for volumes and logs, which stays  [a temporary one]")
    parser.add_argument("--cut-seconds", type=float, default=30.0, help="how long a worker is unplugged")
    return parser.parse_args()


if __name__ == "__main__":
    main()
