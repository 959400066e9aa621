package ipam

import (
	"slices"
	"strings"
	"unicode"
)

// said is what the pod's annotations say about the interface of a request,
// apart from the pools.
type said struct {
	// attachments are the pod's interfaces in their order; at is the place of the
	// one of the request among them. named tells whether the pod names them itself.
	attachments []attachment
	at          int
	named       bool
	// interfaces are the entries of the annotation ippools, at is which it is.
	interfaces   []perInterface
	interfacesAt annotation
	routes       podRoutes
}

// readPod reads the annotations that hold for all sources of pools. What is
// wrong with one is told even where another source names the pools.
func readPod(req Request) (said, error) {
	all, err := attachments(req.Pod)
	if err != nil {
		return said{}, err
	}
	s := said{attachments: all, named: len(all) > 1, at: place(all, req.Interface)}
	if s.at < 0 {
		// Made by somebody who says nothing about it, after those that are known.
		s.at = len(all)
		s.attachments = append(s.attachments, attachment{iface: req.Interface})
	}
	if s.interfaces, s.interfacesAt, err = readInterfaces(req, annotationPools); err != nil {
		return said{}, err
	}
	for _, e := range s.interfaces {
		if e.Interface != "" {
			if err := s.know(s.interfacesAt, req, e.Interface); err != nil {
				return said{}, err
			}
		}
	}
	s.routes, err = s.readRoutes(req)
	return s, err
}

// definition is the NetworkAttachmentDefinition of the request's interface.
func (s said) definition() string { return s.attachments[s.at].definition }

// last tells whether no interface follows, as far as the pod tells.
func (s said) last() bool { return s.at == len(s.attachments)-1 }

// know refuses an interface that the pod does not have. Where it does not name
// its interfaces nobody knows them before they come, but for those that cannot.
func (s said) know(a annotation, req Request, iface string) error {
	if len(iface) > longestInterface || strings.ContainsFunc(iface, unfitForInterface) {
		return a.wrong("%q is no name of an interface", iface)
	}
	known := make([]string, 0, len(s.attachments)+len(req.Earlier))
	for _, other := range s.attachments {
		known = append(known, other.iface)
	}
	for _, other := range req.Earlier {
		known = append(known, other.Name)
	}
	if !s.named || slices.Contains(known, iface) {
		return nil
	}
	return a.wrong("the pod has no interface %s, its annotations tell of %s", iface, strings.Join(known, ", "))
}

// unfitForInterface tells what the kernel allows in no name, or what somebody
// has quoted whose value is not JSON.
func unfitForInterface(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`/:"`, r) }

// clean tells whether the entry of an interface in ippools asks for no default
// route through it. Without a name an entry counts by order, which only tells
// something of an interface before this one if Fenceline serves them all.
func (s said) clean(i int, req Request) bool {
	index := -1
	switch {
	case i == s.at:
		index = len(req.Earlier)
	case len(req.Earlier) == s.at:
		index = i
	}
	n := entryOf(s.interfaces, s.attachments[i].iface, index)
	return n >= 0 && s.interfaces[n].CleanGateway
}
