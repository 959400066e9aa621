// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"slices"

	"github.com/fenceline/fenceline/internal/demand"
)

// said is the content of the pod's annotations for an interface: names, ippools, ips and routes.
type said struct {
	// attachments are the pod's interfaces in their order, and at is the index of the request's
	// interface. named reports whether the pod's annotations name the interfaces.
	attachments []Attachment
	at          int
	named       bool
	// interfaces are the entries of the annotation interfacesAt, which is ippools.
	interfaces   []perInterface
	interfacesAt annotation
	routes       podRoutes
	// wishes are the wishes of the annotation ips, at most one of each family.
	wishes []Wish
}

// readPod reads the annotations that matter for every source of pools. It returns the error of a bad
// annotation even if another source names the pools.
func readPod(req Request) (said, error) {
	all, err := Attachments(req.Pod, req.Multus)
	if err != nil {
		return said{}, err
	}
	s := said{attachments: all, named: len(all) > 1+len(req.Multus.additional(req.Pod.Namespace)), at: place(all, req.Interface)}
	if s.at < 0 {
		// Neither Multus nor the annotations name this interface, so it comes after the others.
		s.at = len(all)
		s.attachments = append(s.attachments, Attachment{Interface: req.Interface})
	}
	if s.interfaces, s.interfacesAt, err = readInterfaces(req); err != nil {
		return said{}, err
	}
	for _, e := range s.interfaces {
		if err := s.know(s.interfacesAt, req, e.Interface); err != nil {
			return said{}, err
		}
	}
	if err := s.checkRouting(req); err != nil {
		return said{}, err
	}
	if s.wishes, err = s.readWishes(req); err != nil {
		return said{}, err
	}
	s.routes, err = s.readRoutes(req)
	return s, err
}

// definition is the NetworkAttachmentDefinition of the request's interface.
func (s said) definition() string { return s.attachments[s.at].Definition }

// wishOf returns the wish of the annotation ips for a family, or nil.
func (s said) wishOf(ipv6 bool) *Wish {
	for i := range s.wishes {
		if s.wishes[i].Addrs[0].Is6() == ipv6 {
			return &s.wishes[i]
		}
	}
	return nil
}

// last reports whether this is the last interface that the annotations name.
func (s said) last() bool { return s.at == len(s.attachments)-1 }

// know returns an error if the pod cannot have the interface. An empty name stands for any interface.
// If the annotations do not name the interfaces, know accepts every name that the kernel accepts.
func (s said) know(a annotation, req Request, iface string) error {
	if iface == "" {
		return nil
	}
	if !demand.IsInterface(iface) {
		return a.wrong("%q is not the name of an interface", iface)
	}
	known := make([]string, 0, len(s.attachments)+len(req.Earlier))
	for _, other := range s.attachments {
		known = append(known, other.Interface)
	}
	for _, other := range req.Earlier {
		known = append(known, other.Name)
	}
	if !s.named || slices.Contains(known, iface) {
		return nil
	}
	return a.wrong("the pod has no interface %s, its annotations name %q", iface, known)
}

// clean reports whether the entry of an interface in ippools has cleangateway, so that no default route
// goes through the interface. An entry without a name counts by order. The order is known for an
// earlier interface only if Fenceline serves all interfaces before this one.
func (s said) clean(i int, req Request) bool {
	index := -1
	switch {
	case i == s.at:
		index = len(req.Earlier)
	case len(req.Earlier) == s.at:
		index = i
	}
	n := s.entryOf(s.attachments[i].Interface, index)
	return n >= 0 && s.interfaces[n].CleanGateway
}
