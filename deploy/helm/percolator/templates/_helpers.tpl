{{- /* Labels of the nodes' pods. Selectors use the same ones. */ -}}
{{- define "percolator.selector" -}}
app.kubernetes.io/name: percolator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end -}}

{{- define "percolator.labels" -}}
{{ include "percolator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* The first three pods, as the nodes that others join by. */ -}}
{{- define "percolator.join" -}}
{{- $names := list -}}
{{- range $i := until (int (min 3 .Values.nodes)) -}}
{{- $names = append $names (printf "%s-%d.%s-nodes" $.Release.Name $i $.Release.Name) -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{- define "percolator.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "percolator.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
