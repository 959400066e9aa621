// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// dualPods is how many pods get addresses of both families.
const dualPods = 4

// playDual: every pod gets an address of each family, or none at all.
func playDual(ctx context.Context, a *act) error {
	six := a.namespace + "-v6"
	if err := a.makePool(ctx, 2*dualPods, nil); err != nil {
		return err
	}
	err := a.addPool(ctx, six, v1alpha1.IPPoolSpec{
		Subnet: underlay6.String(), IPs: a.ips6(dualPods), Default: ptr.To(true),
	})
	if err != nil {
		return err
	}
	running, err := a.Capture()
	if err != nil {
		return err
	}
	a.after("end the capture", func(context.Context) error { _, err := running.Stop(); return err })
	a.story.Say("A pool of %d IPv4 addresses and one of %d IPv6 addresses, and a Deployment of %d pods.", 2*dualPods, dualPods, dualPods)
	started := time.Now()
	if err := a.deploy(ctx, dualPods); err != nil {
		return err
	}
	pods, err := a.running(ctx, dualPods, everyPod)
	if err != nil {
		return err
	}
	a.figures.add(fmt.Sprintf("%d pods of two families Running", dualPods), time.Since(started))
	if err := a.bothFamilies(ctx, pods); err != nil {
		return err
	}
	if err := a.allOrNothing(ctx, six); err != nil {
		return err
	}
	if pods, err = a.running(ctx, dualPods+1, everyPod); err != nil {
		return err
	}
	if err := a.bothFamilies(ctx, pods); err != nil {
		return err
	}
	for _, p := range pods {
		if err := speaksAlone(running.Frames(), p); err != nil {
			return err
		}
	}
	return a.nothingIsLeft(ctx, a.namespace, six)
}

// allOrNothing: one pod more than there are IPv6 addresses waits, without an IPv4
// address, until there is one for it.
func (a *act) allOrNothing(ctx context.Context, six string) error {
	if err := a.scale(ctx, dualPods+1); err != nil {
		return err
	}
	err := eventually(ctx, podLimit, "one more pod", func(ctx context.Context) error {
		_, err := a.waiting(ctx, 1)
		return err
	})
	if err != nil {
		return err
	}
	waiting, err := a.waiting(ctx, 1)
	if err != nil {
		return err
	}
	why := fmt.Sprintf("pool %s: it is exhausted, %d of its %d addresses have a lease", six, dualPods, dualPods)
	event, err := a.event(ctx, waiting[0], "AddressAwaited", why)
	if err != nil {
		return err
	}
	four, err := a.leases(ctx, a.namespace)
	if err != nil {
		return err
	}
	if len(four) != dualPods {
		return fmt.Errorf("%d pods run, and %d IPv4 addresses have a lease: %s", dualPods, len(four), brief(four))
	}
	a.story.Say("One more pod waits. Its event: %q Meanwhile it holds no IPv4 address.", event.Message)
	a.story.Say("The IPv6 pool is enlarged.")
	return a.editPool(ctx, six, func(s *v1alpha1.IPPoolSpec) { s.IPs = a.ips6(2 * dualPods) })
}

// bothFamilies: each pod has one address of each family with a lease, which a pod
// on another node reaches.
func (a *act) bothFamilies(ctx context.Context, pods []*cluster.Pod) error {
	if err := a.distinctAndLeased(ctx, pods); err != nil {
		return err
	}
	owner := map[netip.Addr]string{}
	for n, p := range pods {
		if len(p.IPs) != 2 || !p.IPs[0].Is4() || !p.IPs[1].Is6() {
			return fmt.Errorf("pod %s has the addresses %v, not one of each family", p.Name, p.IPs)
		}
		if other, ok := owner[p.IPs[1]]; ok {
			return fmt.Errorf("%s is the address of pod %s and of pod %s", p.IPs[1], other, p.Name)
		}
		owner[p.IPs[1]] = p.Name
		if err := a.boundTo(ctx, p.IPs[1], p.UID); err != nil {
			return fmt.Errorf("pod %s has %s: %w", p.Name, p.IPs[1], err)
		}
		from := pods[(n+1)%len(pods)]
		for _, addr := range p.IPs {
			said, err := ask(ctx, from, addr)
			if err != nil {
				return err
			}
			if said != p.Name {
				return fmt.Errorf("pod %s asked %s of pod %s, and %q answered", from.Name, addr, p.Name, said)
			}
		}
	}
	a.story.Say("%d pods have an address of each family, each with a lease, and answer on both.", len(pods))
	return nil
}

// speaksAlone: nobody but the pod was ever heard to use its addresses.
func speaksAlone(frames []capture.Frame, pod *cluster.Pod) error {
	mac, err := pod.MAC()
	if err != nil {
		return err
	}
	for _, addr := range pod.IPs {
		if speakers := capture.Speakers(frames, addr); len(speakers) != 1 || speakers[0] != mac.String() {
			return fmt.Errorf("%v speak for %s of pod %s, whose MAC is %s", speakers, addr, pod.Name, mac)
		}
	}
	return nil
}

// exhausted counts the ADDs that found every pool full.
func exhausted(ctx context.Context, a *act) (float64, error) {
	return agents(ctx, a.Nodes(), "fenceline_cni_duration_seconds", map[string]string{"verb": "ADD", "result": "exhausted"})
}

// waiting returns the names of the pods that are not Ready, of which there must
// be so many.
func (a *act) waiting(ctx context.Context, count int) ([]string, error) {
	pods, err := a.pods(ctx)
	if err != nil {
		return nil, err
	}
	var waiting []string
	for _, p := range pods {
		if !isReady(&p) && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodPending {
			waiting = append(waiting, p.Name)
		}
	}
	if len(waiting) != count {
		return nil, fmt.Errorf("%d pods were to wait: %s", count, names(pods))
	}
	return waiting, nil
}
