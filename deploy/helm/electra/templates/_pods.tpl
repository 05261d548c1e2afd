{{/* Restricted pod security. The user and group are those of our images. */}}
{{- define "electra.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "electra.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Ray writes below /tmp and into its home, and KubeRay mounts volumes of its own there. */}}
{{- define "electra.rayContainerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "electra.databaseEnv" -}}
- name: PGPASSWORD
  valueFrom: {secretKeyRef: {name: {{ .Values.database.existingSecret | quote }}, key: {{ .Values.database.passwordKey | quote }}}}
- name: PGSSLMODE
  value: {{ ternary "disable" .Values.database.sslMode .Values.postgresql.enabled }}
{{- if .Values.database.caSecret }}
- name: PGSSLROOTCERT
  value: /etc/electra/database-ca/ca.crt
{{- end }}
{{- end -}}

{{/* Credentials of object storage, by reference; without them a cloud's identity of the service account is used. */}}
{{- define "electra.objectStoreEnv" -}}
{{- with .Values.storage.s3 }}
{{- if .existingSecret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: AWS_ACCESS_KEY_ID}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: AWS_SECRET_ACCESS_KEY}}
{{- end }}
{{- if .region }}
- name: AWS_REGION
  value: {{ .region | quote }}
{{- end }}
{{- if .endpoint }}
- name: AWS_ENDPOINT_URL_S3
  value: {{ .endpoint | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "electra.storageVolumes" -}}
{{- if include "electra.usesClaim" . }}
- name: storage
  persistentVolumeClaim: {claimName: {{ include "electra.claimName" . }}}
{{- end }}
{{- range $i, $claim := .Values.storage.dataClaims }}
- name: data-{{ $i }}
  persistentVolumeClaim: {claimName: {{ $claim.claimName }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "electra.storageMounts" -}}
{{- if include "electra.usesClaim" . }}
- {name: storage, mountPath: {{ .Values.storage.claim.mountPath }}}
{{- end }}
{{- range $i, $claim := .Values.storage.dataClaims }}
- {name: data-{{ $i }}, mountPath: {{ $claim.mountPath }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "electra.databaseVolumes" -}}
{{- if .Values.database.caSecret }}
- name: database-ca
  secret: {secretName: {{ .Values.database.caSecret }}}
{{- end }}
{{- end -}}

{{- define "electra.databaseMounts" -}}
{{- if .Values.database.caSecret }}
- {name: database-ca, mountPath: /etc/electra/database-ca, readOnly: true}
{{- end }}
{{- end -}}

{{/* dict "place" .Values.service: where pods of it may stand */}}
{{- define "electra.place" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
{{ toYaml . | indent 2 }}
{{- end }}
{{- end -}}

{{/* A head on a node that may be taken away at any moment takes every running job with it. */}}
{{- define "electra.notOnSpot" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          - {key: karpenter.sh/capacity-type, operator: NotIn, values: [spot]}
          - {key: eks.amazonaws.com/capacityType, operator: NotIn, values: [SPOT]}
          - {key: cloud.google.com/gke-spot, operator: NotIn, values: ["true"]}
          - {key: kubernetes.azure.com/scalesetpriority, operator: NotIn, values: [spot]}
{{- end -}}
