// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"errors"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// SpecError is the problem of one field of a pool or a reservation. The rules of the CRD refuse most
// problems. SpecError also covers those that a rule cannot express.
type SpecError struct {
	Field string // path below the pool, such as spec.ips[2]
	Err   error
}

func (e *SpecError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the problem without the field.
func (e *SpecError) Unwrap() error { return e.Err }

// Validate returns the result of Addresses, and every problem of the pool as joined SpecErrors, or nil.
// An agent allocates nothing from a pool with a problem.
func Validate(pool *v1alpha1.IPPool) (Set, error) {
	all, err := Addresses(pool)
	if subnet, bad := Subnet(pool); bad == nil {
		_, wrong := Routes(pool, subnet)
		err = errors.Join(err, wrong)
	}
	return all, errors.Join(err,
		checkSelector("spec.nodeAffinity", pool.Spec.NodeAffinity),
		checkSelector("spec.namespaceAffinity", pool.Spec.NamespaceAffinity),
		checkSelector("spec.podAffinity", pool.Spec.PodAffinity),
	)
}

// Addresses returns the addresses that a pool may hand out: ips, or else the whole subnet, without
// excludeIPs, NeverLeased and Hostless. An error joins a SpecError per problem; the set is then empty.
func Addresses(pool *v1alpha1.IPPool) (Set, error) {
	spec := &pool.Spec
	subnet, err := Subnet(pool)
	if err != nil {
		return Set{}, err
	}
	offered, withheld := []span{prefixSpan(subnet)}, Hostless(subnet).spans
	var badIPs, badGateway error
	if len(spec.IPs) > 0 {
		offered, badIPs = parseField("spec.ips", spec.IPs, subnet)
	}
	excluded, badExcludeIPs := parseField("spec.excludeIPs", spec.ExcludeIPs, subnet)
	withheld = append(withheld, excluded...)
	if spec.Gateway != nil {
		gateway, err := parseAddr(*spec.Gateway)
		if err == nil && !Reaches(subnet, gateway) {
			err = fmt.Errorf("%s is not inside the subnet %s", gateway, subnet)
		}
		if err != nil {
			badGateway = &SpecError{"spec.gateway", err}
		}
	}
	for _, a := range pool.NeverLeased() {
		withheld = append(withheld, span{a, a})
	}
	if err := errors.Join(badIPs, badExcludeIPs, badGateway); err != nil {
		return Set{}, err
	}
	return newSet(offered).Minus(newSet(withheld)), nil
}

// parseField reads a list of a spec. The error joins a SpecError for every entry that cannot be
// read, or is not inside a valid subnet. The result has the other entries.
func parseField(field string, entries []string, subnet netip.Prefix) ([]span, error) {
	spans := make([]span, 0, len(entries))
	var errs []error
	for i, entry := range entries {
		sp, err := parseEntry(entry)
		if err == nil && subnet.IsValid() && !(subnet.Contains(sp.from) && subnet.Contains(sp.to)) {
			err = fmt.Errorf("%s is not inside the subnet %s", entry, subnet)
		}
		if err != nil {
			errs = append(errs, &SpecError{fmt.Sprintf("%s[%d]", field, i), err})
			continue
		}
		spans = append(spans, sp)
	}
	return spans, errors.Join(errs...)
}

// Subnet returns the pool's subnet. The error is a SpecError.
func Subnet(pool *v1alpha1.IPPool) (netip.Prefix, error) {
	subnet, err := parsePrefix(pool.Spec.Subnet)
	if err != nil {
		return netip.Prefix{}, &SpecError{"spec.subnet", err}
	}
	version := int64(6)
	if subnet.Addr().Is4() {
		version = 4
	}
	if v := pool.Spec.IPVersion; v != nil && *v != version {
		return netip.Prefix{}, &SpecError{"spec.ipVersion", fmt.Errorf("%d does not fit the subnet %s", *v, subnet)}
	}
	return subnet, nil
}

// Hostless returns the addresses of a subnet that no host may have: network and broadcast address
// of an IPv4 subnet up to /30 (a /31 has neither, RFC 3021), and the subnet-router anycast address
// of an IPv6 subnet up to /126 (RFC 4291 section 2.6.1; a /127 has none, RFC 6164).
func Hostless(subnet netip.Prefix) Set {
	if subnet.Addr().BitLen()-subnet.Bits() < 2 {
		return Set{}
	}
	whole := prefixSpan(subnet)
	first := span{whole.from, whole.from}
	if subnet.Addr().Is6() {
		return newSet([]span{first})
	}
	return newSet([]span{first, {whole.to, whole.to}})
}

func checkSelector(field string, s *metav1.LabelSelector) error {
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		return &SpecError{field, err}
	}
	return nil
}
