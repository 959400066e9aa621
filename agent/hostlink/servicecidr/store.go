// SPDX-License-Identifier: Apache-2.0

package servicecidr

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/cache"
)

// store turns ServiceCIDR objects into prefixes. An object that is being deleted counts until it is
// gone: the API server keeps it while Services have addresses of it. One goroutine changes the store.
type store struct {
	cache.Store
	cidrs *CIDRs
}

func (s *store) Add(o any) error                     { return s.tell(s.Store.Add(o)) }
func (s *store) Update(o any) error                  { return s.tell(s.Store.Update(o)) }
func (s *store) Delete(o any) error                  { return s.tell(s.Store.Delete(o)) }
func (s *store) Replace(list []any, at string) error { return s.tell(s.Store.Replace(list, at)) }

// tell sets the service CIDRs after a change. A prefix that no route may have is left out.
func (s *store) tell(err error) error {
	var all []netip.Prefix
	for _, o := range s.List() {
		object := o.(*networkingv1.ServiceCIDR) // the reflector passes no other type
		for _, text := range object.Spec.CIDRs {
			p, err := parse(text)
			if err != nil {
				s.cidrs.log.Error(err, "pods do not reach Services of this prefix", "serviceCIDR", object.Name)
				continue
			}
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		s.cidrs.set(nil, ErrNone)
	} else {
		s.cidrs.set(all, nil)
	}
	return err
}
