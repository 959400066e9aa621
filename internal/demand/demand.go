// SPDX-License-Identifier: Apache-2.0

// Package demand reads the annotations by which the pods of an application ask for addresses of
// IPSubnets. Agent and controller use it, so that both read an annotation in the same way.
package demand

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Names of annotations, without prefix.
const (
	Subnets = "subnets"
	Subnet  = "subnet"
	Pools   = "ippools"
	Pool    = "ippool"
	Number  = "ippool-ip-number"
	Reclaim = "ippool-reclaim"

	// Annotations of namespaces.
	NamespaceV4    = "default-ipv4-ippool"
	NamespaceV6    = "default-ipv6-ippool"
	NamespaceV4Old = "defaultv4ippool"
	NamespaceV6Old = "defaultv6ippool"
)

const (
	// MaxAddresses is the greatest number of addresses of a pool that is made of an IPSubnet.
	MaxAddresses = 4096
	// MaxEntries is the greatest number of entries of a list in an annotation.
	MaxEntries = 256
	// longestInterface is the greatest length of an interface name in the kernel (IFNAMSIZ - 1).
	longestInterface = 15
)

// The expected forms, by example.
const (
	subnetsForm = `[{"interface": "eth0", "ipv4": ["subnet-a"], "ipv6": ["subnet-b"]}]`
	subnetForm  = `{"ipv4": ["subnet-a"], "ipv6": ["subnet-b"]}`
	numberForm  = `"5" for five addresses, or "+1" for one more than there are replicas`
	reclaimForm = `"true" or "false"`
)

// Demand is the content of the annotations of a pod.
type Demand struct {
	// Interfaces has an element for each interface that asks for addresses of IPSubnets.
	Interfaces []Interface
	Size       Size
	// Reclaim deletes the pools with the application.
	Reclaim bool
	// Key and Value are those of the annotation that names the IPSubnets. They are empty for the
	// default IPSubnets.
	Key, Value string
}

// Interface is the demand of one interface.
type Interface struct {
	// Name is the name of the interface, or its number from 0 among the interfaces that Fenceline
	// serves.
	Name string `json:"interface"`
	// V4 and V6 are the names of IPSubnets, in order of preference.
	V4 []string `json:"ipv4"`
	V6 []string `json:"ipv6"`
}

// Of returns the names of one family.
func (i Interface) Of(ipv6 bool) []string {
	if ipv6 {
		return i.V6
	}
	return i.V4
}

// Size is the wanted number of addresses of a pool. The zero value is as many as there are replicas.
type Size struct {
	// Fixed reports that Addresses is the number itself. Otherwise it is added to the replicas.
	Fixed     bool
	Addresses int
}

// Flexible is the size of an application without the annotation ippool-ip-number: one more than its
// replicas, so that a rollout may start a pod before it ends another one.
func Flexible() Size { return Size{Addresses: 1} }

// Of returns the number of addresses for a number of replicas. Without replicas, it is 0 unless it is fixed.
func (s Size) Of(replicas int) int {
	switch {
	case s.Fixed:
		return s.Addresses
	case replicas <= 0:
		return 0
	}
	return replicas + s.Addresses
}

// Error is an annotation whose value cannot be used.
type Error struct {
	Key, Value string
	// Expected is the expected form, by example.
	Expected string
	Err      error
}

func (e *Error) Error() string {
	return fmt.Sprintf("annotation %s is %.256q: %v; expected the form %s", e.Key, e.Value, e.Err, e.Expected)
}

// Unwrap returns the problem of the value.
func (e *Error) Unwrap() error { return e.Err }

// Annotations returns the full names of the annotations that Parse and NamesPools read.
func Annotations() []string {
	var all []string
	for _, prefix := range Prefixes() {
		for _, name := range []string{Subnets, Subnet, Number, Reclaim, Pools, Pool} {
			all = append(all, prefix+name)
		}
	}
	return all
}

// Parse reads the annotations of a pod, or of the template of an application. ok is false if they name
// no IPSubnet. The error is an *Error.
func Parse(annotations map[string]string) (d Demand, ok bool, err error) {
	key, value, ok := Find(annotations, Kind(), Subnets, Subnet)
	if !ok {
		return Demand{}, false, nil
	}
	d, err = settings(annotations)
	if err != nil {
		return d, true, err
	}
	d.Key, d.Value = key, value
	if strings.HasSuffix(key, "/"+Subnets) {
		d.Interfaces, err = readInterfaces(key, value)
	} else {
		d.Interfaces, err = readFirst(key, value)
	}
	return d, true, err
}

// Default returns the demand of an application that names nothing, for the first interface of its pods.
// The error is an *Error.
func Default(annotations map[string]string, v4, v6 []string) (Demand, error) {
	d, err := settings(annotations)
	d.Interfaces = []Interface{{Name: "0", V4: v4, V6: v6}}
	return d, err
}

// NamesPools reports whether the annotations name pools.
func NamesPools(annotations map[string]string) bool {
	_, _, ok := Find(annotations, Kind(), Pools, Pool)
	return ok
}

// NamespaceNamesPools reports whether the annotations of a namespace name pools for its pods.
func NamespaceNamesPools(annotations map[string]string) bool {
	_, _, ok := Find(annotations, nil, NamespaceKind()...)
	return ok
}

// For returns the demand of an interface. index is its number among the interfaces that Fenceline
// serves. An entry with the name of the interface takes precedence over an entry by number.
func (d Demand) For(iface string, index int) (Interface, bool) {
	for _, name := range []string{iface, strconv.Itoa(index)} {
		for _, i := range d.Interfaces {
			if i.Name == name {
				return i, true
			}
		}
	}
	return Interface{}, false
}

// FormerNames returns the names by which a pool may know an interface of the demand whose annotation was
// written in another way: its number in the list, or eth0 for the first one.
func (d Demand) FormerNames(iface string) []string {
	index := slices.IndexFunc(d.Interfaces, func(i Interface) bool { return i.Name == iface })
	number := strconv.Itoa(index)
	switch {
	case index < 0:
		return nil
	case iface != number:
		return []string{number}
	case index == 0:
		return []string{"eth0"}
	}
	return nil
}

// settings reads the annotations that do not name IPSubnets.
func settings(annotations map[string]string) (Demand, error) {
	d := Demand{Size: Flexible(), Reclaim: true}
	if key, value, ok := Find(annotations, []string{Number}, Number); ok {
		digits, isFlexible := strings.CutPrefix(value, "+")
		n, err := strconv.ParseUint(digits, 10, 31)
		switch {
		case err != nil:
			return d, &Error{key, value, numberForm, errors.New("it is not a number")}
		case n > MaxAddresses:
			return d, &Error{key, value, numberForm, fmt.Errorf("it is more than %d", MaxAddresses)}
		case n == 0 && !isFlexible:
			return d, &Error{key, value, numberForm, errors.New("a pool has at least one address")}
		}
		d.Size = Size{Fixed: !isFlexible, Addresses: int(n)}
	}
	if key, value, ok := Find(annotations, []string{Reclaim}, Reclaim); ok {
		if value != "true" && value != "false" {
			return d, &Error{key, value, reclaimForm, errors.New("it is neither true nor false")}
		}
		d.Reclaim = value == "true"
	}
	return d, nil
}

// readInterfaces reads the annotation subnets.
func readInterfaces(key, value string) ([]Interface, error) {
	var all []Interface
	wrong := func(format string, args ...any) ([]Interface, error) {
		return nil, &Error{key, value, subnetsForm, fmt.Errorf(format, args...)}
	}
	if err := Decode(value, &all); err != nil {
		return wrong("%w", err)
	}
	if len(all) == 0 || len(all) > MaxEntries {
		return wrong("the list has %d entries, expected 1 to %d", len(all), MaxEntries)
	}
	seen := map[string]bool{}
	for i := range all {
		name := cmp.Or(all[i].Name, strconv.Itoa(i))
		if !IsInterface(name) {
			return wrong("%q is not the name of an interface", name)
		}
		if seen[name] {
			return wrong("interface %s is named twice", name)
		}
		seen[name], all[i].Name = true, name
		if err := checkInterface(all[i]); err != nil {
			return wrong("entry %d: %w", i, err)
		}
	}
	return all, nil
}

// readFirst reads the annotation subnet, which is for the first interface.
func readFirst(key, value string) ([]Interface, error) {
	var first Interface
	err := Decode(value, &first)
	if err == nil && first.Name != "" {
		err = errors.New("it is for the first interface: remove the field interface")
	}
	if err == nil {
		err = checkInterface(first)
	}
	if err != nil {
		return nil, &Error{key, value, subnetForm, err}
	}
	first.Name = "0"
	return []Interface{first}, nil
}

func checkInterface(i Interface) error {
	if len(i.V4) == 0 && len(i.V6) == 0 {
		return errors.New("it names nothing")
	}
	for _, names := range [][]string{i.V4, i.V6} {
		if len(names) > MaxEntries {
			return fmt.Errorf("it names %d subnets of a family, more than %d", len(names), MaxEntries)
		}
		for n, name := range names {
			if len(validation.IsDNS1123Subdomain(name)) > 0 {
				return fmt.Errorf("%.256q cannot be the name of an IPSubnet", name)
			}
			if slices.Contains(names[:n], name) {
				return fmt.Errorf("subnet %s is named twice", name)
			}
		}
	}
	return nil
}

// Decode reads a value as JSON. A misspelt field must not lead to addresses of another source.
func Decode(value string, into any) error {
	d := json.NewDecoder(bytes.NewReader([]byte(value)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("not the JSON expected: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows after the JSON value")
	}
	return nil
}

// Prefixes returns the prefixes of annotations by precedence.
func Prefixes() []string { return []string{v1alpha1.AnnotationPrefix, v1alpha1.LegacyAnnotationPrefix} }

// Kind returns the annotations of pods that decide about the same thing: the source of addresses.
func Kind() []string { return []string{Subnets, Subnet, Pools, Pool} }

// NamespaceKind returns the annotations of namespaces that name pools.
func NamespaceKind() []string {
	return []string{NamespaceV4, NamespaceV6, NamespaceV4Old, NamespaceV6Old}
}

// IsInterface reports whether an interface can have the name. The kernel refuses white space, "/" and
// ":"; a terminal would obey characters that cannot be printed. A quotation mark shows that the user
// quoted a value that is not JSON.
func IsInterface(name string) bool {
	return len(name) <= longestInterface && !strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsPrint(r) || strings.ContainsRune(` /:"`, r)
	})
}

// Find returns the first annotation that has one of the names. If an annotation of the kind has our
// prefix, those with the other prefix are leftovers, and are not read.
func Find(annotations map[string]string, kind []string, names ...string) (key, value string, ok bool) {
	for _, prefix := range Prefixes() {
		for _, name := range names {
			if value, ok := annotations[prefix+name]; ok {
				return prefix + name, value, true
			}
		}
		for _, name := range kind {
			if _, ok := annotations[prefix+name]; ok {
				return "", "", false
			}
		}
	}
	return "", "", false
}

// Defaults returns the names of the default IPSubnets: the given ones, or else those with spec.default in
// the order of their names.
func Defaults(given4, given6 []string, subnets []v1alpha1.IPSubnet) (v4, v6 []string) {
	if len(given4)+len(given6) > 0 {
		return given4, given6
	}
	for i := range subnets {
		s := &subnets[i]
		switch {
		case s.Spec.Default == nil || !*s.Spec.Default:
		case strings.Contains(s.Spec.Subnet, ":"):
			v6 = append(v6, s.Name)
		default:
			v4 = append(v4, s.Name)
		}
	}
	slices.Sort(v4)
	slices.Sort(v6)
	return v4, v6
}

// Open returns the names of IPSubnets without those that serve no application of a namespace with these
// labels.
func Open(names []string, subnets []v1alpha1.IPSubnet, namespace string, labels map[string]string) []string {
	var open []string
	for _, name := range names {
		if !slices.ContainsFunc(subnets, func(s v1alpha1.IPSubnet) bool {
			reason, _ := poolset.OtherNamespaces(&s.AsPool().Spec, namespace, labels)
			return s.Name == name && reason != ""
		}) {
			open = append(open, name)
		}
	}
	return open
}
