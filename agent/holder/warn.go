// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/holder/refusal"
	"github.com/fenceline/fenceline/agent/ipam"
)

// warn reports in events of the pod its settings without effect: once in an ADD, and only at the
// first interface of a sandbox.
func (a *adding) warn(s surroundings) {
	if a.queued.warned || len(s.request.Earlier) > 0 {
		return
	}
	a.queued.warned = true
	if unread := ipam.Unread(s.request); len(unread) > 0 {
		a.Events.Eventf(a.Pod, nil, corev1.EventTypeWarning, "AnnotationUnknown", "Bind", "%s", strings.Join(unread, "; "))
	}
	ports := hostPorts(a.Pod, s.request.Interface, s.runtime)
	if len(ports) == 0 {
		return
	}
	passes, err := a.PassesPorts()
	if err != nil {
		a.Log.Error(err, "it is not known whether the hostPort of a pod has an effect", "namespace", a.Pod.Namespace, "pod", a.Pod.Name)
	}
	if err != nil || passes {
		return
	}
	a.Events.Eventf(a.Pod, nil, corev1.EventTypeWarning, "HostPortIgnored", "Bind",
		"hostPort %s of pod %s/%s has no effect: no plugin of the pod network has the capability portMappings; set cni.conflist.portMap of the chart, or chain the plugin portmap",
		strings.Join(ports, ", "), a.Pod.Namespace, a.Pod.Name)
}

// hostPorts returns the hostPorts that the runtime gives to the plugins of an interface. Only the
// plugins of the first interface get them, and CRI-O serves them itself.
func hostPorts(pod *corev1.Pod, iface, runtime string) []string {
	if iface != ipam.FirstInterface || strings.HasPrefix(runtime, "cri-o:") {
		return nil
	}
	var all []string
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, c := range containers {
			for _, p := range c.Ports {
				if p.HostPort > 0 {
					all = append(all, fmt.Sprintf("%d/%s", p.HostPort, p.Protocol))
				}
			}
		}
	}
	return all
}

// refused reports in an event of the pod the reason for which it got no address. A runtime that cancels
// its call gives its own reason.
func (a *adding) refused(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	a.Events.Eventf(a.Pod, nil, corev1.EventTypeWarning, "AddressRefused", "Bind", "%s", note(refusal.Answer(err)))
}
