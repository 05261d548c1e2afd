{{/* A pod of Ray: dict "root" . "group" the head or a worker group "isHead" */}}
{{- define "electra.rayPod" -}}
{{- $root := .root -}}
{{- $group := .group -}}
{{- $ray := $root.Values.ray -}}
{{- $isScaled := $ray.autoscaling.enabled -}}
metadata:
  labels:
    # KubeRay finds its pods by app.kubernetes.io/name, so that one stays its own; and a chart's version among the labels
    # would have it make the cluster anew at every upgrade.
    app.kubernetes.io/instance: {{ $root.Release.Name }}
    app.kubernetes.io/component: ray
  annotations:
    # A pod that is moved to pack nodes more tightly takes its job's attempt with it.
    cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
    karpenter.sh/do-not-disrupt: "true"
spec:
  serviceAccountName: {{ include "electra.fullname" $root }}-ray
  # The autoscaler beside the head adds and removes worker pods; nobody else speaks to Kubernetes.
  automountServiceAccountToken: {{ and .isHead $isScaled }}
  enableServiceLinks: false
  {{- if $isScaled }}
  restartPolicy: Never
  {{- end }}
  # Long enough for the checkpoint being written to be finished.
  terminationGracePeriodSeconds: {{ $group.terminationGraceSeconds | default 300 }}
  {{- include "electra.podSecurity" $root | nindent 2 }}
  {{- include "electra.pullSecrets" $root | nindent 2 }}
  {{- include "electra.place" $group | nindent 2 }}
  {{- if $group.affinity }}
  affinity: {{- toYaml $group.affinity | nindent 4 }}
  {{- else if .isHead }}
  affinity: {{- include "electra.notOnSpot" $root | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ ternary "ray-head" "ray-worker" .isHead }}
      image: {{ include "electra.image" (dict "root" $root "image" (mergeOverwrite (deepCopy $ray.image) ($group.image | default dict))) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      {{- include "electra.rayContainerSecurity" $root | nindent 6 }}
      {{- if .isHead }}
      ports:
        - {name: gcs-server, containerPort: 6379}
        - {name: dashboard, containerPort: 8265}
        - {name: client, containerPort: 10001}
      {{- end }}
      env:
        - {name: ELECTRA_STORAGE_URI, value: {{ include "electra.storageUri" $root | quote }}}
        - {name: MLFLOW_TRACKING_URI, value: {{ include "electra.trackingUri" $root | quote }}}
        - {name: MLFLOW_DISABLE_TELEMETRY, value: "true"}
        - {name: RAY_USAGE_STATS_ENABLED, value: "0"}
        - {name: RAY_TRAIN_HEALTH_CHECK_INTERVAL_S, value: "1"}
        - {name: RAY_TRAIN_ENABLE_PRINT_PATCH, value: "0"}
        {{- include "electra.objectStoreEnv" $root | nindent 8 }}
        {{- with $ray.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $ray.extraEnvFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      resources:
        {{- $res := $group.resources }}
        {{- range $kind := list "requests" "limits" }}
        {{ $kind }}:
          cpu: {{ $res.cpu | quote }}
          memory: {{ $res.memory }}
          ephemeral-storage: {{ $res.ephemeralStorage | default "20Gi" }}
          {{- if $res.gpu }}
          {{ $res.gpuResource | default "nvidia.com/gpu" }}: {{ $res.gpu | quote }}
          {{- end }}
        {{- end }}
      volumeMounts:
        - {name: shared-memory, mountPath: /dev/shm}
        - {name: ray-logs, mountPath: /tmp/ray}
        {{- include "electra.storageMounts" $root | nindent 8 }}
  volumes:
    - name: shared-memory
      emptyDir: {medium: Memory, sizeLimit: {{ $group.shmSize | default "8Gi" }}}
    - name: ray-logs
      emptyDir: {}
    {{- include "electra.storageVolumes" $root | nindent 4 }}
{{- end -}}
