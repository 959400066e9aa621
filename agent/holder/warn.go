// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/internal/event"
)

// warn reports in events of the pod its settings without effect, once for each sandbox.
func (a *add) warn(s surroundings) {
	if a.warned || len(s.request.Earlier) > 0 {
		return
	}
	a.warned = true
	if unread := ipam.Unread(s.request); len(unread) > 0 {
		a.h.Events.Eventf(a.pod, nil, corev1.EventTypeWarning, "AnnotationUnknown", "Bind", "%s", strings.Join(unread, "; "))
	}
	ports := hostPorts(a.pod, s.request.Interface, s.runtime)
	if len(ports) == 0 {
		return
	}
	passes, err := a.h.PassesPorts()
	if err != nil {
		a.h.Log.Error(err, "it is not known whether the hostPort of a pod has an effect", "namespace", a.pod.Namespace, "pod", a.pod.Name)
	}
	if err != nil || passes {
		return
	}
	a.h.Events.Eventf(a.pod, nil, corev1.EventTypeWarning, "HostPortIgnored", "Bind",
		"hostPort %s of pod %s/%s has no effect: no plugin of the pod network has the capability portMappings; set cni.conflist.portMap of the chart, or chain the plugin portmap",
		strings.Join(ports, ", "), a.pod.Namespace, a.pod.Name)
}

// hostPorts returns the hostPorts that the runtime gives to the plugins of an interface. Only the
// plugins of the first interface get them, and CRI-O serves them itself.
func hostPorts(pod *corev1.Pod, iface, runtime string) []string {
	if iface != ipam.FirstInterface || strings.HasPrefix(runtime, "cri-o:") {
		return nil
	}
	var all []string
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				all = append(all, fmt.Sprintf("%d/%s", p.HostPort, p.Protocol))
			}
		}
	}
	return all
}

// refused reports in an event why the pod got no address, unless the runtime cancelled the call.
func (a *add) refused(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	a.h.Events.Eventf(a.pod, nil, corev1.EventTypeWarning, "AddressRefused", "Bind", "%s", note(refusal.Answer(err)))
}

// note shortens an error so that it fits into an event. Of many candidates it only counts some, so
// that the others keep their whole reason. The runtime gets the whole error.
func note(err error) string {
	text := err.Error()
	if len(text) <= event.MaxNote {
		return text
	}
	families := ipam.NoPools(err)
	left := event.MaxNote - len(text)
	for _, none := range families {
		left += len(none.Error())
	}
	// The shortest first: the others can use the bytes that it does not need.
	slices.SortStableFunc(families, func(a, b *ipam.NoPoolError) int { return cmp.Compare(len(a.Error()), len(b.Error())) })
	for i, none := range families {
		told := none.Within(left / (len(families) - i))
		text = strings.Replace(text, none.Error(), told, 1)
		left -= len(told)
	}
	return event.Cut(text)
}
