"""Pods of a rendered chart as processes of this machine, each with a network, files, a host name and a user of its own.

A network namespace and a mount namespace for each pod: its volumes lie at their mount paths, its root is read-only
where the manifest says so, its environment is the manifest's and nothing else. What an image would bring, this
checkout's virtual environment does. Limits of memory and CPU are not enforced.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chart_policies import Endpoint, nft_rules

SUBNET = "10.213.7"
PROGRAMS = Path(sys.executable).parent
READY_SECONDS = 300.0
SHADOWED = ("etc", "var", "home", "root", "run", "opt", "srv")
"""Folders of the root that mount points may be made in, without leaving any on this machine."""
_ANSWER = """
import sys, urllib.request
headers = dict(one.split("=") for one in sys.argv[2:])
urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers), timeout=4)
"""
_REACH = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def reach(target):
    try:
        socket.create_connection(target, timeout=2).close()
        return True
    except OSError:
        return False
targets = [tuple(one) for one in json.load(sys.stdin)]
print(json.dumps(list(ThreadPoolExecutor(64).map(reach, targets))))
"""


@dataclass(frozen=True)
class PodPlan:
    """What a pod is to be."""

    name: str
    template: Mapping[str, Any]
    """`metadata` and `spec`, as rendered."""
    command: Sequence[str]
    """With the image's entrypoint."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of the image and the operator, besides the manifest's."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the operator, besides the manifest's."""


class Pod:
    """One that has been started."""

    def __init__(self, plan: PodPlan, endpoint: Endpoint, process: subprocess.Popen[bytes], network: str) -> None:
        self.plan = plan
        self.endpoint = endpoint
        self.process = process
        self.network = network

    @property
    def name(self) -> str:
        """Of the pod."""
        return self.plan.name


class ChartHosts:
    """A switch, and pods plugged into it. A context; at its end nothing is left but the logs.

    Args:
        home: folder for volumes and logs.
        objects: of the rendered chart.
        secrets: the content of each Secret it refers to.
    """

    def __init__(self, home: Path, objects: Sequence[Mapping[str, Any]], secrets: Mapping[str, Mapping[str, str]]):
        self.home = home
        self.pods: dict[str, Pod] = {}
        self._objects = objects
        self._secrets = secrets
        self._mark = f"el{os.getpid()}"
        self._hosts: dict[str, str] = {}
        """Name to address."""
        self._num_addresses = 0
        (home / "logs").mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self._ip("netns", "add", self._mark)
        self._ip("-n", self._mark, "link", "add", "switch", "type", "bridge")
        self._ip("-n", self._mark, "link", "set", "switch", "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self.pods):
            self.stop(name, grace_seconds=2.0)
        self._ip("netns", "delete", self._mark)

    def claim(self, name: str) -> Path:
        """The folder behind a PersistentVolumeClaim: every pod that mounts it sees the same."""
        folder = self.home / "claims" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def name_host(self, pod_name: str, *names: str) -> None:
        """Reserve an address, and give it names that pods which start from now on know it by."""
        self._num_addresses += 1
        self._hosts |= dict.fromkeys((pod_name, *names), f"{SUBNET}.{self._num_addresses}")

    def start(self, plan: PodPlan) -> Pod:
        """Start a pod; it is not ready yet. One that was stopped has the same address again, and new volumes."""
        if plan.name not in self._hosts:
            self.name_host(plan.name)
        address = self._hosts[plan.name]
        network = f"{self._mark}-{plan.name}"
        port = self._port(plan.name)
        self._ip("netns", "add", network)
        self._ip("link", "add", "eth0", "netns", network, "type", "veth", "peer", "name", port, "netns", self._mark)
        self._ip("-n", self._mark, "link", "set", port, "master", "switch", "up")
        self._ip("-n", network, "addr", "add", f"{address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            self._ip("-n", network, "link", "set", link, "up")
        script = self.home / "pods" / plan.name / "start.sh"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(self._script(plan), encoding="utf-8")
        command = [
            "ip",
            "netns",
            "exec",
            network,
            "unshare",
            "--mount",
            "--uts",
            "--propagation",
            "private",
            "bash",
            str(script),
        ]
        with (self.home / "logs" / f"{plan.name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        container = plan.template["spec"]["containers"][0]
        ports = {one["name"]: one["containerPort"] for one in container.get("ports", ()) if "name" in one}
        labels = {**plan.template["metadata"].get("labels", {}), **plan.labels}
        pod = Pod(plan, Endpoint(plan.name, address, labels, ports=ports), process, network)
        self.pods[plan.name] = pod
        return pod

    def stop(self, name: str, grace_seconds: float = 10.0) -> None:
        """SIGTERM to all of a pod, then SIGKILL, and its network is gone."""
        pod = self.pods.pop(name)
        deadline = time.monotonic() + grace_seconds
        sign = signal.SIGTERM
        while pids := self._run("ip", "netns", "pids", pod.network).split():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), sign)
            pod.process.poll()
            time.sleep(0.2)
            if time.monotonic() > deadline:
                sign = signal.SIGKILL
            if time.monotonic() > deadline + 30:
                raise SystemExit(f"waited 30 s for the processes of {name} to die: {pids}")
        pod.process.wait(timeout=30)
        # First the plug: the kernel takes its time with a network, and who starts again needs the name of the port.
        self._ip("-n", self._mark, "link", "delete", self._port(name))
        self._ip("netns", "delete", pod.network)

    def pause(self, name: str, *, is_paused: bool) -> None:
        """Hold all processes of a pod where they are, or let them go on: connections stay, and nobody answers."""
        for pid in self._run("ip", "netns", "pids", self.pods[name].network).split():
            os.kill(int(pid), signal.SIGSTOP if is_paused else signal.SIGCONT)

    def restart_ended(self) -> list[str]:
        """Start pods again that have ended, as Kubernetes does, but with new scratch volumes; their names."""
        ended = [pod for pod in self.pods.values() if pod.process.poll() is not None]
        for pod in ended:
            self.stop(pod.name)
            self.start(pod.plan)
        if ended:
            self.apply_policies()
        return [pod.name for pod in ended]

    def wait_until_ready(self, name: str) -> None:
        """Return when the readiness probe of a pod is content, asked from within.

        Raises:
            SystemExit: the pod has ended, or the time is over.
        """
        pod = self.pods[name]
        probe = pod.plan.template["spec"]["containers"][0].get("readinessProbe", {})
        deadline = time.monotonic() + READY_SECONDS
        while pod.process.poll() is None and time.monotonic() < deadline:
            if "httpGet" in probe:
                get = probe["httpGet"]
                headers = [f"{one['name']}={one['value']}" for one in get.get("httpHeaders", ())]
                url = f"http://127.0.0.1:{pod.endpoint.ports[get['port']]}{get['path']}"
                asked: Sequence[str] = (sys.executable, "-I", "-c", _ANSWER, url, *headers)
            else:
                asked = probe["exec"]["command"]
            if self._enter(pod, asked).returncode == 0:
                return
            time.sleep(1.0)
        code = pod.process.poll()
        why = f"was not ready within {READY_SECONDS:.0f} s" if code is None else f"ended with {code}"
        raise SystemExit(f"{name} {why}: see {self.home / 'logs' / name}.log")

    def wait_for_end(self, name: str, timeout_seconds: float = READY_SECONDS) -> int:
        """Exit status of a pod that is to end by itself."""
        code = self.pods[name].process.wait(timeout=timeout_seconds)
        self.stop(name)
        return code

    def execute(self, name: str, *command: str, stdin: str = "") -> str:
        """What a command prints that runs in a pod, as its user and with its environment, as `kubectl exec` does it.

        Raises:
            SystemExit: it failed.
        """
        pod = self.pods[name]
        done = self._enter(pod, [*self._as_user(pod.plan), *command], stdin)
        if done.returncode != 0:
            raise SystemExit(f"{shlex.join(command)} failed in {name}: {done.stderr[-2000:]}{done.stdout[-1000:]}")
        return done.stdout

    def apply_policies(self, *, are_enforced: bool = True) -> None:
        """Enforce the chart's NetworkPolicies in all pods that run, or none."""
        policies = [one for one in self._objects if one["kind"] == "NetworkPolicy"] if are_enforced else []
        endpoints = [pod.endpoint for pod in self.pods.values()]
        for pod in self.pods.values():
            rules = nft_rules(pod.endpoint, endpoints, policies)
            self._run("ip", "netns", "exec", pod.network, "nft", "-f", "-", stdin=rules)

    def listening(self, name: str) -> set[int]:
        """Ports that a pod listens at beyond its loopback."""
        found = set()
        for line in self._run("ip", "netns", "exec", self.pods[name].network, "ss", "-Hltn").splitlines():
            host, _, port = line.split()[3].rpartition(":")
            if not host.startswith(("127.", "[::1]")):
                found.add(int(port))
        return found

    def reachable(self, name: str, targets: Sequence[tuple[str, int]]) -> list[bool]:
        """Which pods and ports take a connection of a pod."""
        asked = json.dumps([(self._hosts[pod], port) for pod, port in targets])
        command = ("ip", "netns", "exec", self.pods[name].network, sys.executable, "-I", "-c", _REACH)
        answer: list[bool] = json.loads(self._run(*command, stdin=asked))
        return answer

    def cut(self, name: str, *, is_cut: bool) -> None:
        """Pull the plug of a pod, or put it back."""
        self._ip("-n", self._mark, "link", "set", self._port(name), "down" if is_cut else "up")

    def _port(self, name: str) -> str:
        """Of the switch, where a pod is plugged in."""
        return f"p{self._hosts[name].rpartition('.')[2]}"

    def _enter(self, pod: Pod, command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "--target", str(pod.process.pid), "--mount", "--net", "--uts", "--", *command]
        return subprocess.run(enter, capture_output=True, text=True, timeout=300, check=False, input=stdin)

    def _script(self, plan: PodPlan) -> str:
        """Bash that makes the pod's file tree and then becomes its program."""
        spec = plan.template["spec"]
        container = spec["containers"][0]
        security = {**spec.get("securityContext", {}), **container.get("securityContext", {})}
        user = security.get("runAsUser", 65534)
        group = security.get("fsGroup", user)
        folder = self.home / "pods" / plan.name / "volumes"
        shutil.rmtree(folder, ignore_errors=True)
        lines = [
            "set -eu",
            'ulimit -n "$(ulimit -Hn)"',
            f"hostname {shlex.quote(plan.name)}",
            "mount -t tmpfs none /mnt",
            f"mkdir /mnt/volumes /mnt/claims {' '.join(f'/mnt/{one} /mnt/{one}.work' for one in SHADOWED)}",
            f"mkdir -p {folder} {self.claim('none').parent}",
            f"mount --bind {folder} /mnt/volumes",
            f"mount --bind {self.claim('none').parent} /mnt/claims",
            *(
                f"mount -t overlay none -o lowerdir=/{one},upperdir=/mnt/{one},workdir=/mnt/{one}.work /{one}"
                for one in SHADOWED
            ),
            "mount -t tmpfs none /tmp",
            "chmod 1777 /tmp",
            "mount -t tmpfs none /dev/shm",
            "chmod 1777 /dev/shm",
            *(f"chmod a+x {folder}" for folder in _closed_folders()),
            f"echo pod:x:{user}:{user}::/home/electra:/bin/sh >> /etc/passwd",
            f"install -d -o {user} -g {user} /home/electra",
            "cat > /etc/hosts <<'END'",
            "127.0.0.1 localhost",
            *(f"{address} {name}" for name, address in self._hosts.items()),
            "END",
            ": > /etc/resolv.conf",
        ]
        volumes = {one["name"]: one for one in spec.get("volumes", ())}
        for mount in sorted(container.get("volumeMounts", ()), key=lambda one: len(one["mountPath"])):
            source = self._volume(mount["name"], volumes.get(mount["name"], {}), folder, group)
            path = mount["mountPath"]
            lines += [f"mkdir -p {path}", f"mount --bind {source} {path}"]
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {path}")
        if security.get("readOnlyRootFilesystem"):
            lines += [f"mount -o remount,ro /{one}" for one in SHADOWED] + ["mount -o remount,bind,ro /"]
            if not any(one["mountPath"] == "/tmp" for one in container.get("volumeMounts", ())):
                lines.append("mount -o remount,ro /tmp")
        lines.append(f"cd {container.get('workingDir', '/home/electra')}")
        lines.append(f"exec {shlex.join([*self._as_user(plan), *plan.command])}")
        return "\n".join(lines) + "\n"

    def _volume(self, name: str, volume: Mapping[str, Any], folder: Path, group: int) -> str:
        """Make it, and say where the pod's script finds it."""
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            _open_to(self.claim(claim), group)
            return f"/mnt/claims/{claim}"
        path = folder / name
        path.mkdir(parents=True)
        files: Mapping[str, str] = {}
        if "secret" in volume:
            files = self._secrets[volume["secret"]["secretName"]]
        elif "configMap" in volume:
            named = volume["configMap"]["name"]
            (found,) = [one for one in self._objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] == named]
            files = found["data"]
        items = volume.get("secret", volume.get("configMap", {})).get("items")
        shown = {one["path"]: files[one["key"]] for one in items} if items else files
        for file, content in shown.items():
            (path / file).write_text(content)
            os.chown(path / file, 0, group)
            (path / file).chmod(0o440)
        _open_to(path, group)
        return f"/mnt/volumes/{name}"

    def _as_user(self, plan: PodPlan) -> list[str]:
        spec = plan.template["spec"]
        container = spec["containers"][0]
        security = {**spec.get("securityContext", {}), **container.get("securityContext", {})}
        user = str(security.get("runAsUser", 65534))
        given = {one["name"]: self._value(one) for one in container.get("env", ())}
        environment = {
            "PATH": f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/home/electra",
            "LANG": "C.UTF-8",
            **plan.environment,
            **given,
        }
        drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]
        return [*drop, "env", "-i", *(f"{name}={value}" for name, value in environment.items())]

    def _value(self, variable: Mapping[str, Any]) -> str:
        if "valueFrom" not in variable:
            return str(variable.get("value", ""))
        reference = variable["valueFrom"]["secretKeyRef"]
        return self._secrets[reference["name"]][reference["key"]]

    def _ip(self, *arguments: str) -> None:
        self._run("ip", *arguments)

    def _run(self, *command: str, stdin: str = "") -> str:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{shlex.join(command)[:300]} failed: {done.stderr[-1000:]}")
        return done.stdout


def _closed_folders() -> list[Path]:
    """Above the interpreter and this checkout, as where root's home has them: the pod's user must come to them."""
    places = (Path(sys.executable).resolve(), PROGRAMS)
    above = dict.fromkeys(folder for place in places for folder in place.parents if len(folder.parts) > 1)
    return [folder for folder in above if folder.parts[1] in SHADOWED and not folder.stat().st_mode & 0o001]


def renamed(plan: PodPlan, name: str, replacements: Mapping[str, str]) -> PodPlan:
    """The same pod under another name, with other words in its manifest, such as the host of its database."""
    text = json.dumps(plan.template)
    for before, after in replacements.items():
        text = text.replace(before, after)
    return replace(plan, name=name, template=json.loads(text))


def _open_to(path: Path, group: int) -> None:
    """As `fsGroup` does."""
    os.chown(path, -1, group)
    path.chmod(0o2775)
