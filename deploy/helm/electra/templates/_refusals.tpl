{{/* Combinations that would open something by accident, lose data or never start: each with its remedy. */}}
{{- define "electra.refusals" -}}
{{- $v := .Values -}}

{{- range $name := list "service" "ray" "mlflow" -}}
{{- $part := index $v $name -}}
{{- if or (eq $name "service") $part.enabled -}}
{{- if and (not $v.image.registry) (not (contains "/" $part.image.repository)) -}}
{{- fail (printf "image.registry must name the registry that holds your images, got \"\" and %s.image.repository=%q: a name without a registry is looked for in a public one, where anyone may own it" $name $part.image.repository) -}}
{{- end -}}
{{- if eq "latest" ($part.image.tag | default $v.image.tag) -}}
{{- fail (printf "%s.image.tag must name one version, got \"latest\": nodes would run different ones; give a tag or a digest" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if eq $v.access.mode "open" -}}
{{- fail "access.mode must be keys, got \"open\": in a cluster the service listens to every address, and open would let anyone who reaches it start jobs" -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.tlsSecretName) -}}
{{- fail "ingress.tlsSecretName must name a Secret of type kubernetes.io/tls, got \"\": without TLS every access key would cross the network in the open" -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.host) -}}
{{- fail "ingress.host must be given, got \"\": the service answers to names it knows only" -}}
{{- end -}}
{{- if and (not $v.ingress.enabled) (not $v.access.tlsUpstream) -}}
{{- fail "no TLS is stated: enable ingress with ingress.tlsSecretName, or state access.tlsUpstream=true if a mesh or your own proxy ends TLS before the service, or it is reached by kubectl port-forward only" -}}
{{- end -}}
{{- if and (ne $v.service.type "ClusterIP") (not $v.access.tlsUpstream) -}}
{{- fail (printf "service.type must be ClusterIP, got %q: it would publish plain HTTP beside the ingress; state access.tlsUpstream=true if that load balancer ends TLS" $v.service.type) -}}
{{- end -}}

{{- if and $v.ray.enabled $v.ray.external.address -}}
{{- fail "ray.enabled and ray.external.address exclude one another: set ray.enabled=false to use your own cluster" -}}
{{- end -}}
{{- if not (or $v.ray.enabled $v.ray.external.address) -}}
{{- fail "ray.external.address must be given where ray.enabled=false, such as http://my-ray-head-svc.ray.svc:8265" -}}
{{- end -}}
{{- if not $v.ray.token.existingSecret -}}
{{- fail "ray.token.existingSecret must name a Secret with the token of Ray's ports, got \"\": without one anyone who reaches them runs any code. Make it with: kubectl create secret generic electra-ray --from-literal=auth_token=$(openssl rand -hex 32)" -}}
{{- end -}}
{{- if and $v.ray.enabled (ne $v.ray.token.key "auth_token") -}}
{{- fail (printf "ray.token.key must be auth_token where ray.enabled=true, got %q: KubeRay reads no other" $v.ray.token.key) -}}
{{- end -}}
{{- if ne $v.ray.head.serviceType "ClusterIP" -}}
{{- fail (printf "ray.head.serviceType must be ClusterIP, got %q: whoever reaches Ray's ports with the token runs any code; use kubectl port-forward for the dashboard" $v.ray.head.serviceType) -}}
{{- end -}}
{{- if $v.ray.head.enableIngress -}}
{{- fail "ray.head.enableIngress must be false: the dashboard takes jobs, so it is never published; use kubectl port-forward" -}}
{{- end -}}
{{- if and $v.ray.gcsFaultTolerance.enabled (not $v.ray.gcsFaultTolerance.redisAddress) -}}
{{- fail "ray.gcsFaultTolerance.redisAddress must be given where it is enabled, such as redis://redis.data.svc:6379" -}}
{{- end -}}
{{- if and $v.ray.kueueQueue $v.ray.autoscaling.enabled -}}
{{- fail "ray.kueueQueue and ray.autoscaling.enabled exclude one another: Kueue admits a cluster of one size; set ray.autoscaling.enabled=false" -}}
{{- end -}}
{{- if $v.ray.enabled -}}
{{- $seen := dict -}}
{{- range $group := $v.ray.workerGroups -}}
{{- if hasKey $seen $group.name -}}{{- fail (printf "ray.workerGroups must have names of their own, got %q twice" $group.name) -}}{{- end -}}
{{- $_ := set $seen $group.name true -}}
{{- if gt (int $group.minReplicas) (int $group.maxReplicas) -}}
{{- fail (printf "ray.workerGroups %q: minReplicas must be at most maxReplicas, got %d and %d" $group.name (int $group.minReplicas) (int $group.maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if and $v.postgresql.enabled $v.database.host -}}
{{- fail "postgresql.enabled and database.host exclude one another: the bundled database is for trials" -}}
{{- end -}}
{{- if not (or $v.postgresql.enabled $v.database.host) -}}
{{- fail "database.host must name your PostgreSQL server, or set postgresql.enabled=true for a trial: several replicas cannot share a file" -}}
{{- end -}}
{{- if not $v.database.existingSecret -}}
{{- fail "database.existingSecret must name a Secret with the password, got \"\": kubectl create secret generic electra-database --from-literal=password=..." -}}
{{- end -}}

{{- $claim := $v.storage.claim -}}
{{- if and $v.storage.uri (or $claim.create $claim.existingClaim) -}}
{{- fail "storage.uri and storage.claim exclude one another: jobs lie in one place" -}}
{{- end -}}
{{- if not (or $v.storage.uri $claim.create $claim.existingClaim) -}}
{{- fail "storage must be given: storage.uri=s3://bucket/prefix, storage.claim.existingClaim or storage.claim.create=true; the pods' own disks go with the pods" -}}
{{- end -}}
{{- if and (not $v.storage.uri) (ne $claim.accessMode "ReadWriteMany") (not $claim.singleNode) -}}
{{- fail (printf "storage.claim.accessMode must be ReadWriteMany, got %q: service and workers on different nodes share it; state storage.claim.singleNode=true on a cluster of one node" $claim.accessMode) -}}
{{- end -}}
{{- if contains "@" (splitList "/" $v.storage.uri | rest | rest | first | default "") -}}
{{- fail "storage.uri must not carry a user name or password: name a Secret by storage.s3.existingSecret" -}}
{{- end -}}

{{- if and $v.storage.s3.existingSecret (not $v.storage.s3.endpoint) (not $v.storage.s3.region) -}}
{{- fail "storage.s3.region must be given with storage.s3.existingSecret and no endpoint, got \"\": keys do not tell the bucket's region, and a signature for another one is refused" -}}
{{- end -}}

{{- if and $v.mlflow.enabled $v.mlflow.external.trackingUri -}}
{{- fail "mlflow.enabled and mlflow.external.trackingUri exclude one another: set mlflow.enabled=false to use your own server" -}}
{{- end -}}
{{- if not (or $v.mlflow.enabled $v.mlflow.external.trackingUri) -}}
{{- fail "mlflow.external.trackingUri must be given where mlflow.enabled=false, such as https://mlflow.example.com" -}}
{{- end -}}

{{- if and $v.service.autoscaling.enabled (gt (int $v.service.autoscaling.minReplicas) (int $v.service.autoscaling.maxReplicas)) -}}
{{- fail (printf "service.autoscaling.minReplicas must be at most maxReplicas, got %d and %d" (int $v.service.autoscaling.minReplicas) (int $v.service.autoscaling.maxReplicas)) -}}
{{- end -}}

{{- $own := list "ELECTRA_HOST" "ELECTRA_PORT" "ELECTRA_ACCESS" "ELECTRA_TLS_UPSTREAM" "ELECTRA_ALLOWED_HOSTS" "ELECTRA_SOURCE_ROOTS" "ELECTRA_OIDC_ISSUER" "ELECTRA_OIDC_AUDIENCE" "ELECTRA_OIDC_GRANTS" "ELECTRA_DATABASE_URL" "ELECTRA_STORAGE_URI" "ELECTRA_RAY_ADDRESS" "ELECTRA_RAY_TOKEN" "ELECTRA_RAY_TOKEN_PATH" "RAY_AUTH_MODE" "RAY_AUTH_TOKEN" "RAY_AUTH_TOKEN_PATH" -}}
{{- range $name := list "service" "ray" -}}
{{- range $env := (index $v $name).extraEnv -}}
{{- if has $env.name $own -}}
{{- fail (printf "%s.extraEnv must not set %s: the chart sets it from a value of its own" $name $env.name) -}}
{{- end -}}
{{- if and (hasKey $env "value") (regexMatch "(?i)(password|passwd|secret|token|credential|api_?key|access_?key|private_?key)" $env.name) (not (regexMatch "(?i)_(file|path)$" $env.name)) -}}
{{- fail (printf "%s.extraEnv %s must come from a Secret (valueFrom.secretKeyRef), not from a value: values are kept in the release and shown by helm get" $name $env.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
