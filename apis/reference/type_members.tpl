{{- define "type_members" -}}
{{- if eq .Name "metadata" }}as of every object of Kubernetes{{ else }}{{ markdownRenderFieldDoc .Doc }}{{ end }}
{{- end -}}
