// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"path"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/demand"
)

// named is the pool names or patterns of one source, in the order in which the user wrote them.
type named struct {
	source string
	v4, v6 []string
	// at4 and at6 are the annotations that have the names of each family. They are nil for a source
	// that is no annotation. An unknown pool is then not a mistake in the pod or the namespace.
	at4, at6 *annotation
	// ofPod reports that an annotation of the pod itself is the source.
	ofPod bool
	// implied reports that the source is spec.default of the pools. A pod then needs a family only if
	// a pool of this family selects the pod.
	implied bool
}

func (n named) empty() bool { return len(n.v4) == 0 && len(n.v6) == 0 }

// of returns the names of one family.
func (n named) of(ipv6 bool) []string {
	if ipv6 {
		return n.v6
	}
	return n.v4
}

// findNames reads the sources from the highest to the lowest. The first source that names a pool of any
// family decides for both families.
func findNames(req Request, pools []v1alpha1.IPPool, s said) (named, error) {
	if n, err := annotatedSubnets(req, pools); err != nil || !n.empty() {
		return n, err
	}
	sources := []func(Request, said) (named, error){podPools, podPool, namespacePools, configPools}
	for _, read := range sources {
		if n, err := read(req, s); err != nil || !n.empty() {
			return n, err
		}
	}
	if n, err := defaultSubnets(req, pools); err != nil || !n.empty() {
		return n, err
	}
	return defaultPools(pools), nil
}

const (
	poolsForm = `[{"interface": "eth0", "ipv4": ["pool-a", "pool-b"], "ipv6": ["pool-c"], "cleangateway": false}]`
	poolForm  = `{"ipv4": ["pool-a", "pool-b"], "ipv6": ["pool-c"]}`
)

// podPools reads the interface's entry of the annotation ippools, if it has one.
func podPools(req Request, s said) (named, error) {
	i := s.entryOf(req.Interface, len(req.Earlier))
	if i < 0 {
		return named{}, nil
	}
	a, entry := s.interfacesAt, s.interfaces[i]
	n := named{source: describeAnnotation(a), v4: entry.V4, v6: entry.V6, at4: &a, at6: &a, ofPod: true}
	return n, checkNames(n)
}

// podPool reads the annotation ippool, which is for every interface.
func podPool(req Request, _ said) (named, error) {
	a, ok := find(req.Pod.describe(), req.Pod.Annotations, poolForm, demand.Pool)
	if !ok {
		return named{}, nil
	}
	var names struct {
		V4 []string `json:"ipv4"`
		V6 []string `json:"ipv6"`
	}
	if err := a.decode(&names); err != nil {
		return named{}, err
	}
	n := named{source: describeAnnotation(a), v4: names.V4, v6: names.V6, at4: &a, at6: &a, ofPod: true}
	if n.empty() {
		return named{}, a.wrong("it names nothing")
	}
	return n, checkNames(n)
}

// namespacePools reads the two annotations of the namespace.
func namespacePools(req Request, _ said) (named, error) {
	on := "namespace " + req.Pod.Namespace
	var n named
	for _, family := range []struct {
		names []string
		into  *[]string
		at    **annotation
	}{
		{[]string{demand.NamespaceV4, demand.NamespaceV4Old}, &n.v4, &n.at4},
		{[]string{demand.NamespaceV6, demand.NamespaceV6Old}, &n.v6, &n.at6},
	} {
		a, ok := find(on, req.NamespaceAnnotations, `["pool-a", "pool-b"]`, family.names...)
		if !ok {
			continue
		}
		if err := a.decode(family.into); err != nil {
			return named{}, err
		}
		if len(*family.into) == 0 {
			return named{}, a.wrong("it names nothing")
		}
		*family.at = &a
	}
	n.source = "the annotations of " + on
	return n, checkNames(n)
}

// configPools reads the pools that the CNI configuration names.
func configPools(req Request, _ said) (named, error) {
	return named{source: "the CNI configuration", v4: req.ConfigPools.V4, v6: req.ConfigPools.V6}, nil
}

// defaultPools are the pools with spec.default, by name.
func defaultPools(pools []v1alpha1.IPPool) named {
	n := named{source: "spec.default", implied: true}
	for _, p := range sortedByName(pools) {
		switch {
		case p.Spec.Default == nil || !*p.Spec.Default:
		case isIPv6(p):
			n.v6 = append(n.v6, p.Name)
		default:
			n.v4 = append(n.v4, p.Name)
		}
	}
	if n.empty() {
		n.source = ""
	}
	return n
}

// checkNames returns an error for names that are wrong independently of the existing pools: too
// many names, an empty or repeated name, and an invalid pattern.
func checkNames(n named) error {
	for _, f := range []struct {
		names []string
		at    *annotation
	}{{n.v4, n.at4}, {n.v6, n.at6}} {
		if len(f.names) > demand.MaxEntries {
			return f.at.wrong("it names %d pools of a family, more than %d", len(f.names), demand.MaxEntries)
		}
		seen := map[string]bool{}
		for _, name := range f.names {
			if name == "" {
				return f.at.wrong("a pool's name is empty")
			}
			if seen[name] {
				return f.at.wrong("pool %q is named twice", name)
			}
			seen[name] = true
			if !isValid(name) {
				return f.at.wrong("%q is not a valid pattern", name)
			}
		}
	}
	return nil
}

// isValid reports whether a name is a valid pattern.
func isValid(name string) bool {
	_, err := path.Match(name, "")
	return err == nil
}

// isPattern reports whether a name is a pattern.
func isPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

// isIPv6 reports whether a pool is of IPv6. The subnet may be invalid.
func isIPv6(p *v1alpha1.IPPool) bool { return strings.Contains(p.Spec.Subnet, ":") }

func describeAnnotation(a annotation) string { return "annotation " + a.key + " of " + a.on }

func (p Pod) describe() string { return "pod " + p.Namespace + "/" + p.Name }
