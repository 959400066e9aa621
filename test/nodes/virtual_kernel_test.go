// SPDX-License-Identifier: Apache-2.0

//go:build kernel && !guest

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/process"
)

const vip = "10.66.0.5"

// keepalived is a program of Debian in a pod. extra are lines of its instance of VRRP.
func keepalived(t *testing.T, s *nodes.Sandbox, priority int, extra string) process.Process {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	check.OK(t, os.WriteFile(file("conf"), fmt.Appendf(nil, `
global_defs { vrrp_version 3 }
vrrp_instance one {
  state BACKUP
  interface %s
  virtual_router_id 51
  priority %d
  advert_int 0.3
  %s
  virtual_ipaddress { %s/24 }
}
`, namespaces.PodInterface, priority, extra, vip), 0o600))
	cmd := s.Command(context.Background(), "keepalived", "-P", "-n", "-l", "-D", "-f", file("conf"), "-p", file("pid"), "-r", file("vrrp"))
	p := check.Value(process.Start("keepalived in "+s.Pod.Name, cmd, file("log")))(t)
	t.Cleanup(func() {
		check.OK(t, p.Stop(context.Background(), 10*time.Second))
		if t.Failed() {
			log, _ := os.ReadFile(file("log"))
			t.Logf("keepalived in %s:\n%s", s.Pod.Name, log)
		}
	})
	return p
}

// Two pods of keepalived on two nodes share an address: by their own MACs, or by the MAC of VRRP. A pod that
// takes over announces it, in a split network both do, and once it is healed the first one again. A third pod
// and a foreign host are told from them.
func TestTheSpeakerOfAVirtualAddressIsOnRecord(t *testing.T) {
	for name, vmac := range map[string]string{"by their own MACs": "", "by the MAC of VRRP": "use_vmac vrrp51\n  vmac_xmit_base"} {
		t.Run(name, func(t *testing.T) {
			ctx, c := cluster(t, 2*nodes.Limit, 2)
			c.StartController()
			c.Pool("v4", "10.66.0.0/24", "10.66.0.20-10.66.0.40")
			check.OK(t, c.Create(ctx, &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "vip"}, Spec: v1alpha1.ReservedIPSpec{
				IPs: []string{vip}, Virtual: &v1alpha1.ReservedVirtual{Namespace: nodes.Shop, MatchLabels: map[string]string{"app": "ha"}, VRRPID: ptr.To[int64](51)},
			}}))
			ha := func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "ha"} }
			a, b := started(ctx, t, c.Nodes[0], "a", ha), started(ctx, t, c.Nodes[1], "b", ha)
			third := started(ctx, t, c.Nodes[1], "third", nil)
			began := time.Now()
			speaks := func(pod, from string, moves int) {
				t.Helper()
				c.Eventually(t, pod+" is on record", func() error {
					r := &v1alpha1.ReservedIP{}
					if err := c.Get(ctx, client.ObjectKey{Name: "vip"}, r); err != nil || len(r.Status.Speakers) != 1 || r.Status.Speakers[0].Pod != pod {
						return fmt.Errorf("the speakers are %+v: %w", r.Status.Speakers, err)
					}
					n, err := countEvents(ctx, c, "ReservedIP", "vip", "SpeakerMoved", vip+" moved from "+from+" to "+pod)
					if err == nil && n != moves {
						err = fmt.Errorf("%d events", n)
					}
					return err
				})
				t.Logf("%s after %s", pod, time.Since(began).Round(10*time.Millisecond))
				began = time.Now()
			}
			first := keepalived(t, a, 101, vmac)
			speaks("a", "nobody", 1)
			keepalived(t, b, 100, vmac)
			check.OK(t, first.Stop(ctx, nodes.Limit))
			speaks("b", "a", 1)
			keepalived(t, a, 101, vmac)
			speaks("a", "b", 1)
			check.OK(t, c.Isolate(true))
			speaks("b", "a", 2)
			check.OK(t, c.Isolate(false))
			speaks("a", "b", 2)

			addr := netip.MustParseAddr(vip)
			mine := third.MAC
			check.OK(t, third.AddAddr(namespaces.PodInterface, netip.PrefixFrom(addr, 32)))
			check.OK(t, third.Command(ctx, "arping", "-U", "-c", "2", "-w", "3", "-I", namespaces.PodInterface, vip).Run())
			c.Eventually(t, "the frames of the third pod are counted", func() error {
				n, err := c.Nodes[1].Sum(ctx, "fenceline_source_guard_frames_total", map[string]string{"pod": "third", "reason": "unleased"})
				if err == nil && n == 0 {
					err = errors.New("none")
				}
				return err
			})
			check.None(t, capture.SpokenFor(capture.From(c.Frames.Frames(), mine), addr), "the third pod has sent")
			conflicts := func() (int, error) { return countEvents(ctx, c, "ReservedIP", "vip", "AddressConflict", vip) }
			check.Equal(t, check.Value(conflicts())(t), 0, "conflicts with pods of the record:")
			host := c.Host(netip.MustParsePrefix(vip + "/24"))
			check.OK(t, host.Command(ctx, "arping", "-U", "-c", "1", "-w", "2", "-I", namespaces.HostInterface, vip).Run())
			c.Eventually(t, "a foreign host is a conflict", func() error {
				if n, err := conflicts(); err != nil || n == 0 {
					return fmt.Errorf("%s events: %w", strconv.Itoa(n), err)
				}
				return nil
			})
		})
	}
}

// A machine and a stranger announce an address each, of two that are the machine's. The pod is there so that its node
// listens.
func TestAnotherHostOnTheAddressOfAMachineIsAConflict(t *testing.T) {
	ctx, c := cluster(t, 3*nodes.Limit, 2)
	c.StartController()
	c.Pool("v4", "10.66.0.0/24", "10.66.0.4-10.66.0.40")
	machine, stranger := c.Host(netip.MustParsePrefix("10.66.0.6/24")), c.Host(netip.MustParsePrefix(vip+"/24"))
	r := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "machine"}, Spec: v1alpha1.ReservedIPSpec{
		IPs: []string{vip, machine.Addr.String()}, For: &v1alpha1.ReservedFor{MAC: machine.MAC.String()},
	}}
	check.OK(t, c.Create(ctx, r))
	for i, n := range c.Nodes {
		started(ctx, t, n, fmt.Sprint("web-", i), nil)
	}
	began := time.Now()
	for time.Since(began) < nodes.Limit {
		for _, h := range []*namespaces.Host{machine, stranger} {
			check.OK(t, h.Command(ctx, "arping", "-U", "-c", "1", "-w", "2", "-I", namespaces.HostInterface, h.Addr.String()).Run())
		}
		check.OK(t, c.Get(ctx, client.ObjectKeyFromObject(r), r))
		if meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionConflict) {
			break
		}
	}
	t.Logf("the conflict is on record %s after the first announcement: %+v", time.Since(began).Round(time.Second), r.Status.Speakers)
	check.Must(t, len(r.Status.Speakers) == 1, "the record has %+v", r.Status)
	is := r.Status.Speakers[0]
	check.That(t, is.Address == vip && is.MAC == stranger.MAC.String() && is.Pod == "", "the record names %+v", is)
	c.Eventually(t, "one event", func() error {
		n, err := countEvents(ctx, c, "ReservedIP", "machine", "ConflictTrue", stranger.MAC.String())
		if err == nil && n != 1 {
			err = fmt.Errorf("%d events", n)
		}
		return err
	})
}
