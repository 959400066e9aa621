{{- define "fenceline.labels" -}}
app.kubernetes.io/name: fenceline
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The name of an image: (dict "root" $ "part" "agent"). The chart of a release has the digests in its
annotations, since an upgrade with --reuse-values keeps all values of the release before. They are not
for a tag of the user. Values of an older release have no digest. */ -}}
{{- define "fenceline.image" -}}
{{- $image := .root.Values.image -}}
{{- $part := index .root.Values .part -}}
{{- $released := index (.root.Chart.Annotations | default dict) (printf "fenceline.io/%s-digest" .part) -}}
{{ $image.registry }}{{ $part.image }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- with $part.digest | default (ternary "" $released (ne $image.tag "")) }}@{{ . }}{{ end }}
{{- end -}}

{{- /* Environment of both binaries: the API server, if the values name it */ -}}
{{- define "fenceline.apiServer" -}}
{{- with .Values.apiServer }}{{ if .host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ .host | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ .port | quote }}}
{{- end }}{{ end }}
{{- end -}}

{{- /* Arguments of both binaries about /metrics. Values of an older release have no metrics. */ -}}
{{- define "fenceline.metricsArgs" -}}
{{- with .Values.metrics }}{{ if .secure }}
- --metrics-secure
{{- if .tlsSecret }}
- --metrics-cert-dir=/etc/fenceline-metrics
{{- end }}
{{- end }}{{ end }}
{{- end -}}

{{- /* The Secret of the certificate for /metrics, or nothing */ -}}
{{- define "fenceline.metricsSecret" -}}
{{- with .Values.metrics }}{{ if .secure }}{{ .tlsSecret }}{{ end }}{{ end }}
{{- end -}}

{{- /* The page: the values if it is enabled, in JSON, with its port. Values of an older release have no ui. */ -}}
{{- define "fenceline.ui" -}}
{{- with .Values.ui }}{{ if .enabled }}{{ merge (dict "port" ($.Values.controller.ports.ui | default 9478)) . | toJson }}{{ end }}{{ end }}
{{- end -}}

{{- /* Not empty if the agents guard sockets. Values of an older release have no socketGuard. */ -}}
{{- define "fenceline.socketGuard" -}}
{{- if ne (toString .Values.agent.socketGuard) "false" }}true{{ end }}
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
{{- if and (eq .type "sriov") .enabled (not .deviceID) }}{{ fail "cni.conflist.type is sriov and cni.conflist.deviceID is empty: set the PCI address of a virtual function, or cni.conflist.enabled=false to let Multus choose one for each pod" }}{{ end -}}
{{- $list := dict "name" "fenceline" "plugins" (include "fenceline.plugins" $ | mustFromJson) -}}
{{- with .cniVersion }}{{ $_ := set $list "cniVersion" . }}{{ end -}}
{{ $list | toPrettyJson }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The plugins of the network: the driver, and Fenceline chained after it. Values of an older
build have neither hostLink, mode, deviceID, vlan nor portMap, and their chained is false */ -}}
{{- define "fenceline.plugins" -}}
{{- $ipam := dict "type" "fenceline" -}}
{{- with .Values.cni.conflist -}}
{{- with .pools.ipv4 }}{{ $_ := set $ipam "default_ipv4_ippool" . }}{{ end -}}
{{- with .pools.ipv6 }}{{ $_ := set $ipam "default_ipv6_ippool" . }}{{ end -}}
{{- $plugin := dict "type" .type "ipam" $ipam -}}
{{- if eq .type "sriov" -}}
{{- if or .master .mode .mtu }}{{ fail "cni.conflist.type is sriov, which takes no cni.conflist.master, mode or mtu: remove them" }}{{ end -}}
{{- with .deviceID }}{{ $_ := set $plugin "deviceID" . }}{{ end -}}
{{- with .vlan }}{{ $_ := set $plugin "vlan" (int .) }}{{ end -}}
{{- else -}}
{{- if or .deviceID .vlan }}{{ fail (printf "cni.conflist.deviceID and cni.conflist.vlan are for sriov, and cni.conflist.type is %s: remove them, and name a VLAN subinterface such as eth1.5 as cni.conflist.master" .type) }}{{ end -}}
{{- if and (eq .type "ipvlan") (has .mode (list "l3" "l3s")) }}{{ fail (printf "cni.conflist.mode is %s, which has no L2 segment: set l2, or remove it" .mode) }}{{ end -}}
{{- with .master }}{{ $_ := set $plugin "master" . }}{{ end -}}
{{- with .mode | default (ternary "bridge" "" (eq .type "macvlan")) }}{{ $_ := set $plugin "mode" . }}{{ end -}}
{{- with .mtu }}{{ $_ := set $plugin "mtu" (int .) }}{{ end -}}
{{- end -}}
{{- $plugins := list $plugin -}}
{{- if .chained }}{{ $plugins = append $plugins (include "fenceline.chained" $ | mustFromJson) }}{{ end -}}
{{- if .portMap -}}
{{- if not .chained }}{{ fail "cni.conflist.portMap is true and cni.conflist.chained is false: a hostPort leads to the pod through the host link, which only the chained plugin makes" }}{{ end -}}
{{- $plugins = append $plugins (dict "type" "portmap" "capabilities" (dict "portMappings" true)) -}}
{{- end -}}
{{ $plugins | toJson }}
{{- end -}}
{{- end -}}

{{- /* The chained plugin. What is the default stays unset, so that the agent decides */ -}}
{{- define "fenceline.chained" -}}
{{- $plugin := dict "type" "fenceline" -}}
{{- $link := .Values.cni.hostLink | default dict -}}
{{- /* YAML reads off without quotes as false. */ -}}
{{- $mode := ternary "off" (.Values.cni.mode | default "auto") (kindIs "bool" .Values.cni.mode) -}}
{{- if ne $mode "auto" }}{{ $_ := set $plugin "mode" $mode }}{{ end -}}
{{- if eq (toString $link.enabled) "false" }}{{ $_ := set $plugin "hostLink" false }}{{ end -}}
{{- with $link.extraCIDRs }}{{ $_ := set $plugin "hostLinkCIDRs" . }}{{ end -}}
{{- with $link.txQueueLen }}{{ $_ := set $plugin "txQueueLen" (int .) }}{{ end -}}
{{ $plugin | toJson }}
{{- end -}}
