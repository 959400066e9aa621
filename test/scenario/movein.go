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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// moved is the range of the other IPAM. The pools of the scenarios have another subnet.
var moved = netip.MustParsePrefix("10.79.0.0/24")

// movedPods is how many pods have an address of the other IPAM when the network moves.
const movedPods = 6

// markedFiles names the files of a move on all nodes.
func (a *act) markedFiles(ctx context.Context) (all string) {
	for _, n := range a.Nodes() {
		all += value(n.Exec(ctx, "sh", "-c", "grep --recursive --no-messages --files-with-matches fenceline-move "+hostLocalDir+" || true"))
	}
	return all
}

// playMoveIn moves a network of the real other IPAM in, half-way back, and in for good. A host on the segment pings each
// pod all the time.
func playMoveIn(from otherIPAM) func(context.Context, *act) {
	return func(ctx context.Context, a *act) { a.movesIn(ctx, from) }
}

func (a *act) movesIn(ctx context.Context, from otherIPAM) {
	network := a.namespace + "/old"
	move := func(step string) string { return a.asThePageSays(ctx, "move-in "+step, from.name, network) }
	on := func(i int) *cluster.Node {
		if from.onOne {
			i = 1
		}
		return a.Nodes()[i%len(a.Nodes())]
	}
	a.installMultus(ctx, cluster.Multus{})
	from.install(ctx, a)
	a.makePool(ctx, 2*movedPods+4, nil)
	a.after("remove the pool of the move", func(ctx context.Context) { a.removePool(ctx, "old") })
	if from.ranges != nil {
		ipam := maps.Clone(from.ranges)
		ipam["type"] = from.name
		a.definePlugins(ctx, a.namespace, "old", macvlan(ipam, nil))
	} else {
		a.definePlugins(ctx, a.namespace, "old", from.network(ctx, a, "old", moved)...)
	}
	before := a.definitionOf(ctx)
	for i := range movedPods {
		a.startPod(ctx, fmt.Sprintf("old-%d", i), on(i), attach("old"))
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
	a.story.Say("%d pods run with addresses of %s, and a host pings all but one of them.", movedPods, from.name)

	begun := time.Now()
	a.story.Show("kubectl fenceline move-in plan "+from.name+" "+network, move("plan"))
	a.story.Show("kubectl fenceline move-in start "+from.name+" "+network, move("start"))
	took := time.Since(begun)
	a.adoptedAre(ctx, from, network, movedPods, 0)
	a.story.Say("All pods are adopted %s after the plan.", round(took))
	sought := slices.MaxFunc(all, netip.Addr.Compare).Next() // the other IPAM would give it next
	ours := a.runPod(ctx, "ours", a.Node(1), func(p *corev1.Pod) {
		attach("old")(p)
		p.Annotations[v1alpha1.AnnotationPrefix+"ips"] = fmt.Sprintf(`[{"interface": "net1", "ips": [%q]}]`, sought)
	})
	given := a.movedAddress(ctx, ours)
	must(given == sought, "Fenceline gave %s, not %s", given, sought)
	a.boundTo(ctx, given, ours.UID)

	said := move("back")
	must(strings.Contains(said+a.definitionOf(ctx), given.String()), "%s may give %s, which a pod of Fenceline has: %s", from.name, given, said)
	old := a.runPod(ctx, "again", on(2), attach("old"))
	again := a.movedAddress(ctx, old)
	must(again != given && !slices.Contains(all, again), "%s gave %s a second time", from.name, again)
	a.deletePod(ctx, ours, false)
	a.comesFree(ctx, given)
	move("back")
	must(a.definitionOf(ctx) == before, "the definition is not as before the move: %s", a.definitionOf(ctx))
	must(a.markedFiles(ctx) == "", "files of the move are left: %s", a.markedFiles(ctx))
	a.story.Say("The move went back: the pods run on, and the definition is as before, byte by byte.")

	move("start")
	a.adoptedAre(ctx, from, network, movedPods+1, 0)
	a.deletePod(ctx, ended, false)
	a.comesFree(ctx, addrs[ended.Name])
	next := a.runPod(ctx, "next", a.Node(3), attach("old"))
	a.boundTo(ctx, a.movedAddress(ctx, next), next.UID)
	if from.beforeFinish != nil {
		from.beforeFinish(ctx, a, []string{"old"})
	}
	a.story.Show("kubectl fenceline move-in finish "+from.name+" "+network, move("finish"))
	must(a.markedFiles(ctx) == "", "files of the move are left: %s", a.markedFiles(ctx))
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

// asThePageSays runs the command that docs/migration.md has for a step such as "move-in plan" of whereabouts' network, on another
// one.
func (a *act) asThePageSays(ctx context.Context, step, ipam, network string) string {
	command := "kubectl fenceline " + step + " whereabouts shop/vlan100"
	must(strings.Contains(readPage("docs/migration.md"), "\n"+command), "docs/migration.md does not have the command %q", command)
	return value(a.Shell(ctx, strings.NewReplacer("whereabouts", ipam, "shop/vlan100", network).Replace(command)))
}

// definitionOf returns the configuration of the NetworkAttachmentDefinition that moves.
func (a *act) definitionOf(ctx context.Context) string {
	d := &unstructured.Unstructured{}
	d.SetGroupVersionKind(schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"})
	check(a.api.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: "old"}, d))
	config, _, _ := unstructured.NestedString(d.Object, "spec", "config")
	return config
}

// adoptedAre waits until so many addresses of a move are adopted, so many are held, and none is in conflict.
func (a *act) adoptedAre(ctx context.Context, from otherIPAM, network string, adopted, held int) {
	eventually(ctx, podLimit, "the adoption of the pods", func(ctx context.Context) {
		var state struct {
			Status struct{ Adopted, Held, Conflicts int }
		}
		text := value(a.Kubectl(ctx, "fenceline", "move-in", "status", from.name, network, "--output=json"))
		check(json.Unmarshal([]byte(text), &state))
		is := state.Status
		must(is.Adopted == adopted && is.Held == held && is.Conflicts == 0, "adopted %d, held %d, conflicts %d, not %d, %d, 0: %s", is.Adopted, is.Held, is.Conflicts, adopted, held, text)
	})
}

// comesFree waits until an address has no lease.
func (a *act) comesFree(ctx context.Context, addr netip.Addr) {
	eventually(ctx, podLimit, addr.String()+" is free", func(ctx context.Context) {
		err := a.api.Get(ctx, client.ObjectKey{Name: v1alpha1.LeaseName("", addr)}, &v1alpha1.IPLease{})
		must(apierrors.IsNotFound(err), "its lease: %v", err)
	})
}
