// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/images"
)

// playUninstall: helm uninstall does nothing while a pod has an address, and says why. If it is
// forced, it removes Fenceline from every node, and the pod runs on. Then Fenceline is installed
// again. The pod's connections and pings notice nothing.
func playUninstall(ctx context.Context, a *act) {
	a.makePool(ctx, len(a.Nodes()), a.behindRouter)
	node := a.victim(ctx)
	pod := a.runPod(ctx, "web", node, nil)
	used := a.use(ctx, pod)
	a.isRefusedToUninstall(ctx)
	// The clean-up installs Fenceline before it removes pod and pool, which need it.
	installed := false
	a.after("install Fenceline again", func(ctx context.Context) {
		if !installed {
			a.installAgain(ctx)
		}
	})
	a.show(ctx, "annotate", "namespace", cluster.FencelineNamespace, v1alpha1.AnnotationForceDelete+"=")
	a.story.Show("helm uninstall fenceline", value(a.Helm(ctx, "uninstall", "fenceline", "--namespace", cluster.FencelineNamespace)))
	for _, n := range a.Nodes() {
		isWithoutFenceline(ctx, n)
	}
	leases := a.leases(ctx, a.namespace)
	must(len(leases) == 0, "%d leases are left", len(leases))
	pool := &v1alpha1.IPPool{}
	check(a.api.Get(ctx, client.ObjectKey{Name: a.namespace}, pool))
	must(len(pool.Finalizers) == 0, "the pool waits for %v", pool.Finalizers)
	a.running(ctx, 1, everyPod)
	a.story.Say("No lease, no finalizer, no network configuration and nothing pinned is left. Pod %s still has %s.", pod.Name, addressOf(pod))
	during(func() { used.noticesNothing(ctx) }, "after the uninstallation")
	a.installAgain(ctx)
	installed = true
	during(func() { used.noticesNothing(ctx) }, "after the installation")
	a.story.Say("Fenceline is installed again. Of %d connections to pod %s none broke, and no ping was lost.", used.load.count, pod.Name)
}

// installAgain installs the default version, whose images are on the nodes.
func (a *act) installAgain(ctx context.Context) {
	check(errors.Join(a.InstallChart(ctx, images.DefaultVersion), a.WaitReady(ctx)))
}

// use is traffic to a pod from its node (host link) and from the outside host (underlay).
type use struct {
	pod   *cluster.Pod
	load  *steady
	pings []*pinger
	since time.Time
}

// use opens connections to a pod, and pings it.
func (a *act) use(ctx context.Context, pod *cluster.Pod) *use {
	outside, _, err := a.Outside()
	check(err)
	u := &use{pod: pod, load: a.hold()}
	to, own := netip.AddrPortFrom(addressOf(pod), appPort), &cluster.Host{Namespace: pod.Node.Namespace()}
	for _, from := range []*cluster.Host{own, outside} {
		u.load.open(ctx, 5, place{"host " + from.Name, from.Namespace}, to)
		u.pings = append(u.pings, a.ping(from, to.Addr()))
	}
	u.since = time.Now()
	return u
}

// noticesNothing fails if a connection is broken, if a ping was lost, or if the node no longer uses
// the host link: then its frames go by the router.
func (u *use) noticesNothing(ctx context.Context) {
	u.load.unbroken(ctx)
	route := value(u.pod.Node.Exec(ctx, "ip", "route", "get", addressOf(u.pod).String()))
	must(strings.Contains(route, " dev "+hostlink.NodePrefix), "the node does not reach pod %s by a host link: %s", u.pod.Name, route)
	for _, p := range u.pings {
		p.waitFor(ctx, 20)
		p.noneLost(u.since)
	}
}

// isRefusedToUninstall judges that helm does nothing, and says why.
func (a *act) isRefusedToUninstall(ctx context.Context) {
	output, err := a.Helm(ctx, "uninstall", "fenceline", "--namespace", cluster.FencelineNamespace)
	must(err != nil, "helm uninstalled Fenceline while a lease existed: %s", output)
	for _, words := range []string{"leases exist: 1 Bound (delete their pods)", "fenceline.io/force-delete="} {
		must(strings.Contains(output, words), "helm does not say %q: %s", words, output)
	}
	a.story.Show("helm uninstall fenceline", output)
	for _, n := range a.Nodes() {
		a.agentPod(ctx, n)
	}
}

// isWithoutFenceline judges that nothing of the agent is left on a node, except the plugin for the DEL of pods.
func isWithoutFenceline(ctx context.Context, n *cluster.Node) {
	for _, test := range []string{
		"! -e /sys/fs/bpf/fenceline", "! -e /etc/cni/net.d/90-fenceline.conflist", "! -e /var/lib/fenceline/journal", "-e /opt/cni/bin/fenceline",
	} {
		value(n.Exec(ctx, "sh", "-c", "[ "+test+" ]"))
	}
}
