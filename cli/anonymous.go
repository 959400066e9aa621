// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const leftOut = "(left out)"

// secretNames match names of secrets, and separator what is between one and its value.
const (
	secretNames = `(?:password|passwd|passphrase|pwd|psk|secret|credential|authorization|api[-_]?key|(?:private|client|access|secret)[-_]?key)s?`
	separator   = `\\*["']?\s*[=:]\s*\[?`
)

// secrets match what looks like a secret. A group is what stays before it.
var secrets = regexp.MustCompile(`(?i)(?:` + strings.Join([]string{
	`-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?`,
	`LS0tLS1CRUdJTi[\w+/=]*`,       // PEM in base64
	`eyJ[\w-]{8,}\.[\w-]+\.[\w-]*`, // a token of a service account
	valueAfter(secretNames+separator, `(?:(?:basic|bearer|digest|negotiate|token)\s+)?[^\s"\\]+`),
	valueAfter(`token`+separator, `[\d.,;:)}\]]*[a-z_+/=~-][^\s"\\]*`), // a fencing token is a number, and stays
	valueAfter(`--[\w-]*(?:token|`+secretNames+`)(?:\s+|\\*["'],\s*)`, `[^\s"\\]+`),
	`(?:bearer|basic)\s+[\w.~+/=-]+`,
	`//[^/\s:@]+:[^/\s@]+@`, // a URL with a password
}, "|") + `)`)

// valueAfter matches a value after what stays: in quotation marks, also in a text that is itself in quotation marks, or plain.
func valueAfter(stays, plain string) string {
	return `(` + stays + `")(?:[^"\\]|\\.)*|(` + stays + `\\")(?:[^"\\]|\\\\(?:\\.|[^"\\]))*|(` + stays + `')[^']*|(` + stays + `)` + plain
}

// withoutSecrets returns a text without what looks like a secret.
func withoutSecrets(text string) string {
	return secrets.ReplaceAllStringFunc(text, func(secret string) string {
		return strings.Join(secrets.FindStringSubmatch(secret)[1:], "") + leftOut
	})
}

// leaveOutSecrets removes the values of environments, what managers have written about objects, and what looks like
// a secret.
func (b *bundle) leaveOutSecrets() {
	for name, document := range b.documents {
		b.documents[name] = rewritten(document, func(key string, value any) any {
			switch fields, isMap := value.(map[string]any); {
			case key == "env" || key == "imagePullSecrets" || key == "managedFields" || key == corev1.LastAppliedConfigAnnotation:
				return leftOut
			case key == "status" && isMap:
				delete(fields, "images") // of a node
			}
			if text, ok := value.(string); ok {
				if secrets.MatchString(key + "=x") {
					return leftOut
				}
				return withoutSecrets(text)
			}
			return value
		})
	}
	for name, log := range b.logs {
		b.logs[name] = withoutSecrets(log)
	}
}

// rewritten returns a tree with each value replaced, the outer ones first. Those of a list have the key of the list.
func rewritten(value any, replace func(key string, value any) any) any {
	var inside func(string, any) any
	inside = func(key string, value any) any {
		switch value := replace(key, value).(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				value[key] = inside(key, value[key])
			}
			return value
		case []any:
			for i := range value {
				value[i] = inside(key, value[i])
			}
			return value
		default:
			return value
		}
	}
	return inside("", value)
}

// pseudonyms has other names for names, such as node-3, the same everywhere.
type pseudonyms struct {
	of    map[string]string
	count map[string]int
}

// nameKeys are the keys whose values are names, with the kind of thing that has them.
var nameKeys = map[string]string{
	"namespace": "namespace", "pod": "pod", "node": "node", "nodeName": "node", "pool": "pool", "ownerName": "owner", "network": "network",
	"namespaceName": "namespace",
}

// knownLabels are labels of Kubernetes whose keys stay, with the kind of thing that their values name, or "" for values
// that stay too.
var knownLabels = map[string]string{
	corev1.LabelOSStable: "", corev1.LabelArchStable: "", "node-role.kubernetes.io/control-plane": "",
	corev1.LabelHostname: "host", corev1.LabelMetadataName: "namespace",
	corev1.LabelTopologyZone: "label", corev1.LabelTopologyRegion: "label", corev1.LabelInstanceTypeStable: "label",
}

// plainNames are names and values of labels that each cluster has.
var plainNames = []string{"true", "false", corev1.NamespaceDefault, "kube-system", "kube-public", corev1.NamespaceNodeLease, "kubernetes"}

// words are texts that may be names of objects, or several with slashes or dots between them.
var words = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9./-]*`)

// replaceNames replaces the names of nodes, namespaces, pods, owners, pools, networks, labels and other objects in all files.
// Names of Fenceline's own objects, of interfaces, and addresses stay. The notes of events of others may name anything, and
// are removed.
func (b *bundle) replaceNames() {
	events, _ := b.documents["events"].([]any)
	for _, event := range events {
		if fields, isMap := event.(map[string]any); isMap && !isOfFenceline(event) {
			delete(fields, "note")
		}
	}
	p := pseudonyms{map[string]string{}, map[string]int{}}
	for _, file := range slices.Sorted(maps.Keys(b.documents)) {
		b.documents[file] = rewritten(b.documents[file], p.learn)
	}
	for _, file := range slices.Sorted(maps.Keys(b.logs)) {
		for line := range strings.Lines(b.logs[file]) {
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil {
				rewritten(fields, p.learn)
			}
		}
	}
	for file, document := range b.documents {
		b.documents[file] = rewritten(document, func(_ string, value any) any {
			if text, ok := value.(string); ok {
				return p.text(text)
			}
			return value
		})
	}
	for file, log := range b.logs {
		b.logs[file] = p.text(log)
	}
}

// learn takes the names in a value. It removes registries, and labels that are neither known nor of Fenceline.
func (p *pseudonyms) learn(key string, value any) any {
	switch value := value.(type) {
	case string:
		if nameKeys[key] != "" {
			p.add(nameKeys[key], value)
		}
		if key == "multusName" {
			namespace, name, _ := strings.Cut(value, "/")
			p.add("namespace", namespace)
			p.add("networkattachmentdefinition", name)
		}
		if key == "image" || key == "imageID" {
			return value[strings.LastIndex(value, "/")+1:]
		}
	case map[string]any:
		p.learnLabels(key, value)
		kind, _ := value["kind"].(string)
		about, _ := value["metadata"].(map[string]any)
		// The names of these are an address and a node.
		if kind != "" && kind != "IPLease" && kind != "LeaseHint" {
			p.add(strings.ToLower(kind), value["name"])
			p.add(strings.ToLower(kind), about["name"])
		}
		if key == "addresses" && value["type"] != string(corev1.NodeInternalIP) && value["type"] != string(corev1.NodeExternalIP) {
			p.add("host", value["address"])
		}
	}
	return value
}

// learnLabels takes the labels of a selector, and those of an object that stay.
func (p *pseudonyms) learnLabels(key string, fields map[string]any) {
	switch key {
	case "labels", "annotations", "matchLabels", "nodeSelector":
		isOurs := fields["app.kubernetes.io/name"] == "fenceline"
		for _, label := range slices.Sorted(maps.Keys(fields)) {
			value := fields[label]
			switch _, isKnown := knownLabels[label]; {
			case isOurs && strings.HasPrefix(label, "app.kubernetes.io/"):
			case isKnown || strings.Contains(label, "fenceline.io/"):
				p.addLabel(label, value)
			case key == "labels" || key == "annotations":
				delete(fields, label)
			default:
				p.addLabel(label, value)
				delete(fields, label)
				fields[p.text(label)] = value
			}
		}
	case "matchExpressions":
		label, _ := fields["key"].(string)
		values, _ := fields["values"].([]any)
		p.addLabel(label, values...)
	}
}

// addLabel takes the key of a label and its values, unless they stay.
func (p *pseudonyms) addLabel(label string, values ...any) {
	kind, isKnown := knownLabels[label]
	if isKnown && kind == "" || strings.Contains(label, "fenceline.io/") {
		return
	}
	if !isKnown {
		kind = "label"
		p.add(kind, label)
	}
	for _, value := range values {
		p.add(kind, value)
	}
}

// add gives a name another one, unless it is a number, empty or known to each cluster.
func (p *pseudonyms) add(kind string, value any) {
	name, _ := value.(string)
	if strings.Trim(name, "0123456789") == "" || p.of[name] != "" || slices.Contains(plainNames, name) || strings.HasPrefix(name, "fenceline") {
		return
	}
	p.count[kind]++
	p.of[name] = fmt.Sprintf("%s-%d", kind, p.count[kind])
}

// text replaces the names in a text. A name may also be a part of a path or a domain.
func (p *pseudonyms) text(text string) string {
	return words.ReplaceAllStringFunc(text, func(word string) string { return p.word(word, "/.") })
}

// word replaces a word, or the names between its separators.
func (p *pseudonyms) word(word, separators string) string {
	core := strings.TrimRight(word, "./-")
	if other := p.of[core]; other != "" {
		return other + word[len(core):]
	}
	if separators == "" {
		return word
	}
	parts := strings.Split(word, separators[:1])
	for i := range parts {
		parts[i] = p.word(parts[i], separators[1:])
	}
	return strings.Join(parts, separators[:1])
}
