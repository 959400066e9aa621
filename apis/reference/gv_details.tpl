{{- define "gvDetails" -}}
The kinds of `{{ .GroupVersionString }}`:
{{ range .SortedKinds }}
- {{ $.TypeForKind . | markdownRenderTypeLink }}
{{- end }}

[pools.md](pools.md), [subnets.md](subnets.md) and [design.md](design.md#records-and-who-writes-them) say
how they are used. `kubectl explain flpool.spec` says which fields are required.
{{ range .SortedTypes }}{{ template "type" . }}{{ end }}
{{- end -}}
