// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/owners"
)

// machineName is the name of the virtual machine.
const machineName = "db"

// identities are a pod of a StatefulSet of OpenKruise, and the launcher pod of a virtual machine of
// KubeVirt.
//
// The scenario plays the controllers of both projects. For Fenceline, only the objects count that these
// controllers write: the owner, the pods with their names, labels and owner references, and the state
// of a migration. A virtual machine also needs a hypervisor, which a machine in CI has not.
type identities struct {
	*act
	set, machine, instance *unstructured.Unstructured
	// launched counts the launcher pods: each has another name.
	launched int
	// web and db are the present pods.
	web, db   *zombie
	chronicle *chronicle
	capture   *capture.Capture
}

// playIdentities: a pod of another project's StatefulSet, and a virtual machine, have the same address
// after a restart, after the loss of the node, and the virtual machine also after a live migration.
func playIdentities(ctx context.Context, a *act) error {
	i := &identities{act: a}
	for _, step := range []func(context.Context) error{i.stage, i.restart, i.loseNode, i.migrate, i.end} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return takeTurns(i.capture.Frames(), a.addresses())
}

// stage installs the custom resources, and makes both owners and their first pods.
func (i *identities) stage(ctx context.Context) error {
	if err := i.installOwners(ctx); err != nil {
		return err
	}
	if err := i.makePool(ctx, 8, nil); err != nil {
		return err
	}
	i.set = owners.StatefulSet(i.namespace, workload, 1)
	i.machine = owners.Machine(i.namespace, machineName, "Always")
	if err := errors.Join(i.api.Create(ctx, i.set), i.api.Create(ctx, i.machine), i.makeInstance(ctx)); err != nil {
		return fmt.Errorf("make the owners: %w", err)
	}
	node, err := i.controllerNode(ctx)
	if err != nil {
		return err
	}
	web, db, err := i.run(ctx, node, node)
	if err != nil {
		return err
	}
	i.web, i.db = &zombie{act: i.act, pod: web, addr: addressOf(web)}, &zombie{act: i.act, pod: db, addr: addressOf(db)}
	i.story.Say("On %s, pod %s of a StatefulSet of OpenKruise has %s. Pod %s of a virtual machine has %s.",
		node.Name(), web.Name, i.web.addr, db.Name, i.db.addr)
	return i.observe(ctx)
}

// installOwners installs the custom resources until the end of the scenario.
func (i *identities) installOwners(ctx context.Context) error {
	config, err := i.RESTConfig()
	if err != nil {
		return err
	}
	all := append(owners.Machines(), owners.StatefulSets())
	remove := []string{"delete", "crd", "--ignore-not-found"}
	for _, crd := range all {
		remove = append(remove, crd.Name)
	}
	i.after("remove the custom resources", func(ctx context.Context) error { _, err := i.Kubectl(ctx, remove...); return err })
	return owners.Install(ctx, config, all...)
}

// observe starts a client of each address, and a capture.
func (i *identities) observe(ctx context.Context) error {
	var err error
	if i.chronicle, err = i.keepChronicle(ctx, i.namespace); err != nil {
		return err
	}
	if i.web.witness, err = i.watch(i.web.addr); err != nil {
		return err
	}
	i.capture = i.web.capture
	i.db.witness, err = i.watchBy("client2", 251, i.capture, i.db.addr)
	i.web.chronicle, i.db.chronicle = i.chronicle, i.chronicle
	return err
}

// makeInstance makes the instance of the virtual machine. Each start of the machine has a new one.
func (i *identities) makeInstance(ctx context.Context) error {
	i.instance = owners.Instance(i.namespace, machineName)
	return i.api.Create(ctx, i.instance)
}

// run starts the pods of both owners.
func (i *identities) run(ctx context.Context, webOn, dbOn *cluster.Node) (web, db *cluster.Pod, err error) {
	if err := i.startPod(ctx, workload+"-0", webOn, ownedBy(i.set, owners.OfSet)); err != nil {
		return nil, nil, err
	}
	if db, err = i.launch(ctx, dbOn); err != nil {
		return nil, nil, err
	}
	pods, err := i.running(ctx, 1, func(p *corev1.Pod) bool { return p.Name == workload+"-0" })
	if err != nil {
		return nil, nil, err
	}
	return pods[0], db, nil
}

// launch starts a launcher pod of the virtual machine.
func (i *identities) launch(ctx context.Context, node *cluster.Node, changes ...func(*corev1.Pod)) (*cluster.Pod, error) {
	i.launched++
	name := fmt.Sprintf("virt-launcher-%s-%05d", machineName, i.launched)
	return i.runPod(ctx, name, node, func(pod *corev1.Pod) {
		for _, change := range append([]func(*corev1.Pod){ownedBy(i.instance, owners.OfMachine)}, changes...) {
			change(pod)
		}
	})
}

// ownedBy makes a pod that of an object which exists. Kubernetes deletes a pod whose owner has another
// UID.
func ownedBy(object client.Object, of func(string) func(*corev1.Pod)) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		of(object.GetName())(pod)
		pod.OwnerReferences[0].UID = object.GetUID()
	}
}

// restart ends both pods and starts the next ones on the node that will be lost.
func (i *identities) restart(ctx context.Context) error {
	node, err := i.victim(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := i.endPods(ctx); err != nil {
		return err
	}
	for _, z := range i.both() {
		next, err := i.chronicle.wait(ctx, eventLimit, z.addr, began, "kept", isNotBound)
		if err != nil {
			return err
		}
		if next.gone || next.Spec.State != v1alpha1.StateRetained {
			return fmt.Errorf("the address of pod %s is not kept after its end: %s", z.pod.Name, next)
		}
	}
	web, db, err := i.startAgain(ctx, node, node)
	if err != nil {
		return err
	}
	if err := errors.Join(i.web.becomes(ctx, web), i.db.becomes(ctx, db)); err != nil {
		return err
	}
	i.story.Say("Both restart on %s. Pod %s has %s again. The next launcher pod is called %s, and has %s again.",
		node.Name(), web.Name, i.web.addr, db.Name, i.db.addr)
	return nil
}

func isNotBound(e entry) bool { return e.gone || e.Spec.State != v1alpha1.StateBound }

func (i *identities) both() []*zombie { return []*zombie{i.web, i.db} }

// endPods deletes the pods of both owners, and returns when they are gone.
func (i *identities) endPods(ctx context.Context) error {
	if err := i.api.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(i.namespace), client.GracePeriodSeconds(podGrace)); err != nil {
		return fmt.Errorf("delete the pods of %s: %w", i.namespace, err)
	}
	return eventually(ctx, podLimit, "the end of both pods", func(ctx context.Context) error {
		pods, err := i.pods(ctx)
		if err == nil && len(pods) > 0 {
			err = errors.New(names(pods))
		}
		return err
	})
}

// startAgain starts the next pods of both owners.
func (i *identities) startAgain(ctx context.Context, webOn, dbOn *cluster.Node) (web, db *cluster.Pod, err error) {
	if err := errors.Join(i.api.Delete(ctx, i.instance), i.makeInstance(ctx)); err != nil {
		return nil, nil, fmt.Errorf("start the virtual machine again: %w", err)
	}
	return i.run(ctx, webOn, dbOn)
}

// becomes judges that the next pod has the address of the last one, and observes this pod from now on.
func (z *zombie) becomes(ctx context.Context, next *cluster.Pod) (err error) {
	if addressOf(next) != z.addr {
		return fmt.Errorf("pod %s had %s, and pod %s has %s", z.pod.Name, z.addr, next.Name, addressOf(next))
	}
	if err := z.boundTo(ctx, z.addr, next.UID); err != nil {
		return err
	}
	if err := z.hears(ctx, next); err != nil {
		return err
	}
	z.pod, z.crier = next, nil
	z.mac, err = next.MAC()
	return err
}

// loseNode cuts the node of both pods off, and starts the next pods on two other nodes.
func (i *identities) loseNode(ctx context.Context) (err error) {
	for _, z := range i.both() {
		if z.crier, err = i.cry(z.pod); err != nil {
			return err
		}
	}
	if err := i.web.cutOff(ctx); err != nil {
		return err
	}
	i.db.cut = i.web.cut
	if err := i.db.alive(ctx, i.db.pod); err != nil {
		return fmt.Errorf("pod %s is no zombie: %w", i.db.pod.Name, err)
	}
	for _, z := range i.both() {
		if err := i.deletePod(ctx, z.pod, true); err != nil {
			return err
		}
	}
	i.story.Say("Both pods are deleted by force, and their owners start the next ones on other nodes. The old pods still run.")
	others := i.others(i.web.pod.Node)
	web, db, err := i.startAgain(ctx, others[0], others[1])
	if err != nil {
		return err
	}
	next := []*cluster.Pod{web, db}
	for n, z := range i.both() {
		successor, err := z.passes(ctx)
		if err != nil {
			return err
		}
		if successor.UID != next[n].UID {
			return fmt.Errorf("pod %s has %s, which pod %s was to have", successor.Name, z.addr, next[n].Name)
		}
	}
	back := time.Now()
	if err := i.web.comesHome(ctx, web); err != nil {
		return err
	}
	if err := i.db.isRemoved(ctx, db, back); err != nil {
		return err
	}
	return errors.Join(i.web.becomes(ctx, web), i.db.becomes(ctx, db))
}

// end deletes both owners. Their pods end, and their addresses are free.
func (i *identities) end(ctx context.Context) error {
	if err := eventually(ctx, aftermathLimit, "leases that equal the living holders", i.leasesEqualHolders); err != nil {
		return err
	}
	for _, o := range []*unstructured.Unstructured{i.set, i.machine, i.instance} {
		if err := i.api.Delete(ctx, o); err != nil {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	if err := i.endPods(ctx); err != nil {
		return err
	}
	if err := i.hasNoLease(ctx, i.namespace); err != nil {
		return err
	}
	i.story.Say("The StatefulSet and the virtual machine are deleted. %s and %s are free.", i.web.addr, i.db.addr)
	return nil
}
