"""What an upgrade of the chart changes in a cluster: an earlier commit's and this checkout's, with the same values.

Both charts are rendered with each of the earlier one's named sets of values, and every field that differs is listed
under its object, both ways the same: read from right to left it is the rollback. What Kubernetes refuses to change,
what is deleted, and what takes running jobs with it is said; the first two end this with status 1, as do values that
today's chart refuses.

    python benchmarks/chart_changes.py [--before REVISION] [--values NAME ...] [--set-json KEY=JSON ...]

Needs git, and Helm or npm.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
CHART = "deploy/helm/electra"
VALUES = ("minimal", "team", "production-gpu")
_ABSENT = "(nothing)"
_FIXED = {
    "Deployment": ("spec.selector",),
    "StatefulSet": ("spec.selector", "spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates"),
    "PersistentVolumeClaim": ("spec.accessModes", "spec.storageClassName", "spec.volumeName"),
    "Service": ("spec.clusterIP",),
}
"""Fields that Kubernetes refuses to change in an object that is there."""


@dataclass(frozen=True)
class Change:
    """Of one field."""

    owner: str
    """The object, as `Kind/name`."""
    path: str
    """With dots; empty where the whole object came or went."""
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.owner} {self.path or 'as a whole'}: {_short(self.before)} → {_short(self.after)}"

    @property
    def is_refused(self) -> bool:
        """Whether `helm upgrade` ends with an error for it."""
        fixed = _FIXED.get(self.owner.partition("/")[0], ())
        return any(self.path == one or self.path.startswith(f"{one}.") for one in fixed)

    @property
    def is_loss(self) -> bool:
        """Whether an object goes."""
        return not self.path and self.after == _ABSENT

    @property
    def stops_jobs(self) -> bool:
        """Whether KubeRay makes the cluster anew for it, and running attempts go; not for numbers of workers."""
        is_number = self.path.rpartition(".")[2] in ("replicas", "minReplicas", "maxReplicas")
        return self.owner.startswith("RayCluster/") and self.path.startswith("spec") and not is_number


def changes(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[Change]:
    """All fields that differ between two sets of rendered objects; hooks among them, which are made anew each time."""
    ours, theirs = ({f"{one['kind']}/{one['metadata']['name']}": one for one in objects} for objects in (before, after))
    found = []
    for name in sorted({*ours, *theirs}):
        if name in ours and name in theirs:
            found += [Change(name, *field) for field in _fields("", ours[name], theirs[name])]
        else:
            found.append(Change(name, "", "there" if name in ours else _ABSENT, "there" if name in theirs else _ABSENT))
    return found


def _fields(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if before == after:
        return
    one, other = _as_mapping(before), _as_mapping(after)
    if one is None or other is None:
        yield path, before, after
        return
    for key in dict.fromkeys((*one, *other)):
        yield from _fields(f"{path}.{key}".lstrip("."), one.get(key, _ABSENT), other.get(key, _ABSENT))


def _as_mapping(value: Any) -> Mapping[str, Any] | None:
    """A list of things with names is one by these names: a new variable in front of it changes no other."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        names = [one.get("name", one.get("groupName")) if isinstance(one, dict) else None for one in value]
        if all(names) and len({*names}) == len(names):
            return dict(zip(map(str, names), value, strict=True))
    return None


def _short(value: Any) -> str:
    text = value if value == _ABSENT else yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()
    return text.removesuffix("\n...").strip()[:160]


def render(chart: Path, values: Path, *settings: str) -> list[dict[str, Any]]:
    """The objects of a chart.

    Raises:
        ValueError: it refuses the values, or does not render at all.
    """
    command = [str(ROOT / "scripts/helm"), "template", "rel", str(chart), "--namespace", "ns"]
    command += ["--kube-version", "1.33.0", "--values", str(values), *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip()[-1000:])
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def main() -> None:
    options = _options()
    before = options.before or _git("log", "-1", "--format=%h", "--", CHART).decode().strip() + "~1"
    revision = _git("log", "-1", "--format=%h %ad", "--date=short", before).decode().strip()
    num_wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        archive = tarfile.open(fileobj=io.BytesIO(_git("archive", before, "--", CHART)))  # noqa: SIM115
        archive.extractall(scratch, filter="data")
        for name in options.values:
            values = Path(scratch) / CHART / f"values/{name}.yaml"
            settings = [part for one in options.set_json for part in ("--set-json", one)]
            earlier = render(Path(scratch) / CHART, values, *settings)
            try:
                found = changes(earlier, render(ROOT / CHART, values, *settings))
            except ValueError as error:
                print(f"\n{name}: values of {revision} are refused: {error}")
                num_wrong += 1
                continue
            print(f"\n{name}: from {revision} to this checkout {len(found)} fields change")
            for change in found:
                print(f"  {_mark(change)}{change}")
            num_wrong += sum(change.is_refused or change.is_loss for change in found)
    print(f"\n{num_wrong} changes are refused or delete something")
    sys.exit(1 if num_wrong else 0)


def _mark(change: Change) -> str:
    if change.is_refused:
        return "REFUSED "
    if change.is_loss:
        return "DELETED "
    return "(stops running attempts) " if change.stops_jobs else ""


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, timeout=60, check=False)
    if done.returncode != 0:
        raise SystemExit(f"git {' '.join(arguments)} failed: {done.stderr.decode()}")
    return done.stdout


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--before", metavar="REVISION", help="the earlier commit  [that before the chart's last change]"
    )
    parser.add_argument("--values", nargs="+", choices=VALUES, default=VALUES, metavar="NAME", help="sets of values")
    parser.add_argument(
        "--set-json", action="append", default=[], metavar="KEY=JSON", help="for both, such as a remedy"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
