"""The faults: each kills something, lets it be away for a while, and brings it back."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
from chaos_world import Driver, World, kill

FAULTS = ("driver", "worker", "leader", "follower", "database", "mlflow", "ray")
"""Each happens once in `--quick`."""
SHARES = {"driver": 14, "worker": 12, "leader": 10, "follower": 8, "database": 6, "mlflow": 5, "ray": 5}
"""Of 60 faults."""
MLFLOW_AWAY_SECONDS = 30.0
TARGET_PATIENCE_SECONDS = 120.0
RECONCILED_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = 0.5


@dataclass
class Fault:
    """One that has happened."""

    kind: str
    began_at: float
    """Seconds since 1970, as all moments here."""
    target: str = ""
    back_at: float = 0.0
    """What was killed was started again and answers; of drivers and workers nothing has to be."""
    reconciled_seconds: float | None = None
    """From then until both replicas were ready and a round of the reconciler had begun; None where they never were."""
    extra: dict[str, float] = field(default_factory=dict)


def planned(number: int, rng: random.Random) -> list[str]:
    """Kinds in a random order, each as often as its share says, and each once before any comes twice."""
    weights = [SHARES[kind] for kind in FAULTS]
    kinds = [kind for kind in FAULTS for _ in range(max(1, round(number * SHARES[kind] / sum(weights))))]
    while len(kinds) < number:
        kinds.append(rng.choices(FAULTS, weights)[0])
    rng.shuffle(kinds)
    while len(kinds) > number:  # of several, one goes
        kinds.remove(max(sorted(set(kinds)), key=kinds.count))
    return kinds


class Faults:
    """Does them to a world, one after another."""

    def __init__(self, world: World, rng: random.Random, reconciled_at: Callable[[], float]) -> None:
        """`reconciled_at`: when the last round of any reconciler began, in seconds since 1970."""
        self._world = world
        self._rng = rng
        self._reconciled_at = reconciled_at

    def happen(self, kind: str) -> Fault | None:
        """Do one, and wait until the service has got over it; None where there was nothing to kill."""
        away_seconds = MLFLOW_AWAY_SECONDS if kind == "mlflow" else self._rng.uniform(0.0, 8.0)
        match kind:
            case "driver" | "worker":
                fault = self._kill_process(kind)
            case "leader" | "follower":
                fault = self._kill_replica(kind, away_seconds)
            case "database":
                fault = Fault(kind, time.time())
                self._world.database.kill()
                time.sleep(away_seconds)
                self._world.database.start()
            case _:
                fault = Fault(kind, time.time())
                self._world.kill(kind)
                time.sleep(away_seconds)
                self._world.start(kind)
        if fault is not None:
            fault.back_at = time.time()
            fault.reconciled_seconds = self._wait_until_reconciled(fault.back_at)
        return fault

    def _kill_process(self, kind: str) -> Fault | None:
        """One that works. The moment is drawn anew once there is one, so that each stage of a job is hit."""
        deadline = time.monotonic() + TARGET_PATIENCE_SECONDS
        is_late = False
        while time.monotonic() < deadline:
            drivers, workers = self._world.drivers(), self._world.workers()
            if (drivers if kind == "driver" else workers) and not is_late:
                is_late = True
                time.sleep(self._rng.uniform(0.0, 20.0 if kind == "driver" else 5.0))
                continue
            fault = Fault(kind, time.time())
            if kind == "driver" and drivers:
                target: Driver = self._rng.choice(sorted(drivers, key=lambda one: one.job_id))
                fault.target = f"{target.job_id} a{target.attempt}"
                if kill(target.pid):
                    return fault
            elif kind == "worker" and workers and kill(self._rng.choice(workers)):
                return fault
            time.sleep(_POLL_SECONDS)
        return None

    def _kill_replica(self, kind: str, away_seconds: float) -> Fault | None:
        leader = self._leader()
        named = {"leader": leader, "follower": next(name for name in self._world.replicas if name != leader)}
        name = named[kind]
        if name is None:
            return None
        fault = Fault(kind, time.time(), name)
        self._world.kill(name)
        if kind == "leader":
            # The other one takes over meanwhile, when the lease has run out.
            fault.extra["taken_over_seconds"] = self._wait_for_round(fault.began_at)
        time.sleep(away_seconds)
        self._world.start(name)
        return fault

    def _leader(self) -> str | None:
        deadline = time.monotonic() + TARGET_PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for name in self._world.replicas:
                if _holds_lease(self._world.url(name)):
                    return name
            time.sleep(_POLL_SECONDS)
        return None

    def _wait_for_round(self, since: float) -> float:
        """Seconds from a moment until a round has begun after it."""
        deadline = time.monotonic() + RECONCILED_PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if self._reconciled_at() > since:
                return time.time() - since
            time.sleep(_POLL_SECONDS / 2)
        return RECONCILED_PATIENCE_SECONDS

    def _wait_until_reconciled(self, since: float) -> float | None:
        deadline = time.monotonic() + RECONCILED_PATIENCE_SECONDS
        while time.monotonic() < deadline:
            is_ready = all(self._world.missing(name) is None for name in self._world.replicas)
            if is_ready and self._reconciled_at() > since:
                return time.time() - since
            time.sleep(_POLL_SECONDS)
        return None


def _holds_lease(url: str) -> bool:
    try:
        text = httpx.get(f"{url}/metrics", timeout=5.0, trust_env=False).text
    except httpx.HTTPError:
        return False
    return any(line.startswith("electra_lease_held") and float(line.split()[-1]) == 1 for line in text.splitlines())
