"""What no schema sees: names that must be the same in two places, and what every pod must have."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from chart_rendering import NAMED, environment, find, pod_templates, rendered

from service.settings import Settings


@pytest.mark.parametrize("values", NAMED)
def test_pods_keep_the_restricted_standard(values: str) -> None:
    for name, pod in pod_templates(rendered(values)).items():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert context.get("readOnlyRootFilesystem", False) or name.startswith("RayCluster/"), name


@pytest.mark.parametrize("values", NAMED)
def test_no_pod_inherits_variables_that_kubernetes_makes_of_services(values: str) -> None:
    # A service called `electra` would set ELECTRA_PORT to tcp://…, and ours would not start.
    assert all(pod["spec"]["enableServiceLinks"] is False for pod in pod_templates(rendered(values)).values())


@pytest.mark.parametrize("values", NAMED)
def test_every_container_says_what_it_takes(values: str) -> None:
    for name, pod in pod_templates(rendered(values)).items():
        for container in pod["spec"]["containers"]:
            assert container["resources"]["requests"].keys() >= {"cpu", "memory"}, name
            assert "memory" in container["resources"]["limits"], name


@pytest.mark.parametrize("values", NAMED)
def test_every_image_is_one_version(values: str) -> None:
    for name, pod in pod_templates(rendered(values)).items():
        for container in pod["spec"]["containers"]:
            assert re.search(r"(:[\w.-]*\d[\w.-]*|@sha256:[0-9a-f]{64})$", container["image"]), name


@pytest.mark.parametrize("values", NAMED)
def test_only_the_head_beside_the_autoscaler_holds_a_token_of_kubernetes(values: str) -> None:
    with_token = {
        name
        for name, pod in pod_templates(rendered(values)).items()
        if pod["spec"].get("automountServiceAccountToken") is not False
    }
    assert with_token == (set() if values == "minimal" else {"RayCluster/rel-electra-ray/head"})
    assert not [item for item in rendered(values) if item["kind"] in ("Role", "ClusterRole", "RoleBinding")]


@pytest.mark.parametrize("values", NAMED)
def test_selectors_find_the_pods_they_mean(values: str) -> None:
    objects = rendered(values)
    pods = pod_templates(objects)
    for item in objects:
        if item["kind"] in ("Deployment", "StatefulSet"):
            selector = item["spec"]["selector"]["matchLabels"]
            assert selector.items() <= item["spec"]["template"]["metadata"]["labels"].items()
        if item["kind"] == "Service":
            found = [pod for pod in pods.values() if item["spec"]["selector"].items() <= labels(pod).items()]
            assert len(found) == 1, item["metadata"]["name"]
            ports = {port["name"] for port in found[0]["spec"]["containers"][0]["ports"]}
            assert {port["targetPort"] for port in item["spec"]["ports"]} <= ports


@pytest.mark.parametrize("values", NAMED)
def test_secrets_and_volumes_that_pods_name_are_given_by_values_or_by_the_chart(values: str) -> None:
    objects = rendered(values)
    made = {(item["kind"], item["metadata"]["name"]) for item in objects}
    told = {"electra-database", "electra-ray", "electra-tls", "electra-redis", "database-ca", "corpora"}
    for kind, name in references([item for item in objects if item["kind"] != "Ingress"]):
        assert (kind, name) in made or name in told, (kind, name)


def test_no_object_carries_a_secret() -> None:
    for values in NAMED:
        assert not [item for item in rendered(values) if item["kind"] == "Secret"]
        urls = re.findall(r"\w+://[^\s\"']*", json.dumps(rendered(values)))
        assert not [url for url in urls if re.search(r"//[^/]*:[^/@]*@", url)]


@pytest.mark.parametrize("values", NAMED)
def test_the_services_variables_are_settings_it_has_and_can_read(values: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = environment(service_pod(rendered(values)))
    names = {f"ELECTRA_{name.upper()}" for name in Settings.model_fields}
    assert {name for name in told if name.startswith("ELECTRA_")} <= names
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))
    settings = Settings()
    assert (settings.access, settings.tls_upstream, settings.host) == ("keys", True, "0.0.0.0")
    assert settings.database_url.startswith("postgresql+psycopg://electra@")
    assert "rel-electra-service.ns.svc" in settings.allowed_hosts
    assert settings.check_capacity is (values == "minimal")
    assert settings.check_room is (values == "minimal")


def test_probes_give_a_name_that_the_service_answers_to() -> None:
    (container,) = service_pod(rendered("team"))["spec"]["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def test_the_name_of_the_ingress_is_one_the_service_answers_to() -> None:
    told = environment(service_pod(rendered("team")))
    assert "electra.example.com" in json.loads(told["ELECTRA_ALLOWED_HOSTS"])


def test_one_token_for_both_sides_of_rays_ports() -> None:
    objects = rendered("team")
    cluster = find(objects, "RayCluster", "rel-electra-ray")
    assert cluster["spec"]["authOptions"] == {"mode": "token", "secretName": "electra-ray"}
    volumes = {volume["name"]: volume for volume in service_pod(objects)["spec"]["volumes"]}
    assert volumes["ray-token"]["secret"]["secretName"] == "electra-ray"


def test_the_service_speaks_to_the_head_service_that_kuberay_makes() -> None:
    objects = rendered("team", "fullnameOverride=" + "x" * 36)
    (cluster,) = [item for item in objects if item["kind"] == "RayCluster"]
    head_service = f"{cluster['metadata']['name']}-head-svc"
    assert len(head_service) <= 50  # KubeRay cuts what is longer
    told = environment(find(objects, "Deployment", "x" * 36 + "-service")["spec"]["template"])
    assert told["ELECTRA_RAY_ADDRESS"] == f"http://{head_service}.ns.svc:8265"


def test_ray_pods_keep_the_labels_kuberay_finds_them_by() -> None:
    for name, pod in pod_templates(rendered("production-gpu")).items():
        if name.startswith("RayCluster/"):
            assert not labels(pod).keys() & {"app.kubernetes.io/name", "app.kubernetes.io/version", "helm.sh/chart"}


def test_only_the_service_the_cluster_and_its_operator_reach_the_port_that_takes_jobs() -> None:
    policy = find(rendered("team"), "NetworkPolicy", "rel-electra-ray")["spec"]
    assert policy["podSelector"]["matchLabels"] == {"ray.io/cluster": "rel-electra-ray"}
    inside, jobs = policy["ingress"]
    assert inside == {"from": [{"podSelector": {"matchLabels": {"ray.io/cluster": "rel-electra-ray"}}}]}
    service, operator = jobs["from"]
    assert service["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "service"
    assert operator == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kuberay-system"}}}
    assert jobs["ports"] == [{"port": 8265, "protocol": "TCP"}]


@pytest.mark.parametrize("values", NAMED)
def test_every_pod_stands_under_one_policy_and_may_ask_for_names(values: str) -> None:
    objects = rendered(values)
    policies = [item["spec"] for item in objects if item["kind"] == "NetworkPolicy"]
    for name, pod in pod_templates(objects).items():
        own = labels(pod) | ({"ray.io/cluster": "rel-electra-ray"} if name.startswith("RayCluster/") else {})
        covering = [policy for policy in policies if is_selected(policy["podSelector"], own)]
        if name.startswith("Pod/"):
            continue  # that of `helm test`
        assert len(covering) == 1, name
        ports = [port["port"] for rule in covering[0].get("egress", ()) for port in rule.get("ports", ())]
        assert 53 in ports or name.startswith("StatefulSet/"), name


def test_migrations_run_before_the_new_pods_and_on_an_own_database_before_the_first_too() -> None:
    hooks = {values: find(rendered(values), "Job", "rel-electra-migrate") for values in NAMED}
    assert hooks["team"]["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert hooks["minimal"]["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    assert hooks["team"]["spec"]["template"]["spec"]["containers"][0]["args"] == ["migrate", "--wait", "300"]


@pytest.mark.parametrize("values", NAMED)
def test_a_hook_needs_nothing_that_the_release_has_yet_to_make(values: str) -> None:
    objects = rendered(values)
    made = {item["metadata"]["name"] for item in objects if item["kind"] in ("ServiceAccount", "PersistentVolumeClaim")}
    for job in (item for item in objects if item["kind"] == "Job"):
        spec = job["spec"]["template"]["spec"]
        assert spec.get("serviceAccountName") not in made
        assert not {name for _, name in references([spec])} & made


def test_the_head_is_never_on_spot_nodes() -> None:
    head = pod_templates(rendered("production-gpu"))["RayCluster/rel-electra-ray/head"]
    (term,) = head["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert {"key": "karpenter.sh/capacity-type", "operator": "NotIn", "values": ["spot"]} in term["matchExpressions"]


def test_gpu_workers_ask_for_gpus_and_the_variant_that_uses_them() -> None:
    worker = pod_templates(rendered("production-gpu"))["RayCluster/rel-electra-ray/gpu"]["spec"]
    assert worker["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert worker["containers"][0]["image"] == "registry.example.com/electra/electra-ray:0.1.0-cuda"
    assert worker["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_an_upgrade_does_not_set_back_what_the_autoscaler_has_scaled() -> None:
    for values, is_set in (("minimal", True), ("team", False), ("production-gpu", False)):
        for group in find(rendered(values), "RayCluster", "rel-electra-ray")["spec"]["workerGroupSpecs"]:
            assert ("replicas" in group) is is_set, values


def test_jobs_and_service_see_the_same_storage_and_text() -> None:
    pods = pod_templates(rendered("team"))
    mounts = {
        name: {mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        for name, pod in pods.items()
        if name.startswith(("RayCluster/", "Deployment/rel-electra-service"))
    }
    assert len(mounts) == 3
    assert all(paths >= {"/var/lib/electra/storage", "/data/corpora"} for paths in mounts.values())


def test_a_disruption_budget_never_holds_up_a_node_for_the_only_replica() -> None:
    assert not [item for item in rendered("minimal") if item["kind"] == "PodDisruptionBudget"]
    assert find(rendered("team"), "PodDisruptionBudget", "rel-electra-service")["spec"]["maxUnavailable"] == 1


def test_storage_outlives_the_release() -> None:
    claim = find(rendered("team"), "PersistentVolumeClaim", "rel-electra-storage")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_an_upgrade_of_one_image_changes_only_the_pods_of_that_image() -> None:
    before, after = rendered("team"), rendered("team", "service.image.tag=0.1.1")
    changed = {f"{b['kind']}/{b['metadata']['name']}" for a, b in zip(before, after, strict=True) if a != b}
    assert changed == {
        "Deployment/rel-electra-service",
        "Job/rel-electra-migrate",
        "Pod/rel-electra-service-test",
    }


def labels(pod: dict[str, Any]) -> dict[str, str]:
    return dict(pod["metadata"]["labels"])


def service_pod(objects: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    pod: dict[str, Any] = find(objects, "Deployment", "rel-electra-service")["spec"]["template"]
    return pod


def is_selected(selector: dict[str, Any], own: dict[str, str]) -> bool:
    expressions = selector.get("matchExpressions", ())
    assert all(expression["operator"] == "In" for expression in expressions)
    return selector.get("matchLabels", {}).items() <= own.items() and all(
        own.get(expression["key"]) in expression["values"] for expression in expressions
    )


def references(node: Any) -> set[tuple[str, str]]:
    """Objects that others name: (kind, name)."""
    found = set()
    if isinstance(node, list | tuple):
        for child in node:
            found |= references(child)
    elif isinstance(node, dict):
        for key, child in node.items():
            if key in ("secretKeyRef", "secretRef"):
                found.add(("Secret", child["name"]))
            elif key == "secretName":
                found.add(("Secret", child))
            elif key == "configMap":
                found.add(("ConfigMap", child["name"]))
            elif key == "claimName":
                found.add(("PersistentVolumeClaim", child))
            elif key == "serviceAccountName":
                found.add(("ServiceAccount", child))
            else:
                found |= references(child)
    return found


def test_mlflow_signs_addresses_for_the_region_of_the_storage() -> None:
    # Arrow, by which everything else reaches the storage, reads AWS_REGION; boto3 reads the other alone.
    pods = pod_templates(rendered("production-gpu", "storage.s3.region=eu-west-7"))
    told = environment(pods["Deployment/rel-electra-mlflow"])
    assert (told["AWS_REGION"], told["AWS_DEFAULT_REGION"]) == ("eu-west-7", "eu-west-7")
