// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/images"
)

// playUninstall: helm uninstall says why it does nothing while a pod has an
// address. By force it takes Fenceline off every node, and the pod runs on.
// Afterwards Fenceline is installed again. The pod's connections and pings notice nothing.
func playUninstall(ctx context.Context, a *act) error {
	check(a.makePool(ctx, len(a.Nodes()), a.behindRouter))
	node := value(a.victim(ctx))
	// The uninstallation removes the only network configuration of the node. If the node is not Ready
	// before the others, Kubernetes evicts the pods that do not tolerate that.
	pod := value(a.runPod(ctx, "web", node, patient))
	used := value(a.use(ctx, pod))
	check(a.isRefusedToUninstall(ctx))
	// It ends before the pool and the pod, which need it.
	installed := false
	a.after("install Fenceline again", func(ctx context.Context) error {
		if installed {
			return nil
		}
		return a.installAgain(ctx)
	})
	a.uninstallByForce(ctx)
	for _, n := range a.Nodes() {
		check(isWithoutFenceline(ctx, n))
	}
	leases := value(a.leases(ctx, a.namespace))
	if len(leases) > 0 {
		return fmt.Errorf("%d leases are left", len(leases))
	}
	pool := &v1alpha1.IPPool{}
	check(a.api.Get(ctx, client.ObjectKey{Name: a.namespace}, pool))
	if len(pool.Finalizers) > 0 {
		return fmt.Errorf("the pool waits for %v", pool.Finalizers)
	}
	value(a.running(ctx, 1, everyPod))
	a.story.Say("No lease, no finalizer, no network configuration and nothing pinned is left. Pod %s still has %s.", pod.Name, addressOf(pod))
	check(used.noticesNothing(ctx, "after the uninstallation"))
	check(a.installAgain(ctx))
	installed = true
	check(used.noticesNothing(ctx, "after the installation"))
	a.story.Say("Fenceline is installed again. Of %d connections to pod %s none broke, and of %d pings none was lost.",
		used.load.count, pod.Name, len(used.pings()))
	return nil
}

func (a *act) installAgain(ctx context.Context) error {
	return errors.Join(a.InstallFenceline(ctx, images.DefaultVersion), a.WaitReady(ctx))
}

// use is the use of a pod by its node, over the host link, and by the outside host, over the underlay.
type use struct {
	pod      *cluster.Pod
	load     *steady
	own, far *pinger
	since    time.Time
}

// use opens connections to a pod, and pings it.
func (a *act) use(ctx context.Context, pod *cluster.Pod) (*use, error) {
	outside, _, err := a.Outside()
	if err != nil {
		return nil, err
	}
	u := &use{pod: pod, load: a.hold()}
	to := netip.AddrPortFrom(addressOf(pod), appPort)
	for _, from := range []place{placeOfNode(pod.Node), {"the outside host", outside.Namespace}} {
		if err := u.load.open(ctx, 5, from, to); err != nil {
			return nil, err
		}
	}
	if u.own, err = a.ping(&cluster.Host{Namespace: pod.Node.Namespace()}, to.Addr()); err != nil {
		return nil, err
	}
	if u.far, err = a.ping(outside, to.Addr()); err != nil {
		return nil, err
	}
	u.since = time.Now()
	return u, nil
}

// noticesNothing returns an error if a connection is broken, if a ping was lost, or if the node does not
// use the host link any more: frames find another way through the router.
func (u *use) noticesNothing(ctx context.Context, when string) error {
	if err := u.load.unbroken(ctx); err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	for _, p := range []*pinger{u.own, u.far} {
		if err := p.waitFor(ctx, 20, time.Now()); err != nil {
			return fmt.Errorf("%s: %w", when, err)
		}
	}
	route := value(u.pod.Node.Exec(ctx, "ip", "route", "get", addressOf(u.pod).String()))
	if !strings.Contains(route, " dev "+hostlink.NodePrefix) {
		return fmt.Errorf("%s: the node does not reach pod %s by a host link: %s", when, u.pod.Name, route)
	}
	if lost := lostSince(u.pings(), u.since, time.Now()); lost > 0 {
		return fmt.Errorf("%s: %d pings were lost", when, lost)
	}
	return nil
}

func (u *use) pings() []ping { return slices.Concat(u.own.all(), u.far.all()) }

// isRefusedToUninstall expects that helm does nothing, and says why.
func (a *act) isRefusedToUninstall(ctx context.Context) error {
	output, err := a.Helm(ctx, "uninstall", "fenceline", "--namespace", cluster.FencelineNamespace)
	if err == nil {
		return fmt.Errorf("helm uninstalled Fenceline while a lease existed: %s", output)
	}
	for _, words := range []string{"leases exist: 1 Bound (delete their pods)", "fenceline.io/force-delete="} {
		if !strings.Contains(output, words) {
			return fmt.Errorf("helm does not say %q: %s", words, output)
		}
	}
	a.story.Show("helm uninstall fenceline", output)
	for _, n := range a.Nodes() {
		value(a.agentPod(ctx, n))
	}
	return nil
}

func (a *act) uninstallByForce(ctx context.Context) {
	check(a.show(ctx, "annotate", "namespace", cluster.FencelineNamespace, v1alpha1.AnnotationForceDelete+"="))
	began := time.Now()
	output := value(a.Helm(ctx, "uninstall", "fenceline", "--namespace", cluster.FencelineNamespace))
	a.figures.add("helm uninstall", time.Since(began))
	a.story.Show("helm uninstall fenceline", output)
}

// isWithoutFenceline looks for what agents put on a node. The plugin stays, for
// the DEL of pods.
func isWithoutFenceline(ctx context.Context, n *cluster.Node) error {
	for _, test := range []string{
		"! -e /sys/fs/bpf/fenceline", "! -e /etc/cni/net.d/90-fenceline.conflist", "! -e /var/lib/fenceline/journal", "-e /opt/cni/bin/fenceline",
	} {
		if output, err := n.Exec(ctx, "sh", "-c", "[ "+test+" ]"); err != nil {
			return fmt.Errorf("%s is not so on %s: %w: %s", test, n.Name(), err, output)
		}
	}
	return nil
}
