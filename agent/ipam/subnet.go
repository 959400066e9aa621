// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Subnets are the IPSubnets as the rules read them.
type Subnets struct {
	// All are the IPSubnets of the cluster. V4 and V6 are the default ones by name; if both are empty,
	// those with spec.default count.
	All    []v1alpha1.IPSubnet
	V4, V6 []string
}

// PoolAwaitedError is the error of an interface whose pool of an IPSubnet the controller has not made yet.
type PoolAwaitedError struct {
	Interface   string // "pod ns/name interface eth0"
	Application string // "Deployment ns/name"
	Subnets     []string
	// Why is the controller's reason, or empty while none is known. By is the IPSubnet whose status gives
	// it, or nil.
	Why string
	By  *v1alpha1.IPSubnet
}

func (e *PoolAwaitedError) Error() string {
	text := fmt.Sprintf("no pool for %s: the controller has not made the pool of %s in IPSubnet %s yet",
		e.Interface, e.Application, strings.Join(e.Subnets, " or "))
	if e.Why != "" {
		text += ": " + e.Why
	}
	return text
}

// AsksForSubnets reports whether the annotations of a pod name IPSubnets, or default IPSubnets may be
// meant for it. The rules then need the application of the pod.
func AsksForSubnets(pod Pod, s Subnets) bool {
	_, ok, _ := demand.Parse(pod.Annotations)
	v4, v6 := demand.Defaults(s.V4, s.V6, s.All)
	return ok || len(v4)+len(v6) > 0
}

// annotatedSubnets returns the pools of the application in the IPSubnets that annotations name.
func annotatedSubnets(req Request, pools []v1alpha1.IPPool) (named, error) {
	d, ok, err := demand.Parse(req.Pod.Annotations)
	if !ok {
		return named{}, nil
	}
	if err != nil {
		return named{}, wrongDemand(req, err)
	}
	entry, ok := d.For(req.Interface, len(req.Earlier))
	if !ok {
		return named{}, nil
	}
	if req.Application.Kind == "Pod" && req.Application.APIGroup == "" && !d.Size.Fixed {
		return named{}, &AnnotationError{
			req.Pod.describe(), d.Key, d.Value, `ippool-ip-number: "1"`,
			errors.New("a pod without an owner has no replicas: give a fixed number in the annotation ippool-ip-number"),
		}
	}
	n, err := poolsOfApplication(req, pools, entry, d.FormerNames(entry.Name))
	n.source, n.ofPod = "annotation "+d.Key+" of "+req.Pod.describe(), true
	return n, err
}

// defaultSubnets returns the pools of the application in the default IPSubnets. They are for the first
// interface of the pods of Deployments, StatefulSets, DaemonSets, Jobs and CronJobs.
func defaultSubnets(req Request, pools []v1alpha1.IPPool) (named, error) {
	v4, v6 := demand.Defaults(req.Subnets.V4, req.Subnets.V6, req.Subnets.All)
	v4, v6 = demand.Open(v4, req.Subnets.All, req.Pod.Namespace, req.NamespaceLabels), demand.Open(v6, req.Subnets.All, req.Pod.Namespace, req.NamespaceLabels)
	_, asks, _ := demand.Parse(req.Pod.Annotations)
	served := map[string][]string{"apps": {"Deployment", "StatefulSet", "DaemonSet"}, "batch": {"Job", "CronJob"}}
	if len(v4)+len(v6) == 0 || asks || demand.NamesPools(req.Pod.Annotations) || len(req.Earlier) > 0 ||
		!slices.Contains(served[req.Application.APIGroup], req.Application.Kind) {
		return named{}, nil
	}
	n, err := poolsOfApplication(req, pools, demand.Interface{Name: "0", V4: v4, V6: v6}, nil)
	n.source = "the default IPSubnets"
	return n, err
}

// poolsOfApplication returns the pools that the controller has made for an entry. While the application
// changes the way in which it names its interface, the pool may have one of the former names. The error
// is a *PoolAwaitedError if the pool of a family is missing.
func poolsOfApplication(req Request, pools []v1alpha1.IPPool, entry demand.Interface, former []string) (named, error) {
	var n named
	for _, ipv6 := range []bool{false, true} {
		subnets := entry.Of(ipv6)
		var found []string
		for _, iface := range append([]string{entry.Name}, former...) {
			for _, p := range sortedByName(pools) {
				if isIPv6(p) == ipv6 && p.DeletionTimestamp == nil && slices.Contains(subnets, p.Spec.IPSubnet) && p.Spec.Application != nil &&
					isSame(*p.Spec.Application, req.Application) && p.Spec.Application.Interface == iface {
					found = append(found, p.Name)
				}
			}
			if len(found) > 0 {
				break
			}
		}
		if len(subnets) > 0 && len(found) == 0 {
			return n, req.awaits(subnets, entry.Name)
		}
		if ipv6 {
			n.v6 = found
		} else {
			n.v4 = found
		}
	}
	return n, nil
}

// awaits returns the error for a pool that is missing, with the reason that the controller has published.
func (r Request) awaits(subnets []string, iface string) error {
	e := &PoolAwaitedError{Interface: r.Describe(), Application: describeApplication(r.Application), Subnets: subnets}
	for i := range r.Subnets.All {
		s := &r.Subnets.All[i]
		if !slices.Contains(subnets, s.Name) {
			continue
		}
		for _, u := range s.Status.Unserved {
			if isSame(u.Application, r.Application) && u.Interface == iface {
				e.Why, e.By = u.Message, s
				return e
			}
		}
	}
	if !slices.ContainsFunc(r.Subnets.All, func(s v1alpha1.IPSubnet) bool { return slices.Contains(subnets, s.Name) }) {
		e.Why = "there is no such IPSubnet"
	}
	return e
}

// isSame reports whether two applications are the same, on any interface.
func isSame(a, b v1alpha1.Application) bool {
	return a.APIGroup == b.APIGroup && a.Kind == b.Kind && a.Namespace == b.Namespace && a.Name == b.Name
}

func describeApplication(a v1alpha1.Application) string {
	return a.Kind + " " + a.Namespace + "/" + a.Name
}

// otherNamespaces returns the reason for which the IPSubnet of a pool serves no pod of the request's
// namespace, or "". An IPSubnet that was deleted leaves its pools to their applications.
func (r Request) otherNamespaces(subnet string) (Reason, string) {
	for i := range r.Subnets.All {
		if s := &r.Subnets.All[i]; subnet != "" && s.Name == subnet {
			reason, why := poolset.OtherNamespaces(&s.AsPool().Spec, r.Pod.Namespace, r.NamespaceLabels)
			return Reason(reason), "it is of IPSubnet " + subnet + ": " + why
		}
	}
	return "", ""
}

// ofApplication returns the reason for which a pool of an application does not serve the request, or "".
func (r Request) ofApplication(a *v1alpha1.Application) string {
	switch {
	case a == nil:
		return ""
	case !isSame(*a, r.Application):
		return "it is for " + describeApplication(*a)
	case a.Interface != r.Interface && a.Interface != strconv.Itoa(len(r.Earlier)):
		return "it is for interface " + a.Interface + " of " + describeApplication(*a)
	}
	return ""
}

// wrongDemand returns the error of an annotation as an AnnotationError.
func wrongDemand(req Request, err error) error {
	if e, ok := errors.AsType[*demand.Error](err); ok {
		return &AnnotationError{req.Pod.describe(), e.Key, e.Value, e.Expected, e.Err}
	}
	return err
}
