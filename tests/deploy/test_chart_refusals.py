from __future__ import annotations

import pytest
from chart_rendering import CHART, refusal, run_helm, why_no_helm

# (values, what is set, a part of the message that names the rule and the remedy)
REFUSED: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("minimal", ("image.registry=",), "image.registry must name the registry"),
    ("minimal", ("image.tag=latest",), 'must name one version, got "latest"'),
    ("minimal", ("access.mode=open",), 'access.mode must be keys, got "open"'),
    ("minimal", ("access.mode=none",), "access.mode must be one of the following"),
    ("minimal", ("access.tlsUpstream=false",), "no TLS is stated"),
    ("team", ("ingress.tlsSecretName=",), "ingress.tlsSecretName must name a Secret"),
    ("team", ("ingress.host=",), "ingress.host must be given"),
    ("team", ("service.type=LoadBalancer",), 'service.type must be ClusterIP, got "LoadBalancer"'),
    ("team", ("service.type=NodePort",), "state access.tlsUpstream=true"),
    ("minimal", ("ray.head.serviceType=LoadBalancer",), "use kubectl port-forward for the dashboard"),
    ("minimal", ("ray.head.enableIngress=true",), "the dashboard takes jobs, so it is never published"),
    ("minimal", ("ray.token.existingSecret=",), "ray.token.existingSecret must name a Secret"),
    ("minimal", ("ray.token.key=token",), "KubeRay reads no other"),
    ("minimal", ("ray.enabled=false",), "ray.external.address must be given"),
    ("minimal", ("ray.external.address=http://a:8265",), "exclude one another"),
    ("team", ("ray.kueueQueue=research",), "set ray.autoscaling.enabled=false"),
    ("production-gpu", ("ray.gcsFaultTolerance.redisAddress=",), "redisAddress must be given"),
    ("production-gpu", ("ray.workerGroups[0].minReplicas=9",), "minReplicas must be at most maxReplicas, got 9 and 8"),
    ("production-gpu", ("ray.workerGroups[1].name=cpu",), 'names of their own, got "cpu" twice'),
    ("production-gpu", ("service.autoscaling.maxReplicas=2",), "must be at most maxReplicas, got 3 and 2"),
    ("minimal", ("postgresql.enabled=false",), "database.host must name your PostgreSQL server"),
    ("minimal", ("database.host=db",), "the bundled database is for trials"),
    ("minimal", ("database.existingSecret=",), "database.existingSecret must name a Secret"),
    ("team", ("database.sslMode=disable",), "database.sslMode must be one of the following"),
    ("minimal", ("storage.claim.singleNode=false",), "storage.claim.accessMode must be ReadWriteMany"),
    ("minimal", ("storage.claim.create=false",), "the pods' own disks go with the pods"),
    ("minimal", ("storage.uri=s3://b/p",), "jobs lie in one place"),
    ("production-gpu", ("storage.uri=s3://key:secret@bucket/p",), "must not carry a user name or password"),
    ("production-gpu", ("storage.s3.existingSecret=s3", "storage.s3.region="), "storage.s3.region must be given with"),
    ("production-gpu", ("storage.uri=file:///tmp",), "storage.uri: Does not match pattern"),
    ("minimal", ("mlflow.enabled=false",), "mlflow.external.trackingUri must be given"),
    ("minimal", ('service.extraEnv=[{"name":"S3_PASSWORD","value":"x"}]',), "must come from a Secret"),
    ("minimal", ('ray.extraEnv=[{"name":"HF_TOKEN","value":"x"}]',), "must come from a Secret"),
    ("minimal", ('service.extraEnv=[{"name":"ELECTRA_HOST","value":"::"}]',), "must not set ELECTRA_HOST"),
    ("minimal", ("service.replica=3",), "Additional property replica is not allowed"),
    ("minimal", ("ray.dashboard.enabled=true",), "Additional property dashboard is not allowed"),
    ("minimal", ("service.replicas=0",), "service.replicas: Must be greater than or equal to 1"),
    ("minimal", ("ray.workerGroups=[]",), "Array must have at least 1 items"),
)


@pytest.mark.parametrize(("values", "settings", "message"), REFUSED)
def test_what_would_open_or_lose_something_is_refused(values: str, settings: tuple[str, ...], message: str) -> None:
    assert message in refusal(values, *settings)


def test_the_chart_alone_is_refused_until_it_is_told_where_things_are() -> None:
    if why_no_helm():
        pytest.skip(why_no_helm() or "")
    done = run_helm("template", "rel", str(CHART), "--kube-version", "1.33.0")
    assert done.returncode != 0
    assert "image.registry must name the registry" in done.stderr


def test_a_path_to_a_token_is_no_secret() -> None:
    from chart_rendering import environment, find, rendered

    objects = rendered("minimal", 'service.extraEnv=[{"name":"AWS_WEB_IDENTITY_TOKEN_FILE","value":"/var/token"}]')
    pod = find(objects, "Deployment", "rel-electra-service")["spec"]["template"]
    assert environment(pod)["AWS_WEB_IDENTITY_TOKEN_FILE"] == "/var/token"
