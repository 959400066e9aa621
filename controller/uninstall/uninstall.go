// Package uninstall takes Fenceline out of a cluster, in two steps around the
// removers, which take it off the nodes. Begin refuses while leases exist and
// ends what writes records; Finish waits for the removers and lets the pools
// go. Both may be repeated.
package uninstall

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fenceline/fenceline/apis/audit"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

const (
	// pollInterval is the time between two looks at what is waited for.
	pollInterval = 500 * time.Millisecond

	agentSet             = "fenceline-agent"
	controllerDeployment = "fenceline-controller"
	removerSet           = "fenceline-remove"
)

// Uninstall takes Fenceline out of one cluster.
type Uninstall struct {
	// Client reads from the API server itself.
	Client client.Client
	// Namespace of Fenceline. Its annotation fenceline.io/force-delete has the
	// leases that exist deleted.
	Namespace string
	Log       logr.Logger
}

// Begin refuses while leases exist, unless it is forced. Then it deletes the
// controller, which would put finalizers back, and the agents, which would lease
// again what their pods hold, and returns when none of them runs on a node that
// is Ready. It returns ErrLeasesExist.
func (u Uninstall) Begin(ctx context.Context) error {
	forced, err := u.forced(ctx)
	if err != nil {
		return err
	}
	if !forced {
		if err := u.refuse(ctx); err != nil {
			return err
		}
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: u.Namespace, Name: name} }
	for _, o := range []client.Object{
		&appsv1.Deployment{ObjectMeta: meta(controllerDeployment)}, &appsv1.DaemonSet{ObjectMeta: meta(agentSet)},
	} {
		err := u.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s: %w", o.GetName(), err)
		}
	}
	return u.until(ctx, "the end of agents and controller", func(ctx context.Context) (string, error) {
		silent, err := u.silentNodes(ctx)
		if err != nil {
			return "", err
		}
		pods, err := u.pods(ctx, "agent", "controller")
		return running(pods, silent), err
	})
}

// Finish waits until the removers have done their work on every node that is
// Ready. Then it deletes the leases, if it is forced, and the finalizers of the
// pools. It returns ErrLeasesExist if a pod got an address since Begin.
func (u Uninstall) Finish(ctx context.Context) error {
	var silent map[string]bool
	err := u.until(ctx, "the removers", func(ctx context.Context) (waitsFor string, err error) {
		if silent, err = u.silentNodes(ctx); err != nil {
			return "", err
		}
		set := &appsv1.DaemonSet{}
		if err := u.Client.Get(ctx, client.ObjectKey{Namespace: u.Namespace, Name: removerSet}, set); err != nil {
			return "", fmt.Errorf("read the removers: %w", err)
		}
		pods, err := u.pods(ctx, "remove")
		return unfinished(set, pods, silent), err
	})
	if err != nil {
		return err
	}
	for node := range silent {
		u.Log.Info("the node is not Ready, and keeps what is on it", "node", node)
	}
	forced, err := u.forced(ctx)
	if err != nil {
		return err
	}
	if forced {
		if err := u.deleteLeases(ctx); err != nil {
			return err
		}
	}
	if err := u.refuse(ctx); err != nil {
		return err
	}
	if err := u.freePools(ctx); err != nil || !forced {
		return err
	}
	return u.endForce(ctx)
}

// forced says whether somebody wants the leases deleted, whoever uses their
// addresses. The word stands on the namespace: it has to outlive the agents, and
// a release whose uninstallation was refused takes no new values.
func (u Uninstall) forced(ctx context.Context) (bool, error) {
	ns, err := u.namespace(ctx)
	if err != nil {
		return false, err
	}
	_, forced := ns.Annotations[v1alpha1.AnnotationForceDelete]
	return forced, nil
}

// endForce takes the word back, so that the next installation is not under it.
func (u Uninstall) endForce(ctx context.Context) error {
	ns, err := u.namespace(ctx)
	if err != nil {
		return err
	}
	before := ns.DeepCopy()
	delete(ns.Annotations, v1alpha1.AnnotationForceDelete)
	if err := u.Client.Patch(ctx, ns, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("remove the annotation %s of namespace %s: %w", v1alpha1.AnnotationForceDelete, u.Namespace, err)
	}
	return nil
}

func (u Uninstall) namespace(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := u.Client.Get(ctx, client.ObjectKey{Name: u.Namespace}, ns); err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", u.Namespace, err)
	}
	return ns, nil
}

// until looks until there is nothing to wait for. An API server that does not
// answer is asked again.
func (u Uninstall) until(ctx context.Context, what string, look func(context.Context) (waitsFor string, err error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		waitsFor, err := look(ctx)
		if err == nil && waitsFor == "" {
			return true, nil
		}
		if err == nil {
			err = fmt.Errorf("waiting for %s", waitsFor)
		}
		if last == nil || last.Error() != err.Error() {
			u.Log.Info(err.Error())
		}
		last = err
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w: %w", what, err, last)
	}
	return nil
}

func (u Uninstall) refuse(ctx context.Context) error {
	leases, err := u.leases(ctx)
	if err != nil {
		return err
	}
	return refusal(leases, u.Namespace)
}

func (u Uninstall) leases(ctx context.Context) ([]v1alpha1.IPLease, error) {
	var leases v1alpha1.IPLeaseList
	if err := u.Client.List(ctx, &leases); err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	return leases.Items, nil
}

// deleteLeases frees every address without a fence: nobody is left who could.
func (u Uninstall) deleteLeases(ctx context.Context) error {
	leases, err := u.leases(ctx)
	if err != nil {
		return err
	}
	for i := range leases {
		if err := client.IgnoreNotFound(u.Client.Delete(ctx, &leases[i])); err != nil {
			return fmt.Errorf("delete lease %s: %w", leases[i].Name, err)
		}
		audit.Log(u.Log, audit.Free, audit.Of(&leases[i], leases[i].Spec.NodeName, "Uninstalled"))
	}
	return nil
}

// freePools lets pools be deleted from now on, and those go that wait for it.
func (u Uninstall) freePools(ctx context.Context) error {
	var pools v1alpha1.IPPoolList
	if err := u.Client.List(ctx, &pools); err != nil {
		return fmt.Errorf("list pools: %w", err)
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if !controllerutil.RemoveFinalizer(pool, v1alpha1.FinalizerPool) {
			continue
		}
		if err := client.IgnoreNotFound(u.Client.Update(ctx, pool)); err != nil {
			return fmt.Errorf("remove the finalizer of pool %s: %w", pool.Name, err)
		}
	}
	return nil
}

func (u Uninstall) pods(ctx context.Context, components ...string) ([]podview.Pod, error) {
	var found []podview.Pod
	for _, c := range components {
		var pods podview.PodList
		err := u.Client.List(ctx, &pods, client.InNamespace(u.Namespace),
			client.MatchingLabels{"app.kubernetes.io/name": "fenceline", "app.kubernetes.io/component": c})
		if err != nil {
			return nil, fmt.Errorf("list the pods of component %s: %w", c, err)
		}
		found = append(found, pods.Items...)
	}
	return found, nil
}

// silentNodes are not Ready: what runs there can be neither ended nor started.
func (u Uninstall) silentNodes(ctx context.Context) (map[string]bool, error) {
	var nodes corev1.NodeList
	if err := u.Client.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	silent := map[string]bool{}
	for i := range nodes.Items {
		if !isReady(&nodes.Items[i]) {
			silent[nodes.Items[i].Name] = true
		}
	}
	return silent, nil
}
