{{- define "gvDetails" -}}
The kinds of `{{ .GroupVersionString }}`:
{{ range .SortedKinds }}
- {{ $.TypeForKind . | markdownRenderTypeLink }}
{{- end }}

[pools.md](pools.md), [subnets.md](subnets.md) and [design.md](design.md#records-and-who-writes-them) say
how they are used. `kubectl explain flpool.spec` says which fields are required.

## Values

Strings with a form of their own. The rules of the CRD say what is wrong with a value.

### Address

An IP address in canonical form (RFC 5952 for IPv6).

### CIDR

A subnet in CIDR notation without host bits.

### Subnet

A CIDR whose addresses a pod can have: none that the standards reserve.

### IPRange

An entry of a list of addresses: a range "first-last", an address or a CIDR.

### InterfaceName

The name of a network interface: at most 15 characters, or 127 if it is an alternative name.

### MAC

A MAC address in lower case.
{{ range .SortedTypes }}{{ template "type" . }}{{ end }}
{{- end -}}
