// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// moved is the range of whereabouts. The pools of the scenarios have another subnet.
var moved = netip.MustParsePrefix("10.79.0.0/24")

// movedPods is how many pods have an address of whereabouts when the network moves.
const movedPods = 6

// playMoveIn moves a network of the real whereabouts in, half-way back, and in for good. A host on the segment pings each
// pod all the time.
func playMoveIn(ctx context.Context, a *act) {
	network := a.namespace + "/old"
	move := func(step string) string {
		return value(a.Kubectl(ctx, "fenceline", "move-in", step, "whereabouts", network))
	}
	a.installMultus(ctx, cluster.Multus{})
	a.after("remove whereabouts", func(ctx context.Context) { check(a.RemoveWhereabouts(ctx)) })
	check(a.InstallWhereabouts(ctx))
	a.makePool(ctx, 2*movedPods+4, nil)
	a.definePlugins(ctx, a.namespace, "old", macvlan(map[string]any{
		"type": "whereabouts", "range": moved.String(), "range_start": "10.79.0.10", "range_end": "10.79.0.99",
	}, nil))
	before := a.oldDefinition(ctx)
	for i := range movedPods {
		a.startPod(ctx, fmt.Sprintf("old-%d", i), a.Nodes()[i%len(a.Nodes())], attach("old"))
	}
	pods := a.running(ctx, movedPods, everyPod)
	addrs := map[string]netip.Addr{}
	for _, p := range pods {
		addrs[p.Name] = a.movedAddress(ctx, p)
	}
	all := slices.Collect(maps.Values(addrs))
	ended := pods[0]
	running := a.record()
	host := a.foreignHost("client", netip.PrefixFrom(netip.MustParseAddr("10.79.0.250"), moved.Bits()))
	pings := a.ping(host, slices.DeleteFunc(slices.Clone(all), func(addr netip.Addr) bool { return addr == addrs[ended.Name] })...)
	pings.waitFor(ctx, 20)
	a.story.Say("%d pods run with addresses of whereabouts, and a host pings all but one of them.", movedPods)

	begun := time.Now()
	a.story.Show("kubectl fenceline move-in plan whereabouts "+network, move("plan"))
	a.story.Show("kubectl fenceline move-in start whereabouts "+network, move("start"))
	took := time.Since(begun)
	a.adoptedAre(ctx, network, movedPods)
	a.story.Say("All pods are adopted %s after the plan.", round(took))
	ours := a.runPod(ctx, "ours", a.Node(1), attach("old"))
	given := a.movedAddress(ctx, ours)
	must(!slices.Contains(all, given), "Fenceline gave %s, which a pod has", given)
	a.boundTo(ctx, given, ours.UID)

	said := move("back")
	must(strings.Contains(said+a.oldDefinition(ctx), given.String()), "whereabouts may give %s, which a pod of Fenceline has: %s", given, said)
	old := a.runPod(ctx, "again", a.Node(2), attach("old"))
	again := a.movedAddress(ctx, old)
	must(again != given && !slices.Contains(all, again), "whereabouts gave %s a second time", again)
	a.deletePod(ctx, ours, false)
	a.comesFree(ctx, given)
	move("back")
	must(a.oldDefinition(ctx) == before, "the definition is not as before the move: %s", a.oldDefinition(ctx))
	a.story.Say("The move went back: the pods run on, and the definition is as before, byte by byte.")

	move("start")
	a.adoptedAre(ctx, network, movedPods+1)
	a.deletePod(ctx, ended, false)
	a.comesFree(ctx, addrs[ended.Name])
	next := a.runPod(ctx, "next", a.Node(3), attach("old"))
	a.boundTo(ctx, a.movedAddress(ctx, next), next.UID)
	a.story.Show("kubectl fenceline move-in finish whereabouts "+network, move("finish"))
	pings.noneLost(begun)
	for name, addr := range addrs {
		speakers := capture.Speakers(running.Frames(), addr)
		must(len(speakers) == 1, "%v speak for %s of pod %s", speakers, addr, name)
	}
	a.story.Say("No ping was lost, and each address has had one speaker.")
}

func (a *act) movedAddress(ctx context.Context, pod *cluster.Pod) netip.Addr {
	interfaces := a.interfaces(ctx, pod)
	must(len(interfaces) == 2 && moved.Contains(interfaces[1].addr), "pod %s was to get an address of %s: %v", pod.Name, moved, interfaces)
	return interfaces[1].addr
}

// oldDefinition returns the configuration of the NetworkAttachmentDefinition that moves.
func (a *act) oldDefinition(ctx context.Context) string {
	d := &unstructured.Unstructured{}
	d.SetGroupVersionKind(schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"})
	check(a.api.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: "old"}, d))
	config, _, _ := unstructured.NestedString(d.Object, "spec", "config")
	return config
}

// adoptedAre waits until so many pods of a move are adopted.
func (a *act) adoptedAre(ctx context.Context, network string, want int) {
	eventually(ctx, podLimit, "the adoption of the pods", func(ctx context.Context) {
		var state struct {
			Status struct{ Adopted, Held, Conflicts int }
		}
		text := value(a.Kubectl(ctx, "fenceline", "move-in", "status", "whereabouts", network, "--output=json"))
		check(json.Unmarshal([]byte(text), &state))
		must(state.Status.Adopted == want && state.Status.Held == 0, "of %d pods: %s", want, text)
	})
}

// comesFree waits until an address has no lease.
func (a *act) comesFree(ctx context.Context, addr netip.Addr) {
	eventually(ctx, podLimit, addr.String()+" is free", func(ctx context.Context) {
		err := a.api.Get(ctx, client.ObjectKey{Name: v1alpha1.LeaseName("", addr)}, &v1alpha1.IPLease{})
		must(apierrors.IsNotFound(err), "its lease: %v", err)
	})
}
