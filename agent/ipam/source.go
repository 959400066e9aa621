package ipam

import (
	"path"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// named is what one source says: pool names or patterns in the user's order.
type named struct {
	source string
	v4, v6 []string
	// at is the annotation per family that the names stand in; nil where an
	// unknown or unfit pool is no mistake of the pod's or namespace's owner.
	at4, at6 *annotation
	// ofPod is set where an annotation of the pod itself is the source.
	ofPod bool
	// implied is set where pools offer themselves (spec.default): a family is
	// then wanted only by the pods that its pools are meant for.
	implied bool
}

func (n named) empty() bool { return len(n.v4) == 0 && len(n.v6) == 0 }

// findNames asks the sources from the highest to the lowest; the first that
// names a pool of any family wins, for both families.
func findNames(req Request, pools []v1alpha1.IPPool, s said) (named, error) {
	sources := []func(Request, said) (named, error){subnetPools, podPools, podPool, namespacePools, configPools}
	for _, read := range sources {
		if n, err := read(req, s); err != nil || !n.empty() {
			return n, err
		}
	}
	return defaultPools(pools), nil
}

const (
	poolsForm = `[{"interface": "eth0", "ipv4": ["pool-a", "pool-b"], "ipv6": ["pool-c"], "cleangateway": false}]`
	poolForm  = `{"ipv4": ["pool-a", "pool-b"], "ipv6": ["pool-c"]}`
)

// podPools takes the entry of the annotation ippools for the interface. A pod
// may leave interfaces out of it.
func podPools(req Request, s said) (named, error) {
	return namedFor(req, s.interfacesAt, s.interfaces)
}

// podPool reads the annotation ippool, which holds for all interfaces.
func podPool(req Request, _ said) (named, error) {
	a, ok := find(req.Pod.describe(), req.Pod.Annotations, poolForm, annotationPool)
	if !ok {
		return named{}, nil
	}
	return namedForAll(a)
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

// checkNames refuses what no set of pools could make sense of.
func checkNames(n named) error {
	for _, f := range []struct {
		names []string
		at    *annotation
	}{{n.v4, n.at4}, {n.v6, n.at6}} {
		if len(f.names) > maxEntries {
			return f.at.wrong("it names %d pools of a family, more than %d", len(f.names), maxEntries)
		}
		seen := map[string]bool{}
		for _, name := range f.names {
			if name == "" {
				return f.at.wrong("a pool's name is empty")
			}
			if seen[name] {
				return f.at.wrong("pool %s is named twice", name)
			}
			seen[name] = true
			if !isValid(name) {
				return f.at.wrong("%q is no valid pattern", name)
			}
		}
	}
	return nil
}

// isValid tells whether a name can be matched.
func isValid(name string) bool {
	_, err := path.Match(name, "")
	return err == nil
}

// isPattern tells a pattern from a pool's name.
func isPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

// isIPv6 tells the family of a pool, also of one with an invalid subnet.
func isIPv6(p *v1alpha1.IPPool) bool { return strings.Contains(p.Spec.Subnet, ":") }

func describeAnnotation(a annotation) string { return "annotation " + a.key + " of " + a.on }

func (p Pod) describe() string { return "pod " + p.Namespace + "/" + p.Name }
