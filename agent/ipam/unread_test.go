// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/test/check"
)

func TestAnnotationsThatNobodyReads(t *testing.T) {
	const ours, other = "ipam.fenceline.io/", "ipam.spidernet.io/"
	for _, c := range []struct {
		rule, key string
		of        string // pod or namespace
		want      string
	}{
		{"a known one", ours + "ippool", "pod", ""},
		{"a known one of another package", ours + "ip-retention", "pod", ""},
		{"the old prefix", other + "ippool-ip-number", "pod", ""},
		{"an older name", other + "defaultv4ippool", "namespace", ""},
		{"another owner", "example.com/ipool", "pod", ""},
		{"a letter is missing", ours + "ipool", "pod", "does not exist, the nearest one is " + ours + "ippool"},
		{"a letter is another one", ours + "static_ip", "pod", "does not exist, the nearest one is " + ours + "static-ip"},
		{"a plural", ours + "route", "pod", "does not exist, the nearest one is " + ours + "routes"},
		{"a capital", ours + "ipPools", "pod", "does not exist, the nearest one is " + ours + "ippools"},
		{"the old prefix of none", other + "default-route-interface", "pod", "does not exist, the nearest one is " + other + "default-route-nic"},
		{"one of a namespace on a pod", ours + "default-ipv4-ippool", "pod", "has no effect, it is for namespaces"},
		{"nearly one of a namespace on a pod", ours + "default-ipv6-pool", "pod", "does not exist, the nearest one is " + ours + "default-ipv6-ippool and is for namespaces"},
		{"one of a pod on a namespace", ours + "ippool", "namespace", "has no effect, it is for pods"},
		{"no name", ours, "pod", "does not exist, the nearest one is " + ours + "ips"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			change, on := onPod(c.key, "x"), "pod shop/web-0"
			if c.of == "namespace" {
				change, on = onNamespace(c.key, "x"), "namespace shop"
			}
			var want []string
			if c.want != "" {
				want = []string{"annotation " + c.key + " of " + on + " " + c.want}
			}
			check.List(t, Unread(requestOf(change)), want, "got")
		})
	}
}

// The parsers of other packages read annotations as well.
func TestEveryAnnotationThatAParserReadsIsKnownAndDocumented(t *testing.T) {
	known := slices.Concat(slices.Concat(podKinds()...), slices.Concat(namespaceKinds()...))
	for _, key := range append(demand.Annotations(), v1alpha1.FixedAddressAnnotations()...) {
		name, ok := strings.CutPrefix(key, v1alpha1.AnnotationPrefix)
		check.That(t, !ok || slices.Contains(known, name), "%s is read and not known", key)
	}
	var docs string
	for _, file := range []string{"cni.md", "subnets.md", "operations.md"} {
		docs += string(check.Value(os.ReadFile("../../docs/" + file))(t))
	}
	for _, name := range known {
		check.That(t, strings.Contains(docs, "`"+name+"`") || strings.Contains(docs, v1alpha1.AnnotationPrefix+name),
			"no document names the annotation %s", name)
	}
}
