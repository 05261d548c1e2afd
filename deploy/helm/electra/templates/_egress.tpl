{{/* Names, and the outside as far as the values allow it. */}}
{{- define "electra.egress" -}}
- to: {{- toYaml .Values.networkPolicy.dns | nindent 4 }}
  ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
{{- range .Values.networkPolicy.externalEgress }}
- to:
    - ipBlock:
        cidr: {{ .cidr }}
        {{- with .except }}
        except: {{- toYaml . | nindent 10 }}
        {{- end }}
  ports:
    {{- range .ports }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end }}
{{- with .Values.storage.s3.endpoint }}
- ports: [{port: {{ include "electra.portOf" . }}, protocol: TCP}]
{{- end }}
{{- end -}}

{{- define "electra.databaseEgress" -}}
{{- if .Values.postgresql.enabled -}}
- to:
    - podSelector:
        matchLabels: {{- include "electra.selector" (dict "root" . "component" "postgresql") | nindent 10 }}
  ports: [{port: 5432, protocol: TCP}]
{{- else -}}
- ports: [{port: {{ .Values.database.port }}, protocol: TCP}]
{{- end -}}
{{- end -}}

{{- define "electra.mlflowEgress" -}}
{{- if .Values.mlflow.enabled -}}
- to:
    - podSelector:
        matchLabels: {{- include "electra.selector" (dict "root" . "component" "mlflow") | nindent 10 }}
  ports: [{port: 5000, protocol: TCP}]
{{- else -}}
- ports: [{port: {{ include "electra.portOf" .Values.mlflow.external.trackingUri }}, protocol: TCP}]
{{- end -}}
{{- end -}}

{{/* The port of a URL; its scheme's own where it names none. */}}
{{- define "electra.portOf" -}}
{{- $url := urlParse . -}}
{{- $parts := splitList ":" $url.host -}}
{{- if gt (len $parts) 1 -}}{{ last $parts }}{{- else -}}{{ dict "https" "443" "redis" "6379" "rediss" "6379" | dig $url.scheme "80" }}{{- end -}}
{{- end -}}
