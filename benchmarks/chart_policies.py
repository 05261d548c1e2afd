"""Rendered NetworkPolicies as nftables rules for one pod that has a network of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
Direction = Literal["Ingress", "Egress"]


@dataclass(frozen=True)
class Endpoint:
    """What policies know a pod by."""

    name: str
    address: str
    labels: Mapping[str, str]
    namespace: str = "ns"
    ports: Mapping[str, int] = field(default_factory=dict)
    """Of its containers, by name."""


def nft_rules(pod: Endpoint, pods: Sequence[Endpoint], policies: Sequence[Mapping[str, Any]]) -> str:
    """A script for `nft -f -` in that pod's network; whoever is selected by no policy of a direction is open in it.

    Args:
        pod: whose network it is for.
        pods: all there are; the rules name their addresses.
        policies: NetworkPolicy objects of the namespace `ns`.
    """
    chains = [
        _chain("input", "Ingress", pod, pods, policies),
        _chain("output", "Egress", pod, pods, policies),
    ]
    return (
        "\n".join(["table inet policies", "delete table inet policies", "table inet policies {", *chains, "}"]) + "\n"
    )


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector takes something with these labels; an empty one takes all.

    Raises:
        ValueError: an operator that is not known here.
    """
    selector = selector or {}
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_holds(expression, labels) for expression in selector.get("matchExpressions", ()))


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    found, values = labels.get(expression["key"]), expression.get("values", ())
    match expression["operator"]:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case other:
            raise ValueError(f"operator must be In, NotIn, Exists or DoesNotExist, got {other!r}")


def _chain(
    name: str,
    direction: Direction,
    pod: Endpoint,
    pods: Sequence[Endpoint],
    policies: Sequence[Mapping[str, Any]],
) -> str:
    own = [one["spec"] for one in policies if _selects(one["spec"], direction, pod)]
    rules = [rule for spec in own for rule in _rules(direction, spec, pod, pods)]
    # Connections that were let in may be answered; a pod always reaches itself.
    always = ["ct state established,related accept", f'{"iif" if name == "input" else "oif"} "lo" accept']
    lines = [f"type filter hook {name} priority 0; policy {'drop' if own else 'accept'};", *always, *rules]
    return f"  chain {name} {{\n" + "".join(f"    {line}\n" for line in lines) + "  }"


def _selects(spec: Mapping[str, Any], direction: Direction, pod: Endpoint) -> bool:
    types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
    return pod.namespace == "ns" and direction in types and matches(spec.get("podSelector"), pod.labels)


def _rules(direction: Direction, spec: Mapping[str, Any], pod: Endpoint, pods: Sequence[Endpoint]) -> Iterator[str]:
    is_in = direction == "Ingress"
    field_name = "saddr" if is_in else "daddr"
    for rule in spec.get(direction.lower()) or ():
        ports = rule.get("ports")
        for peer in rule.get("from" if is_in else "to") or ({"ipBlock": {"cidr": "0.0.0.0/0"}},):
            if "ipBlock" in peer:
                block = peer["ipBlock"]
                but = "".join(f" ip {field_name} != {one}" for one in block.get("except", ()))
                for port in _ports(ports, pod if is_in else None):
                    yield f"ip {field_name} {block['cidr']}{but}{port} accept"
                continue
            for other in pods:
                if _is_peer(peer, other):
                    for port in _ports(ports, pod if is_in else other):
                        yield f"ip {field_name} {other.address}{port} accept"


def _is_peer(peer: Mapping[str, Any], other: Endpoint) -> bool:
    if "namespaceSelector" in peer:
        if not matches(peer["namespaceSelector"], {NAMESPACE_LABEL: other.namespace}):
            return False
    elif other.namespace != "ns":
        return False
    return matches(peer.get("podSelector"), other.labels)


def _ports(ports: Sequence[Mapping[str, Any]] | None, target: Endpoint | None) -> Iterator[str]:
    """Conditions on the port; of a named one, where the pod that is asked has none of that name, nothing passes."""
    if not ports:
        yield ""
        return
    for one in ports:
        protocol, number = one.get("protocol", "TCP").lower(), one.get("port")
        if isinstance(number, str):
            number = target.ports.get(number) if target is not None else None
            if number is None:
                continue
        yield f" meta l4proto {protocol}" if number is None else f" {protocol} dport {number}"
