// SPDX-License-Identifier: Apache-2.0

package servicecidr

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
)

// store turns ServiceCIDR objects into prefixes. An object that is being deleted counts until it is
// gone: the API server keeps it while Services have addresses of it. One goroutine uses the store.
type store struct {
	cidrs   *CIDRs
	objects map[string][]netip.Prefix
}

func (s *store) Replace(list []any, _ string) error {
	s.objects = make(map[string][]netip.Prefix, len(list))
	for _, o := range list {
		s.put(o)
	}
	s.tell()
	return nil
}

func (s *store) Add(o any) error { return s.Update(o) }

func (s *store) Update(o any) error {
	s.put(o)
	s.tell()
	return nil
}

func (s *store) Delete(o any) error {
	if object, ok := o.(*networkingv1.ServiceCIDR); ok {
		delete(s.objects, object.Name)
	}
	s.tell()
	return nil
}

// Resync is never called: the reflector has no period.
func (s *store) Resync() error { return nil }

// put records the prefixes of an object. A prefix that no route may have is left out.
func (s *store) put(o any) {
	object, ok := o.(*networkingv1.ServiceCIDR)
	if !ok {
		return // the reflector passes no other type
	}
	var all []netip.Prefix
	for _, text := range object.Spec.CIDRs {
		p, err := parse(text)
		if err != nil {
			s.cidrs.log.Error(err, "pods do not reach Services of this prefix", "serviceCIDR", object.Name)
			continue
		}
		all = append(all, p)
	}
	s.objects[object.Name] = all
}

// tell sets the service CIDRs.
func (s *store) tell() {
	var all []netip.Prefix
	for _, prefixes := range s.objects {
		all = append(all, prefixes...)
	}
	if len(all) == 0 {
		s.cidrs.set(nil, ErrNone)
		return
	}
	s.cidrs.set(all, nil)
}
