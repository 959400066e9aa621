// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package vf_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/vf"
)

// A VF serves one pod after the other, by each plugin and in each form. Its parent is its PF.
func TestGuestPodsOnVFs(t *testing.T) {
	c := vf.New(t, 2)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	for _, plugin := range []string{vf.HostDevice, vf.SRIOV} {
		for _, form := range []vf.Form{vf.Delegated, vf.Chained, vf.Multus, vf.DRA} {
			if plugin == vf.HostDevice && form == vf.DRA {
				continue // the driver calls sriov
			}
			t.Run(plugin+" "+string(form), func(t *testing.T) {
				p := podsOf(c, plugin, form)
				if form != vf.Delegated {
					p.remove(t, p.add(t, 2, 0))
					return
				}
				far := p.add(t, 2, 0)
				near := p.add(t, 1, 0)
				p.reach(t, near, far)
				beside := p.add(t, 1, 1)
				p.reach(t, near, beside)
				p.remove(t, near)
				p.reach(t, beside, far)
				next := p.add(t, 1, 0) // on the VF of the pod that has ended
				p.reach(t, next, far)
				p.removeAll(t, far, beside, next)
			})
		}
	}
	podsOf(c, "", "").noGuards(t)
}

// noGuards waits until no guard is left.
func (p pods) noGuards(t *testing.T) {
	t.Helper()
	for _, n := range p.Nodes {
		check.Eventually(t, nodes.Limit, "the end of the guards of "+n.Name, func() error {
			guards, err := n.Guards()
			if err == nil && len(guards) > 0 {
				err = fmt.Errorf("guards %v are left", guards)
			}
			return err
		})
	}
}

// pods are made by one plugin in one form.
type pods struct {
	*vf.Cluster
	plugin string
	form   vf.Form
	// parent is empty for the PF. network is the network of the pods' pool.
	parent, network string
	begun           map[*nodes.Sandbox]bool // whose VF is not back
}

func podsOf(c *vf.Cluster, plugin string, form vf.Form) pods {
	return pods{Cluster: c, plugin: plugin, form: form, begun: map[*nodes.Sandbox]bool{}}
}

// add makes a pod on a VF of a node, numbered from 1, and judges all leases.
func (p pods) add(t *testing.T, node, index int, change ...func(*corev1.Pod)) *nodes.Sandbox {
	t.Helper()
	s := p.begin(t, node, index, change...)
	check.OK(t, p.LeasesAreLiving(t.Context(), v1alpha1.StateWarm))
	return s
}

// sandbox makes the sandbox of a pod whose ADD will move a VF of a node, numbered from 1.
func (p pods) sandbox(t *testing.T, node, index int, change ...func(*corev1.Pod)) (*nodes.Sandbox, vf.VF) {
	t.Helper()
	device := check.Value(p.LAN.Hosts[node-1].VFs())(t)[index]
	pod := check.Value(p.Nodes[node-1].NewPod(t.Context(), fmt.Sprintf("pod-%d", time.Now().UnixNano()), func(pod *corev1.Pod) {
		for _, c := range change {
			c(pod)
		}
	}))(t)
	s := check.Value(p.NewSandbox(node, pod, device, p.plugin, p.form))(t)
	p.begun[s] = true
	t.Cleanup(func() { p.abandon(t, s) })
	return s, device
}

// begin makes a pod on a VF of a node, numbered from 1.
func (p pods) begin(t *testing.T, node, index int, change ...func(*corev1.Pod)) *nodes.Sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), nodes.Limit)
	defer cancel()
	s, device := p.sandbox(t, node, index, change...)
	check.OK(t, s.Add(ctx))

	l := &v1alpha1.IPLease{}
	check.OK(t, p.Get(ctx, client.ObjectKey{Name: v1alpha1.LeaseName(p.network, s.Addr)}, l))
	parent := cmp.Or(p.parent, namespaces.Parent)
	if l.Spec.State != v1alpha1.StateBound || l.Spec.Parent != parent || l.Spec.Holder.MAC != s.MAC.String() {
		t.Errorf("lease %s is %s on parent %q of %+v, want Bound on %s of %s", l.Name, l.Spec.State, l.Spec.Parent, l.Spec.Holder, parent, s.MAC)
	}
	check.Equal(t, check.Value(vf.BusInfo(s.Namespace, namespaces.PodInterface))(t), device.PCI, "the pod has")
	check.That(t, check.Value(s.Guarded())(t), "no guard is on the VF")
	vf.AwaitCarrier(t, s.Namespace, namespaces.PodInterface)
	return s
}

// end ends a pod, and returns the VF to the host.
func (p pods) end(t *testing.T, s *nodes.Sandbox) {
	t.Helper()
	check.OK(t, errors.Join(s.Del(t.Context()), p.takeBack(s), p.ForgetPod(t.Context(), s.Pod)))
}

// remove ends a pod with its lease and its guard, and returns the VF to the host.
func (p pods) remove(t *testing.T, s *nodes.Sandbox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), nodes.Limit)
	defer cancel()
	check.OK(t, s.Del(ctx))
	check.OK(t, errors.Join(p.LeasesAreLiving(ctx, v1alpha1.StateWarm), p.takeBack(s), p.ForgetPod(ctx, s.Pod)))
}

// abandon ends a pod after a failure, so that the next test finds its VF.
func (p pods) abandon(t *testing.T, s *nodes.Sandbox) {
	t.Helper()
	if !p.begun[s] {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), nodes.Limit)
	defer cancel()
	if err := s.Del(ctx); err != nil {
		t.Log(err)
	}
	check.OK(t, p.takeBack(s))
}

// takeBack removes the namespace of a pod, and returns the VFs in it to the host.
func (p pods) takeBack(s *nodes.Sandbox) error {
	delete(p.begun, s)
	if err := s.Remove(); err != nil {
		return err
	}
	var others []*network.Namespace
	for _, other := range p.Living() {
		others = append(others, other.Namespace)
	}
	for zombie := range p.begun {
		others = append(others, zombie.Namespace)
	}
	return p.LAN.Hosts[slices.Index(p.Nodes, s.Node())].Collect(others...)
}

// reach connects two pods. An emulated card may lose the first frames, although it has a carrier.
func (p pods) reach(t *testing.T, from, to *nodes.Sandbox) {
	t.Helper()
	check.Eventually(t, limit, "a connection", func() error { return vf.Reach(from.Namespace, to.Namespace, to.Addr) })
}
