// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

const (
	// leakedAtOnce is the number of leases whose pods have ended without a DEL, leakers the number of
	// leases that are written at the same time.
	leakedAtOnce, leakers = 2000, 32
	// alive pods keep their addresses. zombies run on and lose theirs. late pods find the pool full.
	alive, zombies, late = 8, 8, 16
)

// 2 000 leases are due at once and fill their pool. All are freed, even those of pods that still
// speak. The living pods keep theirs, and each waiting pod gets one.
func TestTwoThousandLeakedLeasesAreGivenBack(t *testing.T) {
	// Without t.Parallel: it keeps both processors busy.
	ctx, c := within(t, 4*nodes.Limit), nodes.New(t, 2)
	first, last := netip.MustParseAddr("10.64.0.2"), netip.MustParseAddr("10.64.7.225")
	pool := c.Pool("v4", "10.64.0.0/20", fmt.Sprintf("%s-%s", first, last))
	pool.Spec.Warm = ptr.To[int64](0) // in the end the leases are those of the living
	change(ctx, t, c, pool)
	l := &leak{Cluster: c, host: c.Host(netip.MustParsePrefix("10.64.0.1/20"))}
	begin(ctx, t, c, crowd(t, c, "alive", alive))
	l.zombies = begin(ctx, t, c, crowd(t, c, "zombie", zombies))
	check.OK(t, l.fill(ctx, first, last))
	hush := l.speak(ctx, t)
	each(t, l.zombies, func(z *nodes.Sandbox) error { return z.Outlive(ctx) })
	waiting := crowd(t, c, "late", late)

	c.StartController()
	due := time.Now()
	begin(ctx, t, c, waiting)
	t.Logf("%d pods that found the pool full have addresses after %s", late, time.Since(due).Round(time.Millisecond))
	c.Eventually(t, "no lease is left but those of the living", func() error { return l.onlyLiving(ctx) })
	free := time.Now()
	t.Logf("%d addresses were free after %s", leakedAtOnce+zombies, free.Sub(due).Round(time.Millisecond))

	l.areMute(ctx, t, free)
	hush()
	each(t, l.zombies, func(z *nodes.Sandbox) error { return z.End(ctx) })
	c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
	each(t, c.Living(), func(s *nodes.Sandbox) error {
		return l.host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", s.Addr.String()).Run()
	})
	check.OK(t, c.SpeakersAreHolders())
	each(t, c.Living(), func(s *nodes.Sandbox) error { return s.Finish(ctx) })
	c.Eventually(t, "all is given back", func() error { return c.LeasesAreLiving(ctx) })
}

// leak is a pool full of leases that no DEL ends.
type leak struct {
	*nodes.Cluster
	host    *namespaces.Host
	zombies []*nodes.Sandbox
}

// fill writes a lease for each address without one. Its pod has never existed. The lease looks as a
// node would have left it, every second one in an earlier boot.
func (l *leak) fill(ctx context.Context, first, last netip.Addr) error {
	there := &v1alpha1.IPLeaseList{}
	if err := l.List(ctx, there); err != nil {
		return err
	}
	taken := map[string]bool{}
	for _, lease := range there.Items {
		taken[lease.Spec.Address] = true
	}
	var g errgroup.Group
	g.SetLimit(leakers)
	count := 0
	for addr := first; !last.Less(addr); addr = addr.Next() {
		if !taken[addr.String()] {
			lease := leaked(&there.Items[count/2%len(there.Items)], addr, count)
			count++
			g.Go(func() error { return l.Create(ctx, lease) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if count != leakedAtOnce {
		return fmt.Errorf("%d leases were written, want %d", count, leakedAtOnce)
	}
	return nil
}

// leaked is the lease of another address and pod of the same node.
func leaked(like *v1alpha1.IPLease, addr netip.Addr, number int) *v1alpha1.IPLease {
	spec := like.Spec.DeepCopy()
	spec.Address, spec.Since = addr.String(), metav1.Now()
	h := spec.Holder
	h.Pod, h.PodUID = fmt.Sprintf("leaked-%d", number), string(uuid.NewUUID())
	h.ContainerID, h.MAC = h.Pod, fmt.Sprintf("02:00:00:01:%02x:%02x", number>>8, number&0xff)
	if number%2 == 0 {
		spec.Session += "-before"
	}
	return &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", addr)}, Spec: *spec}
}

// speak makes all zombies ping from their addresses until hush is called.
func (l *leak) speak(ctx context.Context, t *testing.T) (hush func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var pings sync.WaitGroup
	for _, z := range l.zombies {
		pings.Go(func() { _ = l.ping(ctx, z, "-i", "0.05").Run() }) // until it is killed
	}
	hush = func() { cancel(); pings.Wait() }
	t.Cleanup(hush)
	return hush
}

func (l *leak) ping(ctx context.Context, z *nodes.Sandbox, how ...string) *exec.Cmd {
	return z.Command(ctx, "ping", append([]string{"-q", l.host.Addr.String()}, how...)...)
}

// onlyLiving counts the leases.
func (l *leak) onlyLiving(ctx context.Context) error {
	want := len(l.Living())
	leases := &v1alpha1.IPLeaseList{}
	if err := l.List(ctx, leases, client.Limit(int64(want+1))); err != nil {
		return err
	}
	if len(leases.Items) == want {
		return nil
	}
	odd := leases.Items[0].Spec
	return fmt.Errorf("%d leases or more for %d living pods; %s is %s %s: %s", len(leases.Items), want, odd.Address, odd.State, odd.Reason, odd.Message)
}

// areMute lets the zombies try once more, and judges that no frame of theirs came after their
// addresses were free.
func (l *leak) areMute(ctx context.Context, t *testing.T, free time.Time) {
	t.Helper()
	each(t, l.zombies, func(z *nodes.Sandbox) error {
		if l.ping(ctx, z, "-c", "2", "-i", "0.1", "-W", "1").Run() == nil {
			return fmt.Errorf("%s is answered, whose address was taken", z.ContainerID)
		}
		return nil
	})
	frames := l.Frames.Frames()
	for _, z := range l.zombies {
		spoken := capture.From(capture.SpokenFor(frames, z.Addr), z.MAC)
		check.That(t, len(spoken) != 0, "%s was silent all the time, so its silence proves nothing", z.ContainerID)
		for _, f := range capture.After(spoken, free) {
			t.Errorf("%s was free, and its last holder spoke: %s", z.Addr, f)
		}
	}
}

// atOnce is the number of calls of the plugin that run at the same time.
const atOnce = 8

// crowd makes pods without sandboxes. The nodes take turns.
func crowd(t *testing.T, c *nodes.Cluster, name string, size int) []*corev1.Pod {
	t.Helper()
	pods := make([]*corev1.Pod, size)
	for i := range pods {
		pods[i] = check.Value(c.Nodes[i%len(c.Nodes)].NewPod(t.Context(), fmt.Sprintf("%s-%d", name, i), nil))(t)
	}
	return pods
}

// begin gives each pod a sandbox with an address.
func begin(ctx context.Context, t *testing.T, c *nodes.Cluster, pods []*corev1.Pod) []*nodes.Sandbox {
	t.Helper()
	sandboxes := make([]*nodes.Sandbox, len(pods))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, pod := range pods {
		g.Go(func() (err error) {
			sandboxes[i], err = c.NodeOf(pod).Begin(ctx, pod)
			return err
		})
	}
	check.OK(t, g.Wait())
	return sandboxes
}

// pings pings sandboxes every 50 ms. The result stops that, and returns how many pings had no answer.
func pings(ctx context.Context, t *testing.T, host *namespaces.Host, of []*nodes.Sandbox) (stop func() int) {
	t.Helper()
	var all []*exec.Cmd
	outputs := make([]bytes.Buffer, len(of))
	for i, s := range of {
		cmd := host.Command(ctx, "ping", "-q", "-i", "0.05", s.Addr.String())
		cmd.Stdout = &outputs[i]
		check.OK(t, cmd.Start())
		all = append(all, cmd)
	}
	return func() (lost int) {
		for i, cmd := range all {
			check.OK(t, cmd.Process.Signal(os.Interrupt))
			_ = cmd.Wait() // 1 if a ping had no answer
			var sent, received int
			_, counts, _ := strings.Cut(outputs[i].String(), "statistics ---\n")
			check.Value(fmt.Sscanf(counts, "%d packets transmitted, %d received", &sent, &received))(t)
			t.Logf("%d of %d pings of %s were answered", received, sent, of[i].Addr)
			lost += max(0, sent-received-1) // the last one may be under way
		}
		return lost
	}
}

// each calls do for all sandboxes, at most atOnce at the same time.
func each(t *testing.T, sandboxes []*nodes.Sandbox, do func(*nodes.Sandbox) error) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, s := range sandboxes {
		g.Go(func() error { return do(s) })
	}
	check.OK(t, g.Wait())
}

// On a node with 110 pods, 50 of them end while the API server is away. The agent is killed after half of
// them, and starts again after all. No DEL fails, the node stays Ready for the kubelet, and pods that stay lose
// no ping. Once the server is back, the leases are those of the pods that stay.
func TestPodsThatEndWhileTheAPIServerIsAwayLeakNoLease(t *testing.T) {
	const size, stay = 50, 60
	ctx, c := cluster(t, 4*nodes.Limit, 1)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.121")
	n := c.Nodes[0]
	sandboxes := begin(ctx, t, c, crowd(t, c, "pod", size+stay))
	check.OK(t, c.LeasesAreLiving(ctx))
	sandboxes, staying := sandboxes[:size], sandboxes[size:]
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	lost := pings(ctx, t, host, staying[:4])

	check.OK(t, c.Server.StopAPIServer(ctx))
	away := time.Now()
	end := func(s *nodes.Sandbox) error {
		if err := s.Del(ctx); err != nil {
			return err
		}
		return s.Remove()
	}
	each(t, sandboxes[:size/2], end)
	check.OK(t, n.KillAgent())
	each(t, sandboxes[size/2:], end)
	check.OK(t, n.AwaitAgent(ctx)) // the kubelet asks for STATUS too
	t.Logf("%d DELs were answered within %s", size, time.Since(away).Round(time.Millisecond))
	// Each DEL is on disk: in the agent's journal or in the plugin's spool.
	check.That(t, n.Leftovers(nil) != nil, "nobody remembers the DELs")
	check.OK(t, c.Server.StartAPIServer(ctx))
	back := time.Now()
	c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
	t.Logf("%d leases were gone %s after the API server's return", size, time.Since(back).Round(time.Millisecond))
	check.Equal(t, lost(), 0, "pings that were lost:")
	// A server that has lost its data would have no lease either.
	check.OK(t, c.Get(ctx, client.ObjectKey{Name: nodes.Shop}, &corev1.Namespace{}))
	check.OK(t, n.AwaitAgent(ctx))
	check.OK(t, c.SpeakersAreHolders())
}
