// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/images"
)

// playUninstall: helm uninstall says why it does nothing while a pod has an
// address. By force it takes Fenceline off every node, and the pod runs on.
// Afterwards Fenceline is installed again.
func playUninstall(ctx context.Context, a *act) error {
	if err := a.makePool(ctx, len(a.Nodes()), nil); err != nil {
		return err
	}
	node, err := a.victim(ctx)
	if err != nil {
		return err
	}
	// The uninstallation removes the only network configuration of the node. If the node is not Ready
	// before the others, Kubernetes evicts the pods that do not tolerate that.
	pod, err := a.runPod(ctx, "web", node, patient)
	if err != nil {
		return err
	}
	if err := a.isRefusedToUninstall(ctx); err != nil {
		return err
	}
	// It ends before the pool and the pod, which need it.
	a.after("install Fenceline again", func(ctx context.Context) error {
		return errors.Join(a.InstallFenceline(ctx, images.DefaultVersion), a.WaitReady(ctx))
	})
	if err := a.uninstallByForce(ctx); err != nil {
		return err
	}
	for _, n := range a.Nodes() {
		if err := isWithoutFenceline(ctx, n); err != nil {
			return err
		}
	}
	leases, err := a.leases(ctx, a.namespace)
	if err != nil {
		return err
	}
	if len(leases) > 0 {
		return fmt.Errorf("%d leases are left", len(leases))
	}
	pool := &v1alpha1.IPPool{}
	if err := a.api.Get(ctx, client.ObjectKey{Name: a.namespace}, pool); err != nil {
		return err
	}
	if len(pool.Finalizers) > 0 {
		return fmt.Errorf("the pool waits for %v", pool.Finalizers)
	}
	if _, err := a.running(ctx, 1, everyPod); err != nil {
		return err
	}
	a.story.Say("No lease, no finalizer, no network configuration and nothing pinned is left. Pod %s still has %s.", pod.Name, addressOf(pod))
	return nil
}

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
		if _, err := a.agentPod(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (a *act) uninstallByForce(ctx context.Context) error {
	if err := a.show(ctx, "annotate", "namespace", cluster.FencelineNamespace, v1alpha1.AnnotationForceDelete+"="); err != nil {
		return err
	}
	began := time.Now()
	output, err := a.Helm(ctx, "uninstall", "fenceline", "--namespace", cluster.FencelineNamespace)
	if err != nil {
		return err
	}
	a.figures.add("helm uninstall", time.Since(began))
	a.story.Show("helm uninstall fenceline", output)
	return nil
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
