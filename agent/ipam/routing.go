// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"slices"
	"strings"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/demand"
)

// setting is a value for one interface of a pod, or for every interface if iface is empty.
type setting[T any] struct {
	iface string
	value T
}

// RoutingOf returns the configured routing of an interface, as the annotations mode and host-link
// change it. HostLink of the result is nil in mode off. The error is an AnnotationError.
func RoutingOf(pod Pod, iface string, configured agentapi.Routing) (agentapi.Routing, error) {
	modes, _, err := readModes(pod)
	if err != nil {
		return agentapi.Routing{}, err
	}
	links, linksAt, err := readLinks(pod)
	if err != nil {
		return agentapi.Routing{}, err
	}
	r := configured
	if mode, ok := settingOf(modes, iface); ok {
		r.Mode = mode
	}
	link, asked := settingOf(links, iface)
	if asked {
		r.HostLink = &link
	}
	if r.Mode == agentapi.ModeOff {
		if asked && link {
			return agentapi.Routing{}, linksAt.wrong("interface %s is in mode off, which makes no host link: choose another mode, or remove this annotation", iface)
		}
		r.HostLink = nil
	}
	return r, nil
}

// settingOf returns the value for an interface.
func settingOf[T any](settings []setting[T], iface string) (value T, ok bool) {
	i := slices.IndexFunc(settings, func(s setting[T]) bool { return s.iface == "" || s.iface == iface })
	if i < 0 {
		return value, false
	}
	return settings[i].value, true
}

// readModes reads the annotation mode.
func readModes(pod Pod) ([]setting[agentapi.Mode], annotation, error) {
	a, ok := find(pod.describe(), pod.Annotations, `underlay, or [{"interface": "net1", "mode": "overlay"}]`, annotationMode)
	if !ok {
		return nil, a, nil
	}
	var modes []setting[agentapi.Mode]
	if a.isList() {
		var entries []struct {
			Interface string        `json:"interface"`
			Mode      agentapi.Mode `json:"mode"`
		}
		if err := a.decode(&entries); err != nil {
			return nil, a, err
		}
		for _, e := range entries {
			modes = append(modes, setting[agentapi.Mode]{e.Interface, e.Mode})
		}
		if err := checkSettings(a, modes); err != nil {
			return nil, a, err
		}
	} else {
		modes = []setting[agentapi.Mode]{{value: agentapi.Mode(a.value)}}
	}
	for _, m := range modes {
		if !slices.Contains(agentapi.Modes(), m.value) {
			return nil, a, a.wrong("%.64q is not one of the modes %q", m.value, agentapi.Modes())
		}
	}
	return modes, a, nil
}

// readLinks reads the annotation host-link.
func readLinks(pod Pod) ([]setting[bool], annotation, error) {
	a, ok := find(pod.describe(), pod.Annotations, `true, false, or [{"interface": "net1", "hostLink": true}]`, annotationHostLink)
	switch {
	case !ok:
		return nil, a, nil
	case a.value == "true" || a.value == "false":
		return []setting[bool]{{value: a.value == "true"}}, a, nil
	case !a.isList():
		return nil, a, a.wrong("it is neither true nor false")
	}
	var entries []struct {
		Interface string `json:"interface"`
		HostLink  *bool  `json:"hostLink"`
	}
	if err := a.decode(&entries); err != nil {
		return nil, a, err
	}
	var links []setting[bool]
	for i, e := range entries {
		if e.HostLink == nil {
			return nil, a, a.wrong("entry %d has no hostLink", i)
		}
		links = append(links, setting[bool]{e.Interface, *e.HostLink})
	}
	return links, a, checkSettings(a, links)
}

// isList reports whether the value is a list with an entry for each interface that it names.
func (a annotation) isList() bool { return strings.HasPrefix(a.value, "[") }

// checkSettings checks the interfaces of a list.
func checkSettings[T any](a annotation, settings []setting[T]) error {
	if len(settings) == 0 || len(settings) > demand.MaxEntries {
		return a.wrong("the list has %d entries, expected 1 to %d", len(settings), demand.MaxEntries)
	}
	seen := map[string]bool{}
	for i, s := range settings {
		switch {
		case s.iface == "":
			return a.wrong("entry %d names no interface", i)
		case seen[s.iface]:
			return a.wrong("interface %.64s is named twice", s.iface)
		}
		seen[s.iface] = true
	}
	return nil
}

// checkRouting returns an error if the annotations mode and host-link cannot be used, or if they name an
// interface that the pod cannot have. The IPAM ADD calls it, so that a bad value costs no address.
func (s said) checkRouting(req Request) error {
	modes, modesAt, err := readModes(req.Pod)
	if err != nil {
		return err
	}
	links, linksAt, err := readLinks(req.Pod)
	if err != nil {
		return err
	}
	for _, m := range modes {
		if err := s.know(modesAt, req, m.iface); err != nil {
			return err
		}
	}
	for _, l := range links {
		if err := s.know(linksAt, req, l.iface); err != nil {
			return err
		}
	}
	return nil
}
