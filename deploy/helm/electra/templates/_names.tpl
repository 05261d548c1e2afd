{{/* KubeRay cuts names at 50 characters; the longest below is "<fullname>-ray-head-svc". */}}
{{- define "electra.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 36 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 36 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 36 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "electra.rayCluster" -}}{{ include "electra.fullname" . }}-ray{{- end -}}

{{/* Labels that pods are found by: dict "root" . "component" "service" */}}
{{- define "electra.selector" -}}
app.kubernetes.io/name: electra
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "electra.labels" -}}
{{ include "electra.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* dict "root" . "image" .Values.service.image */}}
{{- define "electra.image" -}}
{{- $registry := .root.Values.image.registry | trimSuffix "/" -}}
{{- $name := .image.repository -}}
{{- if and $registry (not (contains "/" $name)) -}}{{- $name = printf "%s/%s" $registry $name -}}{{- end -}}
{{- if .image.digest -}}
{{ $name }}@{{ .image.digest }}
{{- else -}}
{{ $name }}:{{ .image.tag | default .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "electra.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What KubeRay's own objects are called. */}}
{{- define "electra.rayAddress" -}}
{{- if .Values.ray.enabled -}}
http://{{ include "electra.rayCluster" . }}-head-svc.{{ .Release.Namespace }}.svc:8265
{{- else -}}
{{ .Values.ray.external.address }}
{{- end -}}
{{- end -}}

{{- define "electra.trackingUri" -}}
{{- if .Values.mlflow.enabled -}}
http://{{ include "electra.fullname" . }}-mlflow.{{ .Release.Namespace }}.svc:5000
{{- else -}}
{{ .Values.mlflow.external.trackingUri }}
{{- end -}}
{{- end -}}

{{- define "electra.databaseHost" -}}
{{- if .Values.postgresql.enabled -}}{{ include "electra.fullname" . }}-postgresql.{{ .Release.Namespace }}.svc{{- else -}}{{ .Values.database.host }}{{- end -}}
{{- end -}}

{{/* dict "root" . "name" database: without a password, which libpq takes from PGPASSWORD and so needs no escaping. */}}
{{- define "electra.databaseUrl" -}}
{{- $db := .root.Values.database -}}
postgresql+psycopg://{{ $db.user }}@{{ include "electra.databaseHost" .root }}:{{ $db.port }}/{{ .name }}
{{- end -}}

{{- define "electra.storageUri" -}}
{{- .Values.storage.uri | default .Values.storage.claim.mountPath | trimSuffix "/" -}}
{{- end -}}

{{- define "electra.usesClaim" -}}
{{- if not .Values.storage.uri -}}true{{- end -}}
{{- end -}}

{{- define "electra.claimName" -}}
{{- .Values.storage.claim.existingClaim | default (printf "%s-storage" (include "electra.fullname" .)) -}}
{{- end -}}
