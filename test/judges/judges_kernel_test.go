// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package judges_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/rivals"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// Each program sees that a pod has its address, and takes a free one, which no pod gets then. A program
// that probes an address while the agent probes it is noticed too. Scanners find each pod once.
func TestProgramsOfOthersAgree(t *testing.T) {
	s := newSegment(t)
	habets := newHabets(t)
	t.Run("arping of Habets finds duplicates", func(t *testing.T) {
		t.Parallel()
		s.duplicates(t, habets)
	})
	for i, p := range append(rivals.Programs(), habets.Program()) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			s.judge(t, p, i)
		})
	}
	for i, scanner := range []struct {
		name string
		pod  *nodes.Sandbox
		args []string
	}{
		{"arp-scan", s.four, []string{"--interface=" + namespaces.HostInterface, "--plain", "--quiet", "--retry=3", "--arpspa=10.66.0.254", s.four.Addr.String()}},
		{"ndisc6", s.six, []string{"-m", "-q", "-r", "3", "-w", "300", s.six.Addr.String(), namespaces.HostInterface}},
	} {
		t.Run(scanner.name, func(t *testing.T) {
			t.Parallel()
			host, out := s.host(100+i), []byte(nil)
			s.showIfFailed(t, host.Namespace)
			// The host's own link-local address is tentative at first.
			s.Eventually(t, scanner.name+" finds a pod", func() (err error) {
				if out, err = host.Command(s.ctx, scanner.name, scanner.args...).CombinedOutput(); err != nil {
					err = fmt.Errorf("%w: %s", err, out)
				}
				return err
			})
			// A scanner that asks twice on a busy machine prints the same answer twice.
			want := []string{scanner.pod.MAC.String()}
			got := regexp.MustCompile(`([0-9a-f]{2}:){5}[0-9a-f]{2}`).FindAllString(strings.ToLower(string(out)), -1)
			slices.Sort(got)
			got = slices.Compact(got)
			check.That(t, slices.Equal(got, want), "%s found %q in %q, want %q and nothing else", scanner.name, got, out, want)
		})
	}
}

func newHabets(t *testing.T) rivals.Habets {
	t.Helper()
	builder := check.Value(thirdparty.NewBuilder(os.Stderr))(t)
	root := check.Value(builder.Dir(t.Context(), thirdparty.Arping))(t)
	return rivals.Habets{Root: root}
}

// duplicates has arping ask for the address of a pod, before and while a foreign host has it too.
func (s *segment) duplicates(t *testing.T, habets rivals.Habets) {
	pod := s.pod("duplicate", s.pool("duplicate", netip.MustParsePrefix("10.66.0.11/24"), usual))
	asking := s.Host(netip.MustParsePrefix("10.66.0.200/24"))
	host := rivals.Host{Namespace: asking.Namespace, Interface: namespaces.HostInterface}
	find := func(want bool) {
		t.Helper()
		s.Eventually(t, fmt.Sprintf("arping -d finds duplicates of %s: %t", pod.Addr, want), func() error {
			got, err := habets.Duplicates(s.ctx, host, pod.Addr)
			if err == nil && got != want {
				err = fmt.Errorf("it finds %t", got)
			}
			return err
		})
	}
	find(false)
	for addr, want := range map[netip.Addr]string{pod.Addr: "!", netip.MustParseAddr("10.66.0.199"): "."} {
		s.Eventually(t, fmt.Sprintf("arping -D shows %q for %s", want, addr), func() error {
			dots, err := habets.Dots(s.ctx, host, addr)
			if err == nil && !strings.Contains(dots, want) {
				err = fmt.Errorf("it shows %q", dots)
			}
			return err
		})
	}
	foreign := s.Host(netip.PrefixFrom(pod.Addr, 24))
	find(true)
	// Answers to others reach no agent. An announcement does: the pod keeps its address, and the lease
	// names the other speaker.
	s.Eventually(t, "the agent notices "+foreign.MAC.String(), func() error {
		check.OK(t, habets.Announce(s.ctx, rivals.Host{Namespace: foreign.Namespace, Interface: namespaces.HostInterface}, pod.Addr))
		l := &v1alpha1.IPLease{}
		if err := s.Get(s.ctx, client.ObjectKey{Name: v1alpha1.LeaseName("", pod.Addr)}, l); err != nil {
			return err
		}
		if l.Spec.State != v1alpha1.StateBound || l.Spec.Conflict == nil || l.Spec.Conflict.MAC != foreign.MAC.String() {
			return fmt.Errorf("the lease is %+v", l.Spec)
		}
		return nil
	})
}

// usual is a usual interval of probes.
const usual = v1alpha1.DefaultProbeInterval

// segment has a node with an agent, and a pod of each family.
type segment struct {
	*nodes.Cluster
	t         *testing.T
	ctx       context.Context
	four, six *nodes.Sandbox
}

func newSegment(t *testing.T) *segment {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*nodes.Limit)
	t.Cleanup(cancel)
	s := &segment{Cluster: nodes.New(t, 1), t: t, ctx: ctx}
	s.four = s.pod("four", s.pool("four", netip.MustParsePrefix("10.66.0.10/24"), usual))
	s.six = s.pod("six", s.pool("six", netip.MustParsePrefix("fd66::10/64"), usual))
	s.showIfFailed(t, s.six.Namespace)
	// A program that takes the address before the pod's own duplicate address detection has ended would end both
	// (RFC 4862, 5.4.3).
	s.Eventually(t, "the end of the pod's own duplicate address detection", func() error {
		out, err := s.six.Command(ctx, "ip", "-6", "addr", "show", "tentative").CombinedOutput()
		if err == nil && len(out) > 0 {
			err = fmt.Errorf("still tentative: %s", out)
		}
		return err
	})
	return s
}

// pool makes a pool of one address, which is probed at an interval.
func (s *segment) pool(name string, addr netip.Prefix, interval time.Duration) *v1alpha1.IPPool {
	s.t.Helper()
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{
		Subnet: addr.Masked().String(), IPs: []string{addr.Addr().String()},
		ConflictDetection: &v1alpha1.ConflictDetection{Interval: &v1alpha1.Duration{Duration: interval}},
	}}
	check.OK(s.t, s.Create(s.ctx, pool))
	pool.Status.Agents = 1
	check.OK(s.t, s.Status().Update(s.ctx, pool))
	return pool
}

// sandbox makes an empty sandbox of a pod that wants a pool.
func (s *segment) sandbox(name string, pool *v1alpha1.IPPool) *nodes.Sandbox {
	s.t.Helper()
	wants := nodes.Wants(pool.Name)
	if netip.MustParsePrefix(pool.Spec.Subnet).Addr().Is6() {
		wants = nodes.WantsIPv6(pool.Name)
	}
	pod := check.Value(s.Nodes[0].NewPod(s.ctx, name, wants))(s.t)
	sandbox := check.Value(s.Nodes[0].NewSandbox(pod))(s.t)
	return sandbox
}

func (s *segment) pod(name string, pool *v1alpha1.IPPool) *nodes.Sandbox {
	s.t.Helper()
	sandbox := s.sandbox(name, pool)
	check.OK(s.t, sandbox.Add(s.ctx))
	return sandbox
}

// showIfFailed prints the addresses, groups and neighbours of a namespace if the test has failed.
func (s *segment) showIfFailed(t *testing.T, ns *network.Namespace) {
	t.Helper()
	t.Cleanup(func() {
		for _, object := range []string{"addr", "maddr", "neigh"} {
			if t.Failed() {
				out, err := ns.Command(context.Background(), "ip", object).CombinedOutput()
				t.Logf("ip %s in %s: %v\n%s", object, ns.Name, err, out)
			}
		}
	})
}

// host is a machine with no address of the pools.
func (s *segment) host(i int) *namespaces.Host {
	return s.Host(netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 20, byte(i), 1}), 24))
}

func (s *segment) judge(t *testing.T, p rivals.Program, i int) {
	host := s.host(i)
	pod, at := s.four, "10.66.0."
	if p.Length == 64 {
		pod, at = s.six, "fd66::"
	}
	addr := func(last int) netip.Prefix {
		return netip.PrefixFrom(netip.MustParseAddr(at+fmt.Sprint(last)), p.Length)
	}
	try := func(addr netip.Prefix) (bool, func() error) {
		t.Helper()
		has, release, err := p.Take(s.ctx, rivals.Host{Namespace: host.Namespace, Interface: namespaces.HostInterface}, addr)
		check.OK(t, err)
		return has, release
	}

	has, release := try(netip.PrefixFrom(pod.Addr, p.Length))
	check.OK(t, release())
	check.That(t, !has, "%s takes %s, which a pod has", p.Name, pod.Addr)

	free := addr(20 + i)
	has, release = try(free)
	check.That(t, has, "%s does not take %s, which is free", p.Name, free)
	if p.Keeps {
		s.passesOver(t, free, usual, host, func() bool { return true })
	}
	check.OK(t, release())

	// The agent probes for six seconds, and the program begins after the agent's first probe.
	both := addr(40 + i)
	s.passesOver(t, both, 2*time.Second, host, func() bool {
		s.Eventually(t, "the agent probes "+both.String(), func() error {
			if slices.ContainsFunc(s.Frames.Frames(), func(f capture.Frame) bool { return f.Target == both.Addr() }) {
				return nil
			}
			return errors.New("no probe yet")
		})
		has, release = try(both)
		t.Logf("%s takes an address that is probed: %t", p.Name, has)
		return has
	})
	check.OK(t, release())
}

// passesOver has a pod want an address, and wants it set aside for the host, which takes it in meet. If
// the host gave way, the pod may have it.
func (s *segment) passesOver(t *testing.T, addr netip.Prefix, interval time.Duration, host *namespaces.Host, meet func() (has bool)) {
	t.Helper()
	name := v1alpha1.LeaseName("", addr.Addr())
	part := strings.NewReplacer(".", "-", ":", "-").Replace(name)
	sandbox := s.sandbox("wants-"+part, s.pool("of-"+part, addr, interval))
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- sandbox.Add(ctx) }()
	has := meet()
	s.Eventually(t, "the agent notices "+host.MAC.String(), func() error {
		l := &v1alpha1.IPLease{}
		if err := s.Get(s.ctx, client.ObjectKey{Name: name}, l); err != nil {
			select {
			case failed := <-answer:
				answer <- failed
				return errors.Join(err, failed)
			default:
				return err
			}
		}
		if !has && l.Spec.State == v1alpha1.StateBound {
			return nil
		}
		if l.Spec.Reason != v1alpha1.ReasonConflict || l.Spec.Conflict == nil || l.Spec.Conflict.MAC != host.MAC.String() {
			return fmt.Errorf("the lease is %+v", l.Spec)
		}
		return nil
	})
	// The ADD waits for another address, in vain.
	cancel()
	if err := <-answer; err == nil && has {
		t.Errorf("a pod got %s beside %s", addr, host.MAC)
	}
	check.OK(t, sandbox.End(s.ctx))
	check.OK(t, s.ForgetPod(s.ctx, sandbox.Pod))
}
