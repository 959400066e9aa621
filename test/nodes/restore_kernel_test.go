// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

const (
	// allocated is the number of addresses that are allocated after the backup.
	allocated = 100
	// settled is the number of addresses from before it, ended the number of those that end after it.
	settled, ended = 10, 4
	// strangers is the number of pods that ask for addresses while leases are missing.
	strangers = 6
)

// etcd is restored from a backup taken before 100 allocations. Every living pod keeps its address,
// and nobody else gets it, even while its lease is missing. The addresses of pods that ended after
// the backup are freed. If the flags of the restore were left out, leases, pool and events say so
// until it is repaired.
func TestABackupOfEtcdFromBeforeAHundredAllocationsIsRestored(t *testing.T) {
	t.Parallel()
	c := nodes.New(t, 2)
	r := &restore{Cluster: c, pool: c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.140"), host: c.Host(netip.MustParsePrefix("10.66.0.1/24"))}
	c.StartController()
	flags := []string{"--bump-revision", "1000000000", "--mark-compacted"}
	t.Run("with the flags of the manual", func(t *testing.T) {
		r.begin(t)
		r.play(r.backup(), flags...)
		r.tells(false)
		check.OK(t, r.later[0].Outlive(r.ctx))
		r.wellAgain("a pod that was deleted by force has lost its address")
		r.end()
	})
	if t.Failed() {
		return
	}
	t.Run("without", func(t *testing.T) {
		r.begin(t)
		// The bump makes the backup look as if very many writes came after it.
		file := r.backup()
		check.OK(t, c.Server.Restore(r.ctx, file, "--bump-revision", "500000000", "--mark-compacted"))
		r.wellAgain("the leases are those of the living")
		r.play(file)
		r.tells(true)
		// A holder that was bound before the backup can be fenced. A later one cannot.
		behind := r.later[0]
		check.OK(t, c.ForgetPod(r.ctx, behind.Pod))
		check.OK(t, r.earlier[0].Outlive(r.ctx))
		r.wellAgain("a pod of before the backup that was deleted by force has lost its address")
		r.tells(true)

		check.OK(t, c.Server.Restore(r.ctx, r.backup(), flags...))
		behind.Abandon()
		r.wellAgain("the store has come as far again, and the pod that was deleted by force has lost its address")
		r.tells(false)
		r.end()
	})
}

// restore plays the life of a cluster around a restored backup.
type restore struct {
	*nodes.Cluster
	t              *testing.T
	ctx            context.Context
	pool           *v1alpha1.IPPool
	host           *namespaces.Host
	rounds         int
	pods           []*corev1.Pod // that get their addresses after the backup
	earlier, later []*nodes.Sandbox
}

// begin starts pods, which have addresses before the backup.
func (r *restore) begin(t *testing.T) {
	ctx := within(t, 6*nodes.Limit)
	r.t, r.ctx = t, ctx
	r.rounds++
	r.earlier = begin(ctx, t, r.Cluster, crowd(t, r.Cluster, fmt.Sprintf("earlier-%d", r.rounds), settled))
	r.pods = crowd(t, r.Cluster, fmt.Sprintf("later-%d", r.rounds), allocated)
}

func (r *restore) backup() string {
	r.t.Helper()
	return check.Value(r.Server.Backup(r.ctx))(r.t)
}

// play goes on for a time after the backup, and then restores it.
func (r *restore) play(file string, flags ...string) {
	t, ctx := r.t, r.ctx
	r.later = begin(ctx, t, r.Cluster, r.pods)
	// The lease of the second one, on the node without an agent, is missing for a time.
	recorded, unrecorded := pinged(ctx, t, r.host, r.earlier[ended].Addr), pinged(ctx, t, r.host, r.later[2].Addr)
	gone := r.earlier[:ended]
	each(t, gone, func(s *nodes.Sandbox) error { return s.End(ctx) })
	r.earlier = r.earlier[ended:]
	check.OK(t, r.LeasesAreLiving(ctx, v1alpha1.StateWarm))

	// The leases of this node's pods are missing until its agent is back.
	silent, other := r.Nodes[0], r.Nodes[1]
	check.OK(t, silent.KillAgent())
	check.OK(t, r.Server.Restore(ctx, file, flags...))
	stop := r.Supervise(other)
	for i := range strangers {
		r.later = append(r.later, started(ctx, t, other, fmt.Sprintf("stranger-%d-%d", r.rounds, i), nil))
	}
	stop()
	check.That(t, r.missing(silent) != 0, "no lease was missing while strangers asked for addresses")
	check.OK(t, silent.AwaitAgent(ctx))
	for _, s := range gone {
		check.OK(t, r.ForgetPod(ctx, s.Pod)) // which the backup knows as Running
	}
	r.wellAgain("the leases are those of the living")
	each(t, r.Living(), func(s *nodes.Sandbox) error {
		return r.host.Command(ctx, "ping", "-q", "-i", "0.2", "-c", "1", "-w", "30", s.Addr.String()).Run()
	})
	loses(t, r.Cluster, recorded)
	loses(t, r.Cluster, unrecorded)
	r.judge()
}

// missing counts the living pods of a node without a lease.
func (r *restore) missing(n *nodes.Node) int {
	missing := 0
	for _, s := range r.Living() {
		_, err := r.Lease(r.ctx, s.Addr)
		check.OK(r.t, client.IgnoreNotFound(err))
		if s.Node() == n && err != nil {
			missing++
		}
	}
	return missing
}

// judge judges that only the pod has spoken for each living pod's address.
func (r *restore) judge() {
	r.t.Helper()
	frames := r.Frames.Frames()
	for _, s := range r.Living() {
		for _, f := range capture.SpokenFor(capture.After(frames, s.Since), s.Addr) {
			check.That(r.t, f.Source.String() == s.MAC.String(), "%s, which is that of %s, was spoken for by %s", s.Addr, s.MAC, f)
		}
	}
}

// wellAgain waits until the leases are those of the living, and starts ended programs again.
func (r *restore) wellAgain(what string) {
	r.t.Helper()
	since := time.Now()
	r.Eventually(r.t, what, func() error { return errors.Join(r.Revive(), r.LeasesAreLiving(r.ctx, v1alpha1.StateWarm)) })
	r.t.Logf("%s: %s", what, time.Since(since).Round(time.Millisecond))
}

// tells waits until leases, pool and events agree whether the store went back.
func (r *restore) tells(wentBack bool) {
	r.t.Helper()
	r.Eventually(r.t, fmt.Sprintf("the store went back: %v", wentBack), func() error {
		leases := &v1alpha1.IPLeaseList{}
		if err := r.List(r.ctx, leases); err != nil {
			return err
		}
		for _, l := range leases.Items {
			later := slices.ContainsFunc(r.later[:allocated], func(s *nodes.Sandbox) bool { return s.Addr.String() == l.Name })
			if later && (l.Spec.Reason == v1alpha1.ReasonStoreWentBack) != wentBack {
				return fmt.Errorf("lease %s says %q: %s", l.Name, l.Spec.Reason, l.Spec.Message)
			}
		}
		if err := r.Get(r.ctx, client.ObjectKeyFromObject(r.pool), r.pool); err != nil {
			return err
		}
		if got := meta.IsStatusConditionTrue(r.pool.Status.Conditions, v1alpha1.ConditionStoreWentBack); got != wentBack {
			return fmt.Errorf("the pool says %v", got)
		}
		var errs []error
		for _, n := range r.Nodes {
			if wentBack {
				errs = append(errs, eventOf(r.ctx, r.Cluster, "Node", n.Name, string(v1alpha1.ReasonStoreWentBack), ""))
			}
		}
		return errors.Join(errs...)
	})
}

// end ends all pods.
func (r *restore) end() {
	each(r.t, r.Living(), func(s *nodes.Sandbox) error { return s.Finish(r.ctx) })
	r.wellAgain("all is given back")
}

const (
	// etcdKills is how often etcd is killed.
	etcdKills = 3
	// loaders are the pods that come and go at the same time.
	loaders = 6
)

// etcd is killed and starts again while pods come and go. No ADD succeeds without its lease, and no lease
// is left.
func TestEtcdIsKilledWhilePodsComeAndGo(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 2)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.13")
	c.StartController()
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	stays := begin(ctx, t, c, crowd(t, c, "stays", len(c.Nodes)))

	var lives atomic.Int64
	var stop atomic.Bool
	var g errgroup.Group
	for loader := range loaders {
		g.Go(func() error {
			for n := 0; !stop.Load(); n++ {
				if err := live(ctx, c, fmt.Sprintf("pod-%d-%d", loader, n), c.Nodes[loader%len(c.Nodes)]); err != nil {
					return err
				}
				lives.Add(1)
			}
			return nil
		})
	}
	goesOn := func() {
		t.Helper()
		before := lives.Load()
		// Each pod that was under way has ended, and each loader has begun another one.
		c.Eventually(t, "pods come and go", func() error {
			if done := lives.Load() - before; done < 2*loaders {
				return fmt.Errorf("%d pods have come and gone", done)
			}
			return nil
		})
	}
	goesOn()
	for range etcdKills {
		check.OK(t, c.Server.RestartEtcd(ctx))
		back := time.Now()
		goesOn()
		t.Logf("%d pods came and went within %s after etcd's return", 2*loaders, time.Since(back).Round(time.Millisecond))
	}
	stop.Store(true)
	check.OK(t, g.Wait())
	c.Eventually(t, "the leases are those of the living", func() error { return errors.Join(c.Revive(), c.LeasesAreLiving(ctx)) })
	each(t, stays, func(s *nodes.Sandbox) error {
		return host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", s.Addr.String()).Run()
	})
	check.OK(t, c.SpeakersAreHolders())
}

// live is the life of one pod. A call of the API server that fails is repeated.
func live(ctx context.Context, c *nodes.Cluster, name string, n *nodes.Node) error {
	again := func(do func() error) error {
		return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) { return do() == nil, nil })
	}
	var pod *corev1.Pod
	tries := 0
	err := again(func() (err error) {
		// The answer to a create may have been lost, so each try has its own name.
		tries++
		pod, err = n.NewPod(ctx, fmt.Sprintf("%s-%d", name, tries), nil)
		return err
	})
	if err != nil {
		return err
	}
	s, err := n.Begin(ctx, pod)
	if err != nil {
		return err
	}
	if err := s.End(ctx); err != nil {
		return err
	}
	return again(func() error { return c.ForgetPod(ctx, pod) })
}

// A copy of the cluster is restored from a backup on the same VLAN, for example to rehearse a
// disaster. It has the same networks and the same claim key. To the copy, the machines of the
// original look lost, so it claims all their addresses.
func TestACopyOfTheClusterDoesNotTouchTheOriginal(t *testing.T) {
	for name, c := range map[string]struct {
		bump   string
		fenced bool
	}{
		"with the bump of the manual, nothing is fenced":           {"1000000000", false},
		"with a small bump, what it fenced speaks again by itself": {"1000000", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copyBeside(t, c.bump, c.fenced)
		})
	}
}

func copyBeside(t *testing.T, bump string, fenced bool) {
	ctx := within(t, 2*nodes.Limit)
	start := time.Now()
	c := nodes.New(t, 3)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.30")
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	c.StartController()
	var pods []*nodes.Sandbox
	for i, n := range c.Nodes[:2] {
		for j := range 3 {
			pods = append(pods, started(ctx, t, n, fmt.Sprintf("web-%d-%d", i, j), nil))
		}
	}
	reach(ctx, t, host, pods)
	file := check.Value(c.Server.Backup(ctx))(t)
	copied := c.Copy(ctx, file, "--bump-revision", bump, "--mark-compacted")
	began := time.Now()
	copied.StartController()

	t.Logf("the copy runs after %s", time.Since(start))
	copied.Eventually(t, "the copy has claimed every address of the original", func() error {
		frames := capture.After(c.Frames.Frames(), began)
		for _, s := range pods {
			l, err := copied.Lease(ctx, s.Addr)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			if err == nil && l.Spec.State == v1alpha1.StateBound {
				return fmt.Errorf("lease %s is still Bound in the copy", l.Name)
			}
			if !slices.ContainsFunc(frames, func(f capture.Frame) bool {
				return f.Kind == "claim" && f.Port == "ul-n3" && f.Target == s.Addr
			}) {
				return fmt.Errorf("the copy has sent no claim for %s", s.Addr)
			}
			switch {
			case fenced:
			case err != nil:
				return fmt.Errorf("the copy has freed %s: %w", s.Addr, err)
			case !strings.Contains(l.Spec.Message, "answers"):
				return fmt.Errorf("the lease of %s in the copy says %q", s.Addr, l.Spec.Message)
			}
		}
		return nil
	})
	t.Logf("judged after %s", time.Since(start))
	if fenced {
		c.Eventually(t, "the original says that the fences have ended", func() error { return tellsOf(ctx, c, "FenceEnded", pods) })
	}
	reach(ctx, t, host, pods)
	check.That(t, tellsOf(ctx, c, "AddressLost", pods[:1]) != nil, "a pod of the original lost its address")
	if !fenced {
		check.That(t, tellsOf(ctx, c, "FenceEnded", pods[:1]) != nil, "a pod of the original was fenced")
		check.OK(t, c.SpeakersAreHolders())
	}

	// Both clusters go on, and no address has two speakers.
	for i, who := range []*nodes.Cluster{c, copied} {
		s := started(ctx, t, who.Nodes[0], fmt.Sprintf("next-%d", i), nil)
		if slices.ContainsFunc(pods, func(other *nodes.Sandbox) bool { return other.Addr == s.Addr }) {
			t.Errorf("the new pod %s got %s, which another pod has", s.Pod.Name, s.Addr)
		}
		pods = append(pods, s)
	}
	reach(ctx, t, host, pods)
}

// reach pings pods from a host.
func reach(ctx context.Context, t *testing.T, host *namespaces.Host, pods []*nodes.Sandbox) {
	t.Helper()
	each(t, pods, func(s *nodes.Sandbox) error {
		return host.Command(ctx, "ping", "-q", "-c", "3", "-i", "0.2", "-w", "30", s.Addr.String()).Run()
	})
}

// tellsOf returns an error that names the sandboxes whose pods have no event with the reason.
func tellsOf(ctx context.Context, c *nodes.Cluster, reason string, of []*nodes.Sandbox) error {
	var errs []error
	for _, s := range of {
		errs = append(errs, eventOf(ctx, c, "Pod", s.Pod.Name, reason, ""))
	}
	return errors.Join(errs...)
}
