// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// leakedLeases are due at once, and leave room for pods and the client.
	leakedLeases = 100
	firstLeaked  = 30
	// controllerName is that of the Deployment, and of the leader's Lease.
	controllerName = "fenceline-controller"
)

// playFailover: of two controllers the leader is killed in the middle of many
// reclaims; then two are at work at once.
func playFailover(ctx context.Context, a *act) error {
	// Once the pool is large, nodes would keep addresses ready, which are no pod's.
	noStock := func(s *v1alpha1.IPPoolSpec) { s.Warm = ptr.To[int64](0) }
	if err := a.makePool(ctx, firstLeaked-firstHost, noStock); err != nil {
		return err
	}
	if err := a.deploy(ctx, len(a.Nodes())); err != nil {
		return err
	}
	pods, err := a.running(ctx, len(a.Nodes()), everyPod)
	if err != nil {
		return err
	}
	all := a.ips(firstHost, firstLeaked+2*leakedLeases-firstHost)
	if err := a.editPool(ctx, a.namespace, func(s *v1alpha1.IPPoolSpec) { s.IPs = all }); err != nil {
		return err
	}
	chronicle, err := a.keepChronicle(ctx, a.namespace)
	if err != nil {
		return err
	}
	w, err := a.watch(addressOf(pods[0]), addressOf(pods[1]), addressOf(pods[2]))
	if err != nil {
		return err
	}
	began := time.Now()
	if err := a.runTwoControllers(ctx); err != nil {
		return err
	}
	if err := a.killLeader(ctx, chronicle); err != nil {
		return err
	}
	if err := a.runTwoControllers(ctx, "--leader-elect=false"); err != nil {
		return err
	}
	if err := a.twoAtWork(ctx, chronicle); err != nil {
		return err
	}
	if lost := lostSince(w.pings.all(), began, time.Now()); lost > 0 {
		return fmt.Errorf("%d pings to living pods were lost", lost)
	}
	return takeTurns(w.capture.Frames(), a.addresses())
}

// killLeader leaks leases, kills the leader in the middle of their reclaim, and
// waits until the other controller has brought it to its end.
func (a *act) killLeader(ctx context.Context, c *chronicle) error {
	first, err := a.leader(ctx)
	if err != nil {
		return err
	}
	from, err := a.leak(ctx, 0)
	if err != nil {
		return err
	}
	entries, err := c.until(ctx, reclaimLimit, "a quarter of the reclaims", func(all []entry) bool {
		return ledgerOf(all).from(from).quarantined() >= leakedLeases/4
	})
	if err != nil {
		return err
	}
	done, at := ledgerOf(entries).from(from).quarantined(), time.Now()
	if err := first.node.Kill(ctx, controllerProgram); err != nil {
		return err
	}
	a.story.Say("%d leases of pods that are gone are due. After %d reclaims, the leader on %s is killed.", leakedLeases, done, first.node.Name())
	if err := a.reclaimedOnce(ctx, c, from); err != nil {
		return err
	}
	next, err := a.leader(ctx)
	if err != nil {
		return err
	}
	if next.identity == first.identity {
		return fmt.Errorf("%s is still the leader", first.identity)
	}
	a.figures.add("all addresses free, after the leader was killed", time.Since(at))
	return nil
}

// twoAtWork leaks leases that two controllers find due at the same time.
func (a *act) twoAtWork(ctx context.Context, c *chronicle) error {
	from, err := a.leak(ctx, leakedLeases)
	if err != nil {
		return err
	}
	at := time.Now()
	a.story.Say("Two controllers work without a leader election, and %d more leases are due.", leakedLeases)
	if err := a.reclaimedOnce(ctx, c, from); err != nil {
		return err
	}
	a.figures.add("all addresses free, with two controllers at work", time.Since(at))
	return nil
}

// leader is the controller at work.
type leader struct {
	identity string
	node     *cluster.Node
}

// leader returns who holds the leader's Lease: "<node>_<UUID>", as the controller
// is on the host's network.
func (a *act) leader(ctx context.Context) (*leader, error) {
	lease := &coordinationv1.Lease{}
	if err := a.api.Get(ctx, client.ObjectKey{Namespace: cluster.FencelineNamespace, Name: controllerName}, lease); err != nil {
		return nil, err
	}
	l := &leader{identity: ptr.Deref(lease.Spec.HolderIdentity, "")}
	name, _, _ := strings.Cut(l.identity, "_")
	var err error
	l.node, err = a.NodeByName(name)
	return l, err
}

// runTwoControllers runs two with more flags, for the length of the scenario.
func (a *act) runTwoControllers(ctx context.Context, flags ...string) error {
	d := &appsv1.Deployment{}
	if err := a.api.Get(ctx, client.ObjectKey{Namespace: cluster.FencelineNamespace, Name: controllerName}, d); err != nil {
		return err
	}
	before := d.Spec.DeepCopy()
	a.after("run the controllers as before", func(ctx context.Context) error { return a.runControllers(ctx, before) })
	d.Spec.Replicas = ptr.To[int32](2)
	container := &d.Spec.Template.Spec.Containers[0]
	container.Args = append(container.Args, flags...)
	return a.runControllers(ctx, &d.Spec)
}

func (a *act) runControllers(ctx context.Context, spec *appsv1.DeploymentSpec) error {
	d := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: cluster.FencelineNamespace, Name: controllerName}
	if err := a.api.Get(ctx, key, d); err != nil {
		return err
	}
	d.Spec = *spec
	if err := a.api.Update(ctx, d); err != nil {
		return fmt.Errorf("run %d controllers: %w", *spec.Replicas, err)
	}
	return eventually(ctx, podLimit, fmt.Sprintf("%d controllers", *spec.Replicas), func(ctx context.Context) error { return a.rolledOut(ctx, key) })
}

// leak writes leases of pods that never were, as nodes would leave them behind
// whose DEL never came. It skips so many addresses, and returns the first.
func (a *act) leak(ctx context.Context, skip int) (netip.Addr, error) {
	first := firstLeaked + skip
	for n := range leakedLeases {
		addr, pod := a.address(first+n), fmt.Sprintf("leaked-%d", first+n)
		l := &v1alpha1.IPLease{
			ObjectMeta: metav1.ObjectMeta{
				Name: v1alpha1.LeaseName("", addr), Annotations: map[string]string{v1alpha1.AnnotationForceDelete: "scenario"},
			},
			Spec: v1alpha1.IPLeaseSpec{
				Address: addr.String(), Pool: a.namespace, Parent: cluster.UnderlayInterface, State: v1alpha1.StateBound,
				NodeName: a.Node(1 + n%len(a.Nodes())).Name(), Since: metav1.Now(),
				Holder: &v1alpha1.Holder{
					Namespace: a.namespace, Pod: pod, PodUID: string(uuid.NewUUID()), Interface: cluster.PodInterface, ContainerID: pod,
					MAC: fmt.Sprintf("02:00:00:00:00:%02x", first+n), Guarded: true,
				},
			},
		}
		if err := a.api.Create(ctx, l); err != nil {
			return addr, fmt.Errorf("leak the lease of %s: %w", addr, err)
		}
	}
	return a.address(first), nil
}
