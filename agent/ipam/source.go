package ipam

import (
	"path"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// named is what one source says: pool names or patterns in the user's order.
type named struct {
	source       string
	v4, v6       []string
	cleanGateway bool
	// at is the annotation per family that the names stand in; nil where an
	// unknown or unfit pool is no mistake of the pod's or namespace's owner.
	at4, at6 *annotation
	// implied is set where pools offer themselves (spec.default): a family is
	// then wanted only by the pods that its pools are meant for.
	implied bool
}

func (n named) empty() bool { return len(n.v4) == 0 && len(n.v6) == 0 }

// findNames asks the sources from the highest to the lowest; the first that
// names a pool of any family wins, for both families.
func findNames(req Request, pools []v1alpha1.IPPool) (named, error) {
	sources := []func(Request) (named, error){podPools, podPool, namespacePools, configPools}
	for _, read := range sources {
		if n, err := read(req); err != nil || !n.empty() {
			return n, err
		}
	}
	return defaultPools(pools), nil
}

// perInterface is one entry of the annotation ippools.
type perInterface struct {
	Interface    string   `json:"interface"`
	V4           []string `json:"ipv4"`
	V6           []string `json:"ipv6"`
	CleanGateway bool     `json:"cleangateway"`
}

// podPools reads the annotation ippools: an entry for each interface, by name
// or else by order. A pod may leave interfaces out of it.
func podPools(req Request) (named, error) {
	a, ok := find(req.Pod.describe(), req.Pod.Annotations,
		`[{"interface": "eth0", "ipv4": ["pool-a", "pool-b"], "ipv6": ["pool-c"], "cleangateway": false}]`, annotationPools)
	if !ok {
		return named{}, nil
	}
	var entries []perInterface
	if err := a.decode(&entries); err != nil {
		return named{}, err
	}
	if len(entries) == 0 {
		return named{}, a.wrong("the list is empty")
	}
	mine := -1
	seen := map[string]bool{}
	for i, e := range entries {
		if len(e.V4) == 0 && len(e.V6) == 0 {
			return named{}, a.wrong("entry %d names no pool", i)
		}
		if e.Interface != "" && seen[e.Interface] {
			return named{}, a.wrong("interface %s is named twice", e.Interface)
		}
		seen[e.Interface] = true
		if e.Interface == req.Interface || (e.Interface == "" && i == req.InterfaceIndex && mine < 0) {
			mine = i
		}
	}
	if mine < 0 {
		return named{}, nil
	}
	e := entries[mine]
	n := named{source: describeAnnotation(a), v4: e.V4, v6: e.V6, at4: &a, at6: &a, cleanGateway: e.CleanGateway}
	return n, checkNames(n)
}

// podPool reads the annotation ippool, which holds for all interfaces.
func podPool(req Request) (named, error) {
	a, ok := find(req.Pod.describe(), req.Pod.Annotations, `{"ipv4": ["pool-a", "pool-b"], "ipv6": ["pool-c"]}`, annotationPool)
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
	n := named{source: describeAnnotation(a), v4: names.V4, v6: names.V6, at4: &a, at6: &a}
	if n.empty() {
		return named{}, a.wrong("it names no pool")
	}
	return n, checkNames(n)
}

// namespacePools reads the two annotations of the namespace.
func namespacePools(req Request) (named, error) {
	on := "namespace " + req.Pod.Namespace
	var n named
	for _, family := range []struct {
		names []string
		into  *[]string
		at    **annotation
	}{
		{[]string{annotationNamespaceV4, annotationNamespaceV4Old}, &n.v4, &n.at4},
		{[]string{annotationNamespaceV6, annotationNamespaceV6Old}, &n.v6, &n.at6},
	} {
		a, ok := find(on, req.NamespaceAnnotations, `["pool-a", "pool-b"]`, family.names...)
		if !ok {
			continue
		}
		if err := a.decode(family.into); err != nil {
			return named{}, err
		}
		if len(*family.into) == 0 {
			return named{}, a.wrong("it names no pool")
		}
		*family.at = &a
	}
	n.source = "the annotations of " + on
	return n, checkNames(n)
}

// configPools reads the pools that the CNI configuration names.
func configPools(req Request) (named, error) {
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

// checkNames refuses what no set of pools could make sense of.
func checkNames(n named) error {
	for _, f := range []struct {
		names []string
		at    *annotation
	}{{n.v4, n.at4}, {n.v6, n.at6}} {
		seen := map[string]bool{}
		for _, name := range f.names {
			if name == "" {
				return f.at.wrong("a pool's name is empty")
			}
			if seen[name] {
				return f.at.wrong("pool %s is named twice", name)
			}
			seen[name] = true
			if _, err := path.Match(name, ""); err != nil {
				return f.at.wrong("%q is no valid pattern", name)
			}
		}
	}
	return nil
}

// isPattern tells a pattern from a pool's name.
func isPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

// isIPv6 tells the family of a pool, also of one with an invalid subnet.
func isIPv6(p *v1alpha1.IPPool) bool { return strings.Contains(p.Spec.Subnet, ":") }

func describeAnnotation(a annotation) string { return "annotation " + a.key + " of " + a.on }

func (p Pod) describe() string { return "pod " + p.Namespace + "/" + p.Name }
