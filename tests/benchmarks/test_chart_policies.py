"""NetworkPolicies as nftables rules: who is closed, and to whom it opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def pods() -> list[Any]:
    from chart_policies import Endpoint

    return [
        Endpoint("database", "10.0.0.1", {"app": "database"}, ports={"sql": 5432}),
        Endpoint("service", "10.0.0.2", {"app": "service"}),
        Endpoint("outsider", "10.0.0.3", {}),
        Endpoint("operator", "10.0.0.4", {"app": "service"}, namespace="operators"),
    ]


def policy(**spec: Any) -> dict[str, Any]:
    return {"spec": {"podSelector": {"matchLabels": {"app": "database"}}, **spec}}


def chains(pod: int, *policies: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Lines of the input and of the output chain."""
    from chart_policies import nft_rules

    text = nft_rules(pods()[pod], pods(), policies)
    before, _, after = text.partition("chain output")
    return [
        [line.strip() for line in part.splitlines() if line.strip().endswith(("accept", ";"))]
        for part in (before, after)
    ]


def passes(lines: list[str]) -> list[str]:
    """What is let through besides answers and the pod itself."""
    return [line for line in lines if line.startswith("ip ")]


def test_a_selected_pod_is_closed_but_to_those_named() -> None:
    allowed = {"from": [{"podSelector": {"matchLabels": {"app": "service"}}}], "ports": [{"port": "sql"}]}
    incoming, outgoing = chains(0, policy(policyTypes=["Ingress"], ingress=[allowed]))
    assert incoming[0].endswith("policy drop;")
    assert passes(incoming) == ["ip saddr 10.0.0.2 tcp dport 5432 accept"]
    assert outgoing[0].endswith("policy accept;")


def test_a_pod_that_no_policy_selects_is_open() -> None:
    incoming, outgoing = chains(1, policy(policyTypes=["Ingress", "Egress"]))
    assert incoming[0].endswith("policy accept;")
    assert outgoing[0].endswith("policy accept;")


def test_a_policy_without_rules_closes_altogether() -> None:
    incoming, outgoing = chains(0, policy(policyTypes=["Ingress", "Egress"]))
    assert (incoming[0].endswith("policy drop;"), passes(incoming)) == (True, [])
    assert (outgoing[0].endswith("policy drop;"), passes(outgoing)) == (True, [])


@pytest.mark.parametrize(
    ("peer", "addresses"),
    [
        ({"namespaceSelector": {}}, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "operators"}}}, ["10.0.0.4"]),
        ({"podSelector": {}}, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        ({"podSelector": {"matchLabels": {"app": "service"}}}, ["10.0.0.2"]),
        ({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "service"}}}, ["10.0.0.2", "10.0.0.4"]),
        (
            {"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["database", "x"]}]}},
            ["10.0.0.1"],
        ),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, ["10.0.0.3"]),
    ],
)
def test_peers_are_pods_of_the_namespace_unless_another_is_named(peer: Any, addresses: list[str]) -> None:
    incoming, _ = chains(0, policy(policyTypes=["Ingress"], ingress=[{"from": [peer]}]))
    assert passes(incoming) == [f"ip saddr {address} accept" for address in addresses]


def test_a_rule_without_peers_opens_its_ports_to_all_and_blocks_have_exceptions() -> None:
    block = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}}
    rules = [
        {"ports": [{"port": 5432, "protocol": "TCP"}]},
        {"to": [block], "ports": [{"port": 53, "protocol": "UDP"}]},
    ]
    _, outgoing = chains(0, policy(policyTypes=["Egress"], egress=rules))
    assert passes(outgoing) == [
        "ip daddr 0.0.0.0/0 tcp dport 5432 accept",
        "ip daddr 0.0.0.0/0 ip daddr != 169.254.169.254/32 udp dport 53 accept",
    ]


def test_a_named_port_is_that_of_whoever_is_asked() -> None:
    rule = {"to": [{"podSelector": {}}], "ports": [{"port": "sql"}]}
    _, outgoing = chains(0, policy(policyTypes=["Egress"], egress=[rule]))
    assert passes(outgoing) == ["ip daddr 10.0.0.1 tcp dport 5432 accept"]  # nobody else has such a port


def test_an_unknown_operator_is_refused() -> None:
    from chart_policies import matches

    with pytest.raises(ValueError, match="operator must be In, NotIn, Exists or DoesNotExist, got 'Gt'"):
        matches({"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]}, {})
