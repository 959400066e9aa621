// SPDX-License-Identifier: Apache-2.0

// Package uninstall removes Fenceline from a cluster. Begin refuses while leases exist, and ends the
// agents and the controller. Then the removers clean the nodes. Finish waits for the removers, and
// removes the finalizers of the pools. Both steps may be repeated.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/audit"
)

const (
	// pollInterval is the pause between two checks of a condition.
	pollInterval = 500 * time.Millisecond

	agentSet             = "fenceline-agent"
	controllerDeployment = "fenceline-controller"
	removerSet           = "fenceline-remove"
	rightsBinding        = "fenceline-uninstall"

	// endTimeout bounds EndRights: the kubelet gives 30 s to a step that is out of time.
	endTimeout = 10 * time.Second
)

// Uninstall removes Fenceline from one cluster.
type Uninstall struct {
	// Client reads from the API server, not from a cache.
	Client client.Client
	// Namespace is the namespace of Fenceline. With the annotation fenceline.io/force-delete on it, the
	// existing leases are deleted.
	Namespace string
	Log       logr.Logger
}

// Begin returns ErrLeasesExist while leases exist, unless it is forced. It deletes the controller,
// which would add the finalizers again, and the agents, which would create the leases of their pods
// again. It returns when no controller or agent runs on a node whose kubelet reports.
func (u Uninstall) Begin(ctx context.Context) error {
	_, forced, err := u.forced(ctx)
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
	return u.until(ctx, "the end of the agents and the controller", func(ctx context.Context) (string, error) {
		silent, err := u.silentNodes(ctx)
		if err != nil {
			return "", err
		}
		pods, err := u.pods(ctx, "agent", "controller")
		return running(pods, silent), err
	})
}

// Finish waits until the removers have finished on every node whose kubelet reports. It deletes the
// Warm leases, and all leases if it is forced. Then it removes the finalizers of the pools. It
// returns ErrLeasesExist if a pod got an address after Begin.
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
		u.Log.Info("the kubelet of the node does not report, so nothing was removed from the node", "node", node)
	}
	ns, forced, err := u.forced(ctx)
	if err != nil {
		return err
	}
	if err := u.deleteLeases(ctx, forced); err != nil {
		return err
	}
	if err := u.refuse(ctx); err != nil {
		return err
	}
	if err := errors.Join(u.freePools(ctx), u.removeLabels(ctx)); err != nil || !forced {
		return err
	}
	return u.endForce(ctx, ns)
}

// EndRights removes the rights of an uninstallation from the controller's account. Helm 3 leaves
// them after a failed step, and the controller goes on. The next uninstallation makes them again.
func (u Uninstall) EndRights(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout) // the step may have run out of time
	defer cancel()
	binding := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: u.Namespace, Name: rightsBinding}}
	binding.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"))
	if err := u.Client.Delete(ctx, binding); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the RoleBinding %s/%s, which lets the controller end the agents (delete it by hand): %w", u.Namespace, rightsBinding, err)
	}
	return nil
}

// forced reports whether an operator wants all leases deleted, even if pods use the addresses. This
// is an annotation of the namespace, because it must outlive the agents, and because a Helm release
// whose uninstallation was refused accepts no new values.
func (u Uninstall) forced(ctx context.Context) (ns *metav1.PartialObjectMetadata, forced bool, err error) {
	ns = &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := u.Client.Get(ctx, client.ObjectKey{Name: u.Namespace}, ns); err != nil {
		return nil, false, fmt.Errorf("read namespace %s: %w", u.Namespace, err)
	}
	_, forced = ns.Annotations[v1alpha1.AnnotationForceDelete]
	return ns, forced, nil
}

// endForce removes the annotation, so that it does not apply to the next installation.
func (u Uninstall) endForce(ctx context.Context, ns *metav1.PartialObjectMetadata) error {
	before := ns.DeepCopy()
	delete(ns.Annotations, v1alpha1.AnnotationForceDelete)
	if err := u.Client.Patch(ctx, ns, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("remove the annotation %s of namespace %s: %w", v1alpha1.AnnotationForceDelete, u.Namespace, err)
	}
	return nil
}

// until calls look until it returns "". It repeats calls that fail.
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

// deleteLeases frees the Warm addresses, which no host uses. If it is forced, it frees every address
// without a fence, because no agent is left that could fence.
func (u Uninstall) deleteLeases(ctx context.Context, forced bool) error {
	leases, err := u.leases(ctx)
	if err != nil {
		return err
	}
	for i := range leases {
		l := &leases[i]
		var only client.Preconditions
		if !forced {
			if l.Spec.State != v1alpha1.StateWarm {
				continue
			}
			// The agent of a silent node may bind it at this moment.
			only.ResourceVersion = &l.ResourceVersion
		}
		err := u.Client.Delete(ctx, l, only)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) && !forced {
			continue
		}
		if err != nil {
			return fmt.Errorf("delete lease %s: %w", l.Name, err)
		}
		audit.Log(u.Log, audit.Free, audit.Of(&leases[i], leases[i].Spec.NodeName, "Uninstalled"))
	}
	return nil
}

// freePools removes the finalizers of the pools, so that they can be deleted.
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

// removeLabels removes the labels of the nodes. They remain from an earlier release if this one may not write nodes.
func (u Uninstall) removeLabels(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := u.Client.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		before := node.DeepCopy()
		maps.DeleteFunc(node.Labels, func(key, _ string) bool { return strings.HasPrefix(key, v1alpha1.LabelPool) })
		if len(node.Labels) == len(before.Labels) {
			continue
		}
		switch err := client.IgnoreNotFound(u.Client.Patch(ctx, node, client.MergeFrom(before))); {
		case apierrors.IsForbidden(err):
			u.Log.Info("labels "+v1alpha1.LabelPool+"* of the node stay: without the value scheduling, they must be removed by kubectl label", "node", node.Name)
		case err != nil:
			return fmt.Errorf("remove the labels %s* of node %s: %w", v1alpha1.LabelPool, node.Name, err)
		}
	}
	return nil
}

func (u Uninstall) pods(ctx context.Context, components ...string) ([]podview.Pod, error) {
	var found []podview.Pod
	for _, c := range components {
		pods, err := agents.ListOf(ctx, u.Client, u.Namespace, c)
		if err != nil {
			return nil, err
		}
		found = append(found, pods...)
	}
	return found, nil
}

// silentNodes returns the nodes whose kubelet does not report. Pods there can be neither ended nor
// started.
func (u Uninstall) silentNodes(ctx context.Context) (map[string]bool, error) {
	var nodes corev1.NodeList
	if err := u.Client.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	silent := map[string]bool{}
	for i := range nodes.Items {
		if isSilent(&nodes.Items[i]) {
			silent[nodes.Items[i].Name] = true
		}
	}
	return silent, nil
}
