package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
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
// reclaims, and then paused until there is another one, so that two are at it.
func playFailover(ctx context.Context, a *act) error {
	if err := a.makePool(ctx, firstLeaked-firstHost, nil); err != nil {
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
	if err := a.twoControllers(ctx); err != nil {
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
	for n, fault := range []struct {
		what string
		do   func(context.Context, *leader) error
	}{
		{"killed", func(ctx context.Context, l *leader) error { return l.node.Kill(ctx, controllerProgram) }},
		{"paused until there is another one, so that two are at work", a.pause},
	} {
		from := firstLeaked + n*leakedLeases
		if err := a.failOver(ctx, chronicle, from, fault.what, fault.do); err != nil {
			return err
		}
	}
	if err := a.reclaimedOnce(ctx, chronicle); err != nil {
		return err
	}
	if lost := lostSince(w.pings.all(), began, time.Now()); lost > 0 {
		return fmt.Errorf("%d pings to living pods were lost", lost)
	}
	return takeTurns(w.capture.Frames(), a.addresses())
}

// failOver leaks leases, disturbs the leader in the middle of their reclaim, and
// waits until another one has brought it to its end.
func (a *act) failOver(ctx context.Context, c *chronicle, from int, what string, disturb func(context.Context, *leader) error) error {
	l, err := a.leader(ctx)
	if err != nil {
		return err
	}
	if err := a.leak(ctx, from, leakedLeases); err != nil {
		return err
	}
	ofThese := func(entries []entry) ledger { return ledgerOf(entries).from(a.address(from)) }
	entries, err := c.until(ctx, reclaimLimit, "a quarter of the reclaims", func(all []entry) bool {
		return ofThese(all).quarantined() >= leakedLeases/4
	})
	if err != nil {
		return err
	}
	done := ofThese(entries).quarantined()
	at := time.Now()
	if err := disturb(ctx, l); err != nil {
		return err
	}
	a.story.Say("%d leases of pods that are gone are due. After %d reclaims the leader, on %s, is %s.", leakedLeases, done, l.node.Name(), what)
	if _, err := c.until(ctx, reclaimLimit, "the end of all leaked leases", func(all []entry) bool { return ofThese(all).freed() == leakedLeases }); err != nil {
		return err
	}
	next, err := a.leader(ctx)
	if err != nil {
		return err
	}
	if next.identity == l.identity {
		return fmt.Errorf("%s is still the leader", l.identity)
	}
	a.figures.add("all addresses free, after the leader was "+strings.Fields(what)[0], time.Since(at))
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

// pause stops the leader until another one has its Lease.
func (a *act) pause(ctx context.Context, l *leader) error {
	resume := func(context.Context) error {
		_, err := l.node.Signal(controllerProgram, syscall.SIGCONT)
		return err
	}
	a.after("let the controller go on", resume)
	if _, err := l.node.Signal(controllerProgram, syscall.SIGSTOP); err != nil {
		return err
	}
	err := eventually(ctx, reclaimLimit, "another leader", func(ctx context.Context) error {
		now, err := a.leader(ctx)
		if err == nil && now.identity == l.identity {
			err = errors.New("it is still " + l.identity)
		}
		return err
	})
	return errors.Join(err, resume(ctx))
}

// twoControllers runs two for the length of the scenario.
func (a *act) twoControllers(ctx context.Context) error {
	a.after("run one controller", func(ctx context.Context) error { return a.runControllers(ctx, 1) })
	return a.runControllers(ctx, 2)
}

func (a *act) runControllers(ctx context.Context, count int32) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.FencelineNamespace, Name: controllerName}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, count))
	if err := a.api.Patch(ctx, deployment, patch); err != nil {
		return fmt.Errorf("run %d controllers: %w", count, err)
	}
	return eventually(ctx, podLimit, fmt.Sprintf("%d controllers", count), func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := a.api.List(ctx, pods, client.InNamespace(cluster.FencelineNamespace), client.MatchingLabels{"app.kubernetes.io/component": "controller"})
		if err != nil {
			return err
		}
		ready := 0
		for i := range pods.Items {
			if isReady(&pods.Items[i]) {
				ready++
			}
		}
		if len(pods.Items) != int(count) || ready != int(count) {
			return fmt.Errorf("there are %s", names(pods.Items))
		}
		return nil
	})
}

// leak writes leases of pods that never were, as nodes would leave them behind
// whose DEL never came.
func (a *act) leak(ctx context.Context, from, count int) error {
	for n := range count {
		addr := a.address(from + n)
		l := &v1alpha1.IPLease{
			ObjectMeta: metav1.ObjectMeta{
				Name: v1alpha1.LeaseName("", addr), Annotations: map[string]string{v1alpha1.AnnotationForceDelete: "scenario"},
			},
			Spec: v1alpha1.IPLeaseSpec{
				Address: addr.String(), Pool: a.namespace, Parent: cluster.UnderlayInterface, State: v1alpha1.StateBound,
				NodeName: a.Node(1 + n%len(a.Nodes())).Name(), Since: metav1.Now(),
				Holder: &v1alpha1.Holder{
					Namespace: a.namespace, Pod: fmt.Sprintf("leaked-%d", from+n), PodUID: string(uuid.NewUUID()),
					Interface: cluster.PodInterface, ContainerID: fmt.Sprintf("leaked-%d", from+n),
					MAC: fmt.Sprintf("02:00:00:00:00:%02x", from+n), Guarded: true,
				},
			},
		}
		if err := a.api.Create(ctx, l); err != nil {
			return fmt.Errorf("leak the lease of %s: %w", addr, err)
		}
	}
	return nil
}
