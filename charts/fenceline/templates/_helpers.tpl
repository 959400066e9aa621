{{- define "fenceline.labels" -}}
app.kubernetes.io/name: fenceline
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* The name of an image: (dict "root" $ "name" "fenceline/agent") */ -}}
{{- define "fenceline.image" -}}
{{ .root.Values.image.registry }}{{ .name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{- /* Environment of both binaries: the API server, if the values name it */ -}}
{{- define "fenceline.apiServer" -}}
{{- with .Values.apiServer }}{{ if .host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ .host | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ .port | quote }}}
{{- end }}{{ end }}
{{- end -}}

{{- /* Security context of an agent's container */ -}}
{{- define "fenceline.agentSecurity" -}}
runAsUser: 0
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
  add: {{ concat .Values.agent.capabilities .Values.agent.extraCapabilities | toYaml | nindent 4 }}
{{- with .Values.agent.seccompProfile }}
seccompProfile: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.agent.appArmorProfile }}
appArmorProfile: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.agent.seLinuxOptions }}
seLinuxOptions: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* User names of both service accounts, for CEL */ -}}
{{- define "fenceline.agentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:fenceline-agent
{{- end -}}
{{- define "fenceline.controllerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:fenceline-controller
{{- end -}}

{{- /* The conflist that the agents install */ -}}
{{- define "fenceline.conflist" -}}
{{- with .Values.cni.conflist -}}
{{- if .content -}}
{{ .content | mustFromJson | toPrettyJson }}
{{- else -}}
{{- $ipam := dict "type" "fenceline" -}}
{{- with .pools.ipv4 }}{{ $_ := set $ipam "default_ipv4_ippool" . }}{{ end -}}
{{- with .pools.ipv6 }}{{ $_ := set $ipam "default_ipv6_ippool" . }}{{ end -}}
{{- $plugin := dict "type" .type "ipam" $ipam -}}
{{- with .master }}{{ $_ := set $plugin "master" . }}{{ end -}}
{{- with .mode | default (ternary "bridge" "" (eq .type "macvlan")) }}{{ $_ := set $plugin "mode" . }}{{ end -}}
{{- with .mtu }}{{ $_ := set $plugin "mtu" (int .) }}{{ end -}}
{{- $plugins := list $plugin -}}
{{- if .chained }}{{ $plugins = append $plugins (dict "type" "fenceline") }}{{ end -}}
{{- $list := dict "name" "fenceline" "plugins" $plugins -}}
{{- with .cniVersion }}{{ $_ := set $list "cniVersion" . }}{{ end -}}
{{ $list | toPrettyJson }}
{{- end -}}
{{- end -}}
{{- end -}}
