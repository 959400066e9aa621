// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// LabelMigration is the label that KubeVirt gives to the pod that is, or was, the target of a live
// migration. A pod keeps the label after the migration.
const LabelMigration = "kubevirt.io/migrationJobUID"

// modePostCopy is the mode of a migration whose machine runs on the target already, while its memory
// still comes from the source.
const modePostCopy = "PostCopy"

// IsTarget reports whether a pod was made as the target of a live migration.
func IsTarget(pod metav1.Object) bool {
	ref, ok := Of(pod)
	return ok && ref.Group == groupKubeVirt && ref.Kind == kindInstance && pod.GetLabels()[LabelMigration] != ""
}

// Migration is the state of the last live migration of a virtual machine, from
// status.migrationState of its instance.
type Migration struct {
	// Source and Target are the names of the pods.
	Source, Target string
	Mode           string
	// TargetReady: the domain of the machine is active on the target node.
	TargetReady       bool
	Completed, Failed bool
}

// HandsOver reports whether the source of a migration is paused for good or gone, so that the address
// goes to the target (R15). why is a clause.
//
// The hypervisor pauses the source before it lets the target run. KubeVirt reports that the domain is
// active on the target, or that the memory comes by post-copy. The mode Paused is no such sign: if
// that migration fails, the machine goes on at the source.
func (m Migration) HandsOver(source, target string) (ok bool, why string) {
	switch {
	case m.Target != target || m.Source != "" && m.Source != source || source == target:
		return false, fmt.Sprintf("no migration leads from pod %s to pod %s", source, target)
	case m.Failed:
		return false, fmt.Sprintf("the migration to pod %s has failed", target)
	case m.TargetReady:
		return true, fmt.Sprintf("the machine runs in pod %s", target)
	case m.Mode == modePostCopy:
		return true, fmt.Sprintf("the machine runs in pod %s, and its memory follows", target)
	case m.Completed:
		return true, fmt.Sprintf("the migration to pod %s is completed", target)
	}
	return false, fmt.Sprintf("the machine still runs in pod %s, and migrates to pod %s", source, target)
}

// Migration asks the API server about the last migration of the virtual machine of a holder. Its error
// is that of Get.
func (a Asker) Migration(ctx context.Context, h *v1alpha1.Holder) (Migration, error) {
	instance, err := a.Get(ctx, instanceOf(h))
	if err != nil {
		return Migration{}, err
	}
	state, _, _ := unstructured.NestedMap(instance.Object, "status", "migrationState")
	text := func(field string) string {
		s, _, _ := unstructured.NestedString(state, field)
		return s
	}
	truth := func(field string) bool {
		b, _, _ := unstructured.NestedBool(state, field)
		return b
	}
	return Migration{
		Source: text("sourcePod"), Target: text("targetPod"), Mode: text("mode"),
		TargetReady: text("targetNodeDomainReadyTimestamp") != "",
		Completed:   truth("completed"), Failed: truth("failed"),
	}, nil
}

func instanceOf(h *v1alpha1.Holder) Ref {
	return Ref{Group: groupKubeVirt, Kind: kindInstance, Namespace: h.Namespace, Name: h.OwnerName}
}

// FollowMigration watches the virtual machine of a holder for a time. It calls changed as soon as it hears of each
// change, and of the state at the start. It needs the right "watch". It returns nil when the watch ends.
func (a Asker) FollowMigration(ctx context.Context, h *v1alpha1.Holder, limit time.Duration, changed func()) error {
	r := instanceOf(h)
	o, err := a.object(r)
	if err != nil {
		return err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(o.GroupVersionKind().GroupVersion().WithKind(r.Kind + "List"))
	w, err := a.Watches.Watch(ctx, list, client.InNamespace(r.Namespace), client.MatchingFields{metav1.ObjectNameField: r.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{TimeoutSeconds: ptr.To(int64(limit.Seconds()))}})
	if err != nil {
		return why("watch", r, err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return why("watch", r, apierrors.FromObject(e.Object))
		}
		changed()
	}
	return nil
}
