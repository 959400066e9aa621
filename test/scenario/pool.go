package scenario

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// underlay is the subnet of all scenarios, so that everybody on the wire
// reaches everybody. Scenario n has 10.78.n.0/24 of it.
var underlay = netip.MustParsePrefix("10.78.0.0/16")

// address returns an address of the scenario.
func (a *act) address(host int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 78, byte(a.scenario.number), byte(host)})
}

// firstHost is the first address of each pool.
const firstHost = 10

// makePool makes the scenario's namespace and, for that namespace alone, a pool
// of so many addresses. change may be nil.
func (a *act) makePool(ctx context.Context, addresses int, change func(*v1alpha1.IPPoolSpec)) error {
	a.after("remove the pool", a.removePool)
	a.after("remove the namespace", a.removeNamespace)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
	if err := a.api.Create(ctx, namespace); err != nil {
		return fmt.Errorf("make namespace %s: %w", a.namespace, err)
	}
	spec := v1alpha1.IPPoolSpec{
		Subnet:        underlay.String(),
		IPs:           []string{fmt.Sprintf("%s-%s", a.address(firstHost), a.address(firstHost+addresses-1))},
		Default:       ptr.To(true),
		NamespaceName: []string{a.namespace},
	}
	if change != nil {
		change(&spec)
	}
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}, Spec: spec}
	if err := a.api.Create(ctx, pool); err != nil {
		return fmt.Errorf("make pool %s: %w", pool.Name, err)
	}
	return eventually(ctx, podLimit, "pool "+pool.Name+" to be Ready", func(ctx context.Context) error {
		if err := a.api.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		for _, c := range pool.Status.Conditions {
			if c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue {
				return a.defaultAccount(ctx)
			}
		}
		return fmt.Errorf("its conditions are %v", pool.Status.Conditions)
	})
}

// defaultAccount returns an error until pods can be made in the namespace.
func (a *act) defaultAccount(ctx context.Context) error {
	return a.api.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: "default"}, &corev1.ServiceAccount{})
}

func (a *act) removeNamespace(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
	if err := client.IgnoreNotFound(a.api.Delete(ctx, namespace)); err != nil {
		return err
	}
	return eventually(ctx, cleanupLimit, "the end of namespace "+a.namespace, func(ctx context.Context) error {
		pods, err := a.pods(ctx)
		if err != nil {
			return err
		}
		return a.isGone(ctx, namespace, fmt.Sprintf("pods %s", names(pods)))
	})
}

// removePool removes the pool with whatever leases are left in it.
func (a *act) removePool(ctx context.Context) error {
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
	if err := client.IgnoreNotFound(a.api.Delete(ctx, pool)); err != nil {
		return err
	}
	return eventually(ctx, cleanupLimit, "the end of pool "+a.namespace, func(ctx context.Context) error {
		leases, err := a.leases(ctx)
		if err != nil {
			return err
		}
		for i := range leases {
			if leases[i].Spec.State == v1alpha1.StateBound {
				continue // its agent frees it
			}
			if err := a.forceDelete(ctx, &leases[i]); err != nil {
				return err
			}
		}
		return a.isGone(ctx, pool, fmt.Sprintf("leases %v", brief(leases)))
	})
}

// isGone returns an error as long as the object exists.
func (a *act) isGone(ctx context.Context, object client.Object, left string) error {
	err := a.api.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("it still exists, with %s", left)
}
