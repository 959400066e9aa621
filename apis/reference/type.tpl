{{- define "type" -}}
{{- if markdownShouldRenderType . }}
## {{ .Name }}

{{ if .IsAlias }}Is {{ markdownRenderTypeLink .UnderlyingType }}. {{ end }}{{ .Doc }}
{{ with .Validation }}
{{- range . }}
- {{ markdownRenderFieldDoc . }}
{{- end }}
{{ end }}
{{- with .SortedReferences }}
Used by:
{{- range $i, $r := . }}{{ if $i }},{{ end }} {{ markdownRenderTypeLink $r }}{{ end }}
{{ end }}
{{- if .Members }}
| field | type | meaning | default | rules |
|---|---|---|---|---|
{{- if .GVK }}
| `apiVersion` | string | `{{ .GVK.Group }}/{{ .GVK.Version }}` | | |
| `kind` | string | `{{ .GVK.Kind }}` | | |
{{- end }}
{{- range .Members }}
| `{{ .Name }}` | {{ markdownRenderType .Type }} | {{ template "type_members" . }} | {{ markdownRenderDefault .Default }} | {{ range $i, $v := .Validation }}{{ if not (contains "XValidation" $v) }}{{ if $i }}<br />{{ end }}{{ markdownRenderFieldDoc $v }}{{ end }}{{ end }} |
{{- end }}
{{ end }}
{{- with .EnumValues }}
| value | meaning |
|---|---|
{{- range . }}
| `{{ .Name }}` | {{ markdownRenderFieldDoc .Doc | trimSuffix "<br />" }} |
{{- end }}
{{ end }}
{{- end }}
{{- end -}}
