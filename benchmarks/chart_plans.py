"""The chart as rendered for one small machine, and a plan for each of its pods."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from chart_pods import PodPlan

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy/helm/electra"
TEXTS = "/srv/texts"
WORKERS = ("worker-1", "worker-2")
GIB = 1 << 30


def render(settings: Sequence[str] = (), sources: str = TEXTS) -> list[dict[str, Any]]:
    """The objects of the chart, for a small machine.

    Args:
        settings: as `--set` takes them, besides those that are needed here.
        sources: where jobs may read text; the mount path of a claim `texts` unless it is elsewhere.
    """
    workers = [{"name": "cpu", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "shmSize": "1Gi"}]
    workers[0]["resources"] = {"cpu": "1", "memory": "4Gi", "ephemeralStorage": "10Gi"}
    command = [str(ROOT / "scripts/helm"), "template", "rel", str(CHART), "--namespace", "ns"]
    command += ["--kube-version", "1.33.0", "--values", str(CHART / "values/minimal.yaml")]
    command += ["--set-json", f"ray.workerGroups={json.dumps(workers)}"]
    command += ["--set-json", f"access.sourceRoots={json.dumps([sources])}"]
    if sources == TEXTS:
        command += ["--set-json", f'storage.dataClaims=[{{"claimName": "texts", "mountPath": "{TEXTS}"}}]']
    for setting in settings:
        command += ["--set", setting]
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
        "PYTHONPATH": str(ROOT),  # this checkout's packages, whichever one the programs were installed from
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
