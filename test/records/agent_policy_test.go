// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

const (
	create = "create"
	update = "update"
	remove = "delete"
)

// attempt is one write of a lease by somebody.
type attempt struct {
	verb string
	// before is the lease that stands already, unless verb is create.
	before *v1alpha1.IPLease
	// change makes the written lease from before; with create it is the lease itself.
	change func(*v1alpha1.IPLease)
	// want is part of the refusal; empty: allowed.
	want string
}

// try carries the attempt out for real, since a dry run could not show what a deletion leaves behind.
func (e *env) try(t *testing.T, who client.Client, a attempt) {
	t.Helper()
	l := a.before.DeepCopy()
	if a.verb != create {
		forced(l)
		e.create(t, l)
		// The annotation let the administrator make the lease; the attempt is to find it as agents leave it.
		l.Annotations = nil
		check.OK(t, e.controller.Update(t.Context(), l))
		if a.before.Annotations != nil {
			l.Annotations = a.before.Annotations
			check.OK(t, e.controller.Update(t.Context(), l))
		}
	} else {
		e.cleanUp(t, l)
	}
	if a.change != nil {
		a.change(l)
	}
	var err error
	switch a.verb {
	case create:
		err = who.Create(t.Context(), l)
	case update:
		err = who.Update(t.Context(), l)
	case remove:
		err = who.Delete(t.Context(), l)
	}
	e.expect(t, err, a.want)
}

func holderIs(namespace, pod string) func(*v1alpha1.IPLease) {
	return spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.Namespace, s.Holder.Pod = namespace, pod })
}

func all(changes ...func(*v1alpha1.IPLease)) func(*v1alpha1.IPLease) {
	return func(l *v1alpha1.IPLease) {
		for _, change := range changes {
			change(l)
		}
	}
}

func withoutHolder(l *v1alpha1.IPLease) { l.Spec.Holder = nil }

// testAgentPolicy: what the agent of n1 may do, with the token that its kubelet gets for it.
func (e *env) testAgentPolicy(t *testing.T) {
	lease := func(changes ...func(*v1alpha1.IPLease)) *v1alpha1.IPLease { return bound("", "10.1.0.1", changes...) }
	quarantined := all(in(v1alpha1.StateQuarantined), because(v1alpha1.ReasonPodGone))
	retained := in(v1alpha1.StateRetained)
	ofDeployment := spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.OwnerKind, s.Holder.OwnerName = "ReplicaSet", "web-5d" })
	ofSet := spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.OwnerKind, s.Holder.OwnerName = "StatefulSet", "web" })
	from := func(node string) func(*v1alpha1.IPLease) {
		return spec(func(s *v1alpha1.IPLeaseSpec) {
			s.Previous = &v1alpha1.PreviousHolder{Node: node, PodUID: "u", Token: 7, Guarded: true}
		})
	}
	proven := spec(func(s *v1alpha1.IPLeaseSpec) { s.Previous = nil })
	finalized := func(l *v1alpha1.IPLease) { l.Finalizers = []string{"example.com/keep"} }
	bindHere := all(on("n1"), in(v1alpha1.StateBound), because(""))
	sandboxEnded := all(retained, because(v1alpha1.ReasonSandboxEnded))

	// The address of a pod whose record was lost, leased by another node, which heard the pod.
	heard := all(in(v1alpha1.StateQuarantined), because(v1alpha1.ReasonConflict), withoutHolder, on("n2"),
		spec(func(s *v1alpha1.IPLeaseSpec) {
			s.Conflict = &v1alpha1.Conflict{MAC: "02:00:00:00:00:07", Source: "probe"}
		}))
	takenBackBy := func(mac string) func(*v1alpha1.IPLease) {
		return all(on("n1"), in(v1alpha1.StateBound), spec(func(s *v1alpha1.IPLeaseSpec) {
			s.Holder = lease().Spec.Holder.DeepCopy()
			s.Holder.MAC = mac
		}))
	}

	// The address of a virtual machine's earlier pod, and the machine's next pod.
	ofMachine := func(pod, uid, name string) func(*v1alpha1.IPLease) {
		return spec(func(s *v1alpha1.IPLeaseSpec) {
			s.Holder.Pod, s.Holder.PodUID = pod, uid
			s.Holder.OwnerGroup, s.Holder.OwnerKind, s.Holder.OwnerName = "kubevirt.io", "VirtualMachineInstance", name
		})
	}
	kept := func() *v1alpha1.IPLease { return lease(retained, on("n2"), ofMachine("virt-launcher-db-a", "a", "db")) }
	take := func(change func(*v1alpha1.IPLease)) func(*v1alpha1.IPLease) {
		return all(on("n1"), in(v1alpha1.StateBound), change)
	}
	inOther := spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.OwnerGroup = "example.org" })
	handedOver := func(verifier string) *v1alpha1.IPLease {
		return lease(quarantined, from("n2"), on(verifier), ofMachine("virt-launcher-db-a", "a", "db"))
	}
	ofOther := all(ofMachine("virt-launcher-db-b", "b", "db"), inOther)

	agent := e.agent(t, "n1")
	for name, a := range map[string]attempt{
		"takes an address back for the pod that was heard":   {update, lease(heard), takenBackBy("02:00:00:00:00:07"), ""},
		"takes none back that was not a conflict":            {update, lease(heard, because(v1alpha1.ReasonPodGone)), all(takenBackBy("02:00:00:00:00:07"), because("")), "is kept for (none)/(none)"},
		"takes none back for a pod that was not the speaker": {update, lease(heard), takenBackBy("02:00:00:00:00:08"), "is kept for (none)/(none)"},

		"takes the address of a machine over for its next pod":    {update, kept(), take(ofMachine("virt-launcher-db-b", "b", "db")), ""},
		"takes it over when it has proven the migration's source": {update, handedOver("n1"), all(take(ofMachine("virt-launcher-db-b", "b", "db")), proven), ""},
		"takes none over whose source another node must prove":    {update, handedOver("n2"), all(take(ofMachine("virt-launcher-db-b", "b", "db")), proven), "an agent keeps it until its verification"},
		"takes none over that it has proven for another machine":  {update, handedOver("n1"), all(take(ofMachine("virt-launcher-db-b", "b", "log")), proven), "an agent keeps it until its verification"},
		"takes it not over for another machine":                   {update, kept(), take(ofMachine("virt-launcher-db-b", "b", "log")), "no other holder may take it over"},
		"takes it not over for a pod of another group's instance": {update, kept(), take(ofOther), "no other holder may take it over"},
		"takes no other group's instance for a machine":           {update, lease(retained, on("n2"), ofMachine("virt-launcher-db-a", "a", "db"), inOther), take(ofOther), "no other holder may take it over"},
		"takes no instance without a name for a machine":          {update, lease(retained, on("n2"), ofMachine("virt-launcher-db-a", "a", "")), take(ofMachine("virt-launcher-db-b", "b", "")), "no other holder may take it over"},
		"takes no pod's address over for a machine of that name":  {update, lease(retained, on("n2")), take(ofMachine("virt-launcher-web-b", "b", "web")), "no other holder may take it over"},

		"creates a Bound lease of its node": {create, lease(), nil, ""},
		"creates a Warm lease of its node":  {create, lease(in(v1alpha1.StateWarm), withoutHolder), nil, ""},
		"creates no lease of another node":  {create, lease(on("n2")), nil, "the agent of node n1 may not write spec.nodeName n2"},
		"creates no Retained lease":         {create, lease(retained), nil, "spec.state Bound or Warm, not Retained"},
		"creates no Quarantined lease":      {create, lease(quarantined), nil, "spec.state Bound or Warm, not Quarantined"},
		"creates no lease with an owner": {create, lease(func(l *v1alpha1.IPLease) {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "u"}}
		}), nil, "metadata.ownerReferences"},

		"creates no lease with a finalizer": {create, lease(finalized), nil, "metadata.finalizers"},
		"adds no finalizer":                 {update, lease(), finalized, "metadata.finalizers"},
		"removes no finalizer":              {update, lease(finalized), func(l *v1alpha1.IPLease) { l.Finalizers = nil }, "metadata.finalizers"},
		"leaves a finalizer of others":      {update, lease(finalized), retained, ""},

		"deletes a Bound lease of its node":               {remove, lease(), nil, ""},
		"deletes a Warm lease of its node":                {remove, lease(in(v1alpha1.StateWarm)), nil, ""},
		"deletes a Quarantined lease that it verifies":    {remove, lease(quarantined), nil, ""},
		"deletes no lease of another node":                {remove, lease(on("n2")), nil, "may not delete a lease with spec.nodeName n2"},
		"deletes no Quarantined lease that others verify": {remove, lease(quarantined, on("n2")), nil, "may not delete a lease with spec.nodeName n2"},
		"deletes no Quarantined lease without a verifier": {remove, lease(quarantined, on("")), nil, "may not delete a lease with spec.nodeName (none)"},
		"deletes no Retained lease":                       {remove, lease(retained), nil, "spec.state is Retained"},

		"sets its Bound lease aside":           {update, lease(), all(in(v1alpha1.StateQuarantined), because(v1alpha1.ReasonConflict)), ""},
		"sets it aside and forgets the holder": {update, lease(), all(in(v1alpha1.StateQuarantined), because(v1alpha1.ReasonConflict), withoutHolder), ""},
		"retains its Bound lease":              {update, lease(), retained, ""},
		"binds a newer sandbox":                {update, lease(), spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.ContainerID = "d" }), ""},
		"binds its Warm lease":                 {update, lease(in(v1alpha1.StateWarm)), in(v1alpha1.StateBound), ""},
		"gives no lease away":                  {update, lease(), on("n2"), "may not write spec.nodeName n2"},
		"changes no lease of another node":     {update, lease(on("n2")), spec(func(s *v1alpha1.IPLeaseSpec) { s.Message = "x" }), "may not write spec.nodeName n2"},
		"takes no Bound lease of another node": {update, lease(on("n2")), on("n1"), "may not change a lease with spec.nodeName n2"},
		"takes no Warm lease of another node":  {update, lease(on("n2"), in(v1alpha1.StateWarm)), all(on("n1"), in(v1alpha1.StateBound)), "may not change a lease with spec.nodeName n2"},
		"adds no owner": {update, lease(), func(l *v1alpha1.IPLease) {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "u"}}
		}, "metadata.ownerReferences"},

		"takes a Retained lease over for the same pod":    {update, lease(retained, on("n2")), all(on("n1"), in(v1alpha1.StateBound)), ""},
		"takes one over that nobody has":                  {update, lease(retained, on("")), all(on("n1"), in(v1alpha1.StateBound)), ""},
		"takes its own Retained lease over again":         {update, lease(retained), in(v1alpha1.StateBound), ""},
		"takes a Quarantined lease over for the same pod": {update, lease(quarantined, from("n2"), on("n2")), all(on("n1"), in(v1alpha1.StateBound)), ""},
		"takes a newer pod of the same name":              {update, lease(quarantined, from("n2"), on("n2")), all(on("n1"), in(v1alpha1.StateBound), spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.PodUID = "v" })), ""},
		"takes over for the next sandbox of the same pod": {update, lease(ofDeployment, sandboxEnded), all(in(v1alpha1.StateBound), because("")), ""},
		"keeps its Bound lease for a pod that lives":      {update, lease(ofDeployment), sandboxEnded, ""},
		"takes none over for another UID of that name":    {update, lease(ofDeployment, sandboxEnded), all(in(v1alpha1.StateBound), because(""), spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.PodUID = "v" })), "is kept for default/web-0"},
		"takes no Retained lease over for another pod":    {update, lease(retained, on("n2")), all(on("n1"), in(v1alpha1.StateBound), holderIs("default", "web-1")), "is kept for default/web-0"},
		"takes no Retained lease into another namespace":  {update, lease(retained, on("n2")), all(on("n1"), in(v1alpha1.StateBound), holderIs("prod", "web-0")), "is kept for default/web-0"},
		"takes no Quarantined lease over for another pod": {update, lease(quarantined, on("n2")), all(on("n1"), in(v1alpha1.StateBound), holderIs("default", "web-1")), "is kept for default/web-0"},
		"takes none over for another pod on its own node": {update, lease(retained), all(in(v1alpha1.StateBound), holderIs("default", "web-1")), "is kept for default/web-0"},
		"takes none over that has lost its holder":        {update, lease(quarantined, withoutHolder), all(in(v1alpha1.StateBound), func(l *v1alpha1.IPLease) { l.Spec.Holder = lease().Spec.Holder }), "is kept for (none)/(none)"},
		"takes over to Bound only":                        {update, lease(quarantined, on("n2")), on("n1"), "may not change a lease with spec.nodeName n2"},
		"takes none over to Warm":                         {update, lease(quarantined, on("n2")), all(on("n1"), in(v1alpha1.StateWarm)), "may not change a lease with spec.nodeName n2"},
		"records a conflict on a lease that it verifies":  {update, lease(quarantined), because(v1alpha1.ReasonConflict), ""},
		"forgets the holder of a lease that it verifies":  {update, lease(quarantined), withoutHolder, ""},
		"retains a lease that it verifies":                {update, lease(quarantined), retained, ""},
		"retains it for the pod on another node":          {update, lease(quarantined, ofDeployment, from("n2")), all(sandboxEnded, proven, on("n2")), ""},
		"retains it for no third node":                    {update, lease(quarantined, ofDeployment, from("n2")), all(sandboxEnded, proven, on("n3")), "may not write spec.nodeName n3"},
		"deletes a verified lease with a predecessor":     {remove, lease(quarantined, from("n2")), nil, ""},
		"deletes no lease with an unproven predecessor":   {remove, lease(from("n2")), nil, "spec.previous of a lease in spec.state Bound is not proven"},
		"confirms its take-over":                          {update, lease(from("n2")), proven, ""},
		"keeps the predecessor while it is Bound":         {update, lease(from("n2")), from("n1"), "an agent keeps it until its verification"},
		"keeps the predecessor at a take-over":            {update, lease(quarantined, from("n2"), on("n2")), all(bindHere, proven), "an agent keeps it until its verification"},
		"changes no predecessor at a take-over":           {update, lease(quarantined, from("n2"), on("n2")), all(bindHere, from("n1")), "an agent keeps it until its verification"},
		"names the last holder at a take-over":            {update, lease(quarantined, on("n2")), bindHere, "a take-over names the last holder as spec.previous"},
		"takes over for a pod of its own node":            {update, lease(quarantined, ofDeployment, from("n1"), on("n2")), bindHere, ""},
		"takes none over for a pod of another node":       {update, lease(quarantined, ofDeployment, from("n2"), on("n2")), bindHere, "is kept for default/web-0"},
		"takes no kept sandbox's from another node":       {update, lease(ofDeployment, sandboxEnded, on("n2")), bindHere, "is kept for default/web-0"},
		"invents no StatefulSet":                          {update, lease(quarantined, ofDeployment, from("n2"), on("n2")), all(bindHere, ofSet), "is kept for default/web-0"},
		"takes nothing back that has a predecessor":       {update, lease(heard, from("n2")), all(takenBackBy("02:00:00:00:00:07")), "is kept for (none)/(none)"},
		"binds its Bound lease to no other pod":           {update, lease(), holderIs("default", "web-1"), "only a new sandbox of the same pod"},
		"binds its Bound lease to no other UID":           {update, lease(), spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.PodUID = "v" }), "only a new sandbox of the same pod"},
		"retains its Bound lease for no other pod":        {update, lease(), all(retained, holderIs("default", "web-1")), "only a new sandbox of the same pod"},
		"makes no Bound lease Warm":                       {update, lease(), all(in(v1alpha1.StateWarm), withoutHolder), "spec.state Bound may not become Warm"},
		"retains none that it verifies for another pod":   {update, lease(quarantined), all(retained, holderIs("default", "web-1")), "is kept for default/web-0"},
		"renames the holder of none that it verifies":     {update, lease(quarantined), holderIs("default", "web-1"), "is kept for default/web-0"},
		"makes none Warm that it verifies":                {update, lease(quarantined), in(v1alpha1.StateWarm), "spec.state Quarantined may not become Warm"},
		"records nothing on a lease that others verify":   {update, lease(quarantined, on("n2")), because(v1alpha1.ReasonConflict), "may not write spec.nodeName n2"},
		"makes itself verifier of none that has none":     {update, lease(quarantined, on("")), all(on("n1"), because(v1alpha1.ReasonConflict)), "may not change a lease with spec.nodeName (none)"},
		"makes itself verifier of none":                   {update, lease(quarantined, on("n2")), all(on("n1"), because(v1alpha1.ReasonConflict)), "may not change a lease with spec.nodeName n2"},
		"sets no Retained lease aside":                    {update, lease(retained), all(in(v1alpha1.StateQuarantined), because(v1alpha1.ReasonConflict)), "an agent may only make it Bound, not Quarantined"},
	} {
		t.Run(name, func(t *testing.T) { e.try(t, agent, a) })
	}

	const nameless = "the token of this agent names no node"
	for who, c := range map[string]client.Client{
		"a token without node name":  e.unboundAgent(t),
		"the agent's name, borrowed": e.as(t, agentUser, nil),
	} {
		for name, a := range map[string]attempt{
			"creates nothing": {create, lease(), nil, nameless},
			"changes nothing": {update, lease(), because("X"), nameless},
			"deletes nothing": {remove, lease(), nil, nameless},
		} {
			t.Run(who+" "+name, func(t *testing.T) { e.try(t, c, a) })
		}
	}
	t.Run("a token without node name matches no lease without node", func(t *testing.T) {
		e.try(t, e.unboundAgent(t), attempt{remove, lease(quarantined, on("")), nil, nameless})
	})
}

// testAgentPods: an agent deletes pods of its own node only.
func (e *env) testAgentPods(t *testing.T) {
	pod := func(node string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "mute", Namespace: "default"},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
	}
	agent := e.agent(t, "n1")
	for name, c := range map[string]struct {
		who  client.Client
		node string
		want string
	}{
		"of its own node":                      {agent, "n1", ""},
		"of another node":                      {agent, "n2", "the agent of node n1 may not delete a pod with spec.nodeName n2"},
		"of no node":                           {agent, "", "the agent of node n1 may not delete a pod with spec.nodeName (none)"},
		"with a token without one":             {e.unboundAgent(t), "n1", "the agent of node (none) may not delete a pod"},
		"of no node, with a token without one": {e.unboundAgent(t), "", "the agent of node (none) may not delete a pod"},
		"by the controller":                    {e.controller, "n2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(c.node)
			e.create(t, p)
			e.expect(t, c.who.Delete(t.Context(), p, client.GracePeriodSeconds(0)), c.want)
		})
	}
}
