// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/move"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/owners"
)

// asWritten is a definition with a text that no program writes.
const asWritten = `{"type": "macvlan",  "master":"eth1", "ipam":{"type":"whereabouts","range":"10.100.0.0/24"} }`

// network is a network of whereabouts with a pod, and a record of a pod that is gone.
type network struct {
	world
	door *door
	// events are those of the controller.
	events chan string
}

// newNetwork starts the real controller's part of a move, and a stand-in for the agents, which need a kernel: test/nodes
// shows what they do to pods.
func newNetwork(t *testing.T) *network {
	return newNetworkOf(t, asWritten, other(whereaboutsRecords, "10.100.0.0-24", map[string]any{
		"range": "10.100.0.0/24", "allocations": map[string]any{
			"7": map[string]any{"id": "c1", "podref": "default/moves-0", "ifname": "net1"}, "9": map[string]any{"id": "c2", "podref": "default/gone"},
		},
	}))
}

// newNetworkOf is newNetwork for any IPAM.
func newNetworkOf(t *testing.T, definition string, records ...client.Object) *network {
	w, server := newWorld(t)
	kinds := owners.Networks()
	for _, o := range records {
		if o.GetObjectKind().GroupVersionKind() == nodeSlices {
			kinds = append(kinds, owners.NodeSlices())
		}
	}
	check.OK(t, owners.Install(t.Context(), server.Admin(), kinds...))
	n := &network{world: w, door: newDoor(w, server.Admin())}
	moves := pod("moves-0", "n1")
	moves.Annotations = map[string]string{ipam.AnnotationNetworkStatus: `[{"name":"default/vlan100","interface":"net1","ips":["10.100.0.7"],"mac":"0a:00:00:00:00:07"}]`}
	w.make(append(records, moves, other(definitions, "vlan100", map[string]any{"config": definition}))...)
	recorder := events.NewFakeRecorder(100)
	n.events = recorder.Events
	admin := server.Admin()
	admin.ContentType = runtime.ContentTypeJSON // as the controller does
	mgr := check.Value(ctrl.NewManager(admin, ctrl.Options{Scheme: check.Value(cache.Scheme())(t), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}}))(t)
	check.OK(t, (&move.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Clock: clock.RealClock{},
	}).SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	go func() { _ = mgr.Start(ctx); ended <- struct{}{} }()
	go func() { n.agents(ctx); ended <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-ended; <-ended })
	return n
}

func other(kind schema.GroupVersionKind, name string, spec map[string]any) client.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": map[string]any{"namespace": "default", "name": name}, "spec": spec,
	}}
}

// agents adopt the pods of holds, and give back those that they are asked for.
func (n *network) agents(ctx context.Context) {
	for tick := time.Tick(50 * time.Millisecond); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick:
		}
		var all v1alpha1.IPLeaseList
		if n.client.List(ctx, &all) != nil {
			continue
		}
		for i := range all.Items {
			l := &all.Items[i]
			switch {
			case l.Annotations[v1alpha1.AnnotationMoveBack] != "" && l.Spec.State == v1alpha1.StateBound:
				_ = n.client.Delete(ctx, l)
			case l.IsHold() && l.Annotations[v1alpha1.AnnotationMoveHold] == "":
				l.Spec.State, l.Spec.Reason, l.Spec.Message, l.Spec.Previous = v1alpha1.StateBound, "", "", nil
				l.Spec.Holder.ContainerID = v1alpha1.AdoptedSandbox(l.Spec.Holder.ContainerID, l.Spec.Holder.PodUID)
				_ = n.client.Update(ctx, l)
			}
		}
	}
}

// door is before the API server. It dies with the command after a number of writes.
type door struct {
	proxy *httputil.ReverseProxy
	left  atomic.Int64
}

func newDoor(w world, of *rest.Config) *door {
	transport := check.Value(rest.TransportFor(of))(w)
	to := check.Value(url.Parse(of.Host))(w)
	d := &door{proxy: &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}}
	d.opens()
	return d
}

func (d *door) opens() { d.left.Store(1 << 40) }

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	isWrite := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "authorization.k8s.io")
	if d.left.Load() <= 0 {
		panic(http.ErrAbortHandler)
	}
	if !isWrite {
		d.proxy.ServeHTTP(w, r)
		return
	}
	if d.left.Add(-1) > 0 {
		d.proxy.ServeHTTP(w, r)
		return
	}
	d.proxy.ServeHTTP(httptest.NewRecorder(), r) // it took effect, and nobody hears of it
	panic(http.ErrAbortHandler)
}

// through has the command call the API server through the door.
func (n *network) through() *network {
	server := httptest.NewServer(n.door)
	n.Cleanup(server.Close)
	n.kubeconfig = n.TempDir() + "/kubeconfig"
	check.OK(n, controlplane.WriteKubeconfig(&rest.Config{Host: server.URL}, n.kubeconfig))
	return n
}

func (n *network) config() string {
	n.Helper()
	d := &unstructured.Unstructured{}
	d.SetGroupVersionKind(definitions)
	check.OK(n, n.client.Get(n.Context(), client.ObjectKey{Namespace: "default", Name: "vlan100"}, d))
	config, _, _ := unstructured.NestedString(d.Object, "spec", "config")
	return config
}

func (n *network) pool() *v1alpha1.IPPool {
	n.Helper()
	p := &v1alpha1.IPPool{}
	if err := n.client.Get(n.Context(), client.ObjectKey{Name: "vlan100"}, p); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		n.Fatal(err)
	}
	return p
}

func (n *network) theMove() *v1alpha1.Move {
	n.Helper()
	m := &v1alpha1.Move{}
	if err := n.client.Get(n.Context(), client.ObjectKey{Name: "default.vlan100"}, m); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		n.Fatal(err)
	}
	return m
}

// gives returns the addresses that whereabouts gives: all of its range, but those that it excludes and has given.
func (n *network) gives(addr string) bool {
	n.Helper()
	var c struct {
		Plugins []json.RawMessage
		IPAM    struct {
			Type    string
			Exclude []string
		}
	}
	check.OK(n, json.Unmarshal([]byte(n.config()), &c))
	for _, e := range c.IPAM.Exclude {
		if e == "10.100.0.0/24" || e == addr+"/32" {
			return false
		}
	}
	return c.IPAM.Type == "whereabouts" && len(c.Plugins) == 0 && addr != "10.100.0.7" && addr != "10.100.0.9"
}

// ruleHolds: no address is free in both. ours has a lease of a pod of Fenceline, if the move is that far.
func (n *network) ruleHolds(when string) {
	n.Helper()
	p := n.pool()
	isOpen := p != nil && !ptr.Deref(p.Spec.Disable, false)
	for _, addr := range []string{"10.100.0.7", "10.100.0.8", "10.100.0.9"} {
		err := n.client.Get(n.Context(), client.ObjectKey{Name: addr}, &v1alpha1.IPLease{})
		check.That(n, err == nil || apierrors.IsNotFound(err), "read %s: %v", addr, err)
		isOurs := isOpen && err != nil                             // Fenceline could give it
		isRecorded := addr == "10.100.0.7" || addr == "10.100.0.9" // whereabouts has given it
		check.That(n, !isOurs || !n.gives(addr) && !isRecorded, "%s: both give %s, or Fenceline gives one that is in use", when, addr)
		check.That(n, err != nil || !n.gives(addr), "%s: %s has a lease, and whereabouts gives it", when, addr)
	}
}

func TestANetworkMovesInAndBackAndIn(t *testing.T) {
	n := newNetwork(t)
	n.says("move-in start --settle=50ms whereabouts default/vlan100", "step Open", "Adopted: 1, held: 1", "switched to Fenceline", "10.100.0.9", "pod default/gone of its record does not exist", "Not done: 1 addresses are held")
	check.That(t, strings.Contains(n.config(), `"default_ipv4_ippool"`), "the definition is %s", n.config())
	n.ruleHolds("after the start")
	_, err := n.run("", "move-in", "finish", "whereabouts", "default/vlan100")
	check.Says(t, err, "1 addresses are held")

	// Another person is refused, who may take over.
	n.edits(func(m *v1alpha1.Move) { m.Spec.Holder = "ann@desk" })
	_, err = n.run("", "move-in", "back", "whereabouts", "default/vlan100")
	check.Says(t, err, "ann@desk moves the network since", "--take-over")

	// A pod of Fenceline keeps its address until its end.
	p := pod("ours-0", "n1")
	n.make(p)
	ours := lease("10.100.0.8", p, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "vlan100" })
	n.make(ours)
	n.says("move-in back --settle=50ms --take-over whereabouts default/vlan100", "10.100.0.8 on node n1: Bound", "default/ours-0", "whereabouts excludes them")
	check.That(t, !n.gives("10.100.0.8") && n.gives("10.100.0.6"), "the definition is %s", n.config())
	n.ruleHolds("half-way back")
	n.says("move-in status whereabouts default/vlan100", "step Back", "as before the move, with other exclusions", "Repeat until nothing is left")
	check.OK(t, n.client.Delete(t.Context(), ours))
	n.says("move-in back --settle=50ms whereabouts default/vlan100", "is as before the move")
	check.Equal(t, n.config(), asWritten, "the definition")
	check.That(t, n.pool() == nil && n.theMove() == nil, "pool %v and move %v are left", n.pool(), n.theMove())

	// In again. GitOps writes the old text: the Move says so, until a start has mended it.
	n.says("move-in start --settle=50ms whereabouts default/vlan100", "step Open")
	d := other(definitions, "vlan100", map[string]any{}).(*unstructured.Unstructured)
	switched := n.config()
	n.define(d, asWritten)
	n.wakes()
	check.Becomes(t, limit, "the controller tells it", func() bool { return len(n.events) > 0 })
	check.Says(t, <-n.events, "MoveReverted DefinitionReverted: others have written the old text into default/vlan100. Repeat `kubectl fenceline move-in start whereabouts default/vlan100`")
	check.That(t, n.isReverted(), "no condition: %v", n.theMove().Status.Conditions)
	// A pod restarts meanwhile.
	records := other(whereaboutsRecords, "10.100.0.0-24", nil).(*unstructured.Unstructured)
	allocate := func(pod string) {
		check.OK(t, n.client.Get(t.Context(), client.ObjectKeyFromObject(records), records))
		unstructured.RemoveNestedField(records.Object, "spec", "allocations", "12")
		if pod != "" {
			check.OK(t, unstructured.SetNestedField(records.Object, pod, "spec", "allocations", "12", "podref"))
		}
		check.OK(t, n.client.Update(t.Context(), records))
		n.wakes()
	}
	allocate("default/late-0")
	check.Becomes(t, limit, "the controller tells it", func() bool { return len(n.events) > 0 })
	check.Says(t, <-n.events, "MoveReverted DefinitionReverted: others have written the old text into default/vlan100; since the start, whereabouts has given 10.100.0.12 to pod default/late-0")
	n.define(d, switched)
	n.wakes()
	check.Becomes(t, limit, "the controller tells it", func() bool { return len(n.events) > 0 })
	check.Says(t, <-n.events, "MoveReverted NewRecord: since the start, whereabouts has given 10.100.0.12 to pod default/late-0, which have to restart then. Repeat `kubectl fenceline move-in start whereabouts default/vlan100`")
	allocate("")
	check.Becomes(t, limit, "the condition ends", func() bool { return !n.isReverted() })
	n.define(d, asWritten)
	n.says("move-in start --settle=50ms whereabouts default/vlan100", "step Open")
	n.wakes()
	check.Becomes(t, limit, "the condition ends", func() bool { return !n.isReverted() })

	// The same befalls a start that died before the pools opened. It freezes whereabouts anew before it goes on.
	n.edits(func(m *v1alpha1.Move) { m.Spec.Step = v1alpha1.MoveAdopt })
	closed := n.pool()
	closed.Spec.Disable = ptr.To(true)
	check.OK(t, n.client.Update(t.Context(), closed))
	n.define(d, asWritten)
	n.says("move-in start --settle=50ms whereabouts default/vlan100", "definition default/vlan100: frozen", "step Open")
	check.That(t, n.config() == switched && !ptr.Deref(n.pool().Spec.Disable, false), "definition %s", n.config())

	// A definition that nobody can read may have the same addresses. Nothing goes on but the way back.
	unreadable := other(definitions, "unreadable", map[string]any{"config": `{"type":"macvlan","ipam":{"type":"whereabouts"}}`})
	n.make(unreadable)
	for _, verb := range []string{"start", "finish"} {
		_, err = n.run("", "move-in", verb, "whereabouts", "default/vlan100")
		check.Says(t, err, "definition default/unreadable is of whereabouts too")
	}

	// A definition that others edit is not overwritten.
	n.define(d, `{"type":"ipvlan"}`)
	_, err = n.run("", "move-in", "back", "whereabouts", "default/vlan100")
	check.Says(t, err, "definition default/vlan100 was edited by others")
	n.define(d, switched)
	n.says("move-in back --settle=50ms whereabouts default/vlan100", "is as before the move")
	check.OK(t, n.client.Delete(t.Context(), unreadable))

	// In for good: the hold is proven free.
	n.says("move-in start --settle=50ms whereabouts default/vlan100", "step Open")
	check.OK(t, n.client.Delete(t.Context(), &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.100.0.9"}}))
	check.Becomes(t, limit, "nothing is held", func() bool { return n.theMove().Status.Held == 0 })
	n.says("move-in finish whereabouts default/vlan100", "is finished")
	check.That(t, n.theMove() == nil && n.pool() != nil && n.config() == switched, "the definition is %s", n.config())
}

// wakes has the controller look at the move.
func (n *network) wakes() {
	n.Helper()
	was := n.theMove().Spec.Holder
	for _, holder := range []string{"nobody", was} {
		n.edits(func(m *v1alpha1.Move) { m.Spec.Holder = holder })
	}
}

// edits edits the move as it is now, again if the controller wrote meanwhile.
func (n *network) edits(edit func(*v1alpha1.Move)) {
	n.Helper()
	check.OK(n, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		m := n.theMove()
		edit(m)
		return n.client.Update(n.Context(), m)
	}))
}

func (n *network) isReverted() bool {
	n.Helper()
	return meta.IsStatusConditionTrue(n.theMove().Status.Conditions, v1alpha1.ConditionReverted)
}

func (n *network) define(d *unstructured.Unstructured, config string) {
	n.Helper()
	now := d.DeepCopy()
	check.OK(n, n.client.Get(n.Context(), client.ObjectKeyFromObject(d), now))
	check.OK(n, unstructured.SetNestedField(now.Object, config, "spec", "config"))
	check.OK(n, n.client.Update(n.Context(), now))
}

// The command dies after each of its writes, of which it hears nothing. The rule holds, and the command goes on.
func TestTheCommandOfAMoveDiesAnywhere(t *testing.T) {
	t.Parallel()
	n := newNetwork(t).through()
	n.diesAnywhere("whereabouts", n.ruleHolds, func() { check.Equal(t, n.config(), asWritten, "the definition") })
}

// diesAnywhere ends each try with the first state again. asBefore checks it after each way back.
func (n *network) diesAnywhere(from string, ruleHolds func(when string), asBefore func()) {
	n.Helper()
	t, run := n.T, func(verb string) error {
		_, err := n.run("", "move-in", verb, "--settle=50ms", from, "default/vlan100")
		if err == nil && verb == "back" {
			asBefore()
		}
		return err
	}
	for _, c := range []struct{ verb, undo string }{{"start", "back"}, {"back", "start"}} {
		deaths := int64(0)
		for ; ; deaths++ {
			n.door.left.Store(deaths + 1)
			err := run(c.verb)
			isWhole := n.door.left.Load() > 0
			n.door.opens()
			ruleHolds(fmt.Sprintf("%s died after write %d", c.verb, deaths+1))
			if isWhole {
				check.OK(t, err)
				break
			}
			check.That(t, err != nil, "%s lost the answer of write %d, and reports success", c.verb, deaths+1)
			if n.theMove() != nil {
				check.OK(t, run(c.verb))
			}
			check.OK(t, run(c.undo)) // the next try begins where this one did
		}
		t.Logf("%s was repeated after each of %d writes", c.verb, deaths)
		check.That(t, deaths >= 5, "%s writes only %d times", c.verb, deaths)
	}
}
