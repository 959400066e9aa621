// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/cluster"
)

// migration is a live migration of the virtual machine. The scenario does not pause the source, as
// KubeVirt does. So the source is a zombie afterwards, and only its fence makes it silent.
type migration struct {
	*identities
	source *zombie
	target *cluster.Pod
	// state is what KubeVirt reports in status.migrationState of the instance.
	state map[string]any
}

// migrate moves the virtual machine to another node, where the target ends as the only holder.
func (i *identities) migrate(ctx context.Context) error {
	m := &migration{identities: i, source: i.db}
	if err := m.begin(ctx); err != nil {
		return err
	}
	if err := m.handOver(ctx); err != nil {
		return err
	}
	return m.endSource(ctx)
}

// begin starts the target. It has the address and is mute, while the source speaks.
func (m *migration) begin(ctx context.Context) (err error) {
	z, began := m.source, time.Now()
	if z.crier, err = m.cry(z.pod); err != nil {
		return err
	}
	m.target, err = m.launch(ctx, m.web.pod.Node, func(pod *corev1.Pod) { pod.Labels[owner.LabelMigration] = "migration" })
	if err != nil {
		return err
	}
	if addressOf(m.target) != z.addr {
		return fmt.Errorf("the source of a live migration has %s, and its target has %s", z.addr, addressOf(m.target))
	}
	m.state = map[string]any{"sourcePod": z.pod.Name, "targetPod": m.target.Name, "mode": "PreCopy"}
	if err := m.report(ctx); err != nil {
		return err
	}
	if err := m.speaksAlone(ctx, z.pod, began); err != nil {
		return fmt.Errorf("before the machine runs in the target: %w", err)
	}
	m.story.Say("A live migration begins. Its target, pod %s on %s, also has %s and is mute.", m.target.Name, m.target.Node.Name(), z.addr)
	return nil
}

// handOver reports that the machine runs in the target. The address passes from the source, which still
// runs, by a claim.
func (m *migration) handOver(ctx context.Context) error {
	z, since := m.source, time.Now()
	m.state["targetNodeDomainReadyTimestamp"] = since.UTC().Format(time.RFC3339)
	if err := m.report(ctx); err != nil {
		return err
	}
	_, err := m.chronicle.wait(ctx, eventLimit, z.addr, since, "the target's", func(e entry) bool {
		return isBoundToOther(e, z.pod.UID) && e.Spec.Previous == nil
	})
	if err != nil {
		return err
	}
	m.figures.add("lease bound to the target, after the machine ran there", time.Since(since))
	if err := z.hears(ctx, m.target); err != nil {
		return err
	}
	return z.fencedFor(ctx, m.target, since)
}

// endSource ends the source, which does not disturb the target.
func (m *migration) endSource(ctx context.Context) error {
	z, since := m.source, time.Now()
	m.state["completed"] = true
	if err := m.report(ctx); err != nil {
		return err
	}
	if err := m.deletePod(ctx, z.pod, false); err != nil {
		return err
	}
	err := eventually(ctx, podLimit, "the end of the source", func(ctx context.Context) error {
		return m.isGone(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: z.pod.Namespace, Name: z.pod.Name}}, "its containers")
	})
	if err != nil {
		return err
	}
	if err := m.speaksAlone(ctx, m.target, since); err != nil {
		return fmt.Errorf("after the end of the source: %w", err)
	}
	m.story.Say("The source is deleted, and pod %s keeps %s.", m.target.Name, z.addr)
	return z.becomes(ctx, m.target)
}

// speaksAlone judges that since then, one pod has the lease, and only this pod speaks and answers.
func (m *migration) speaksAlone(ctx context.Context, pod *cluster.Pod, since time.Time) error {
	z := m.source
	if err := z.hearsOnly(ctx, pod, since); err != nil {
		return err
	}
	mac, err := pod.MAC()
	if err != nil {
		return err
	}
	if err := (change{addr: z.addr, new: mac}).onlyNewAfter(z.capture.Frames(), since); err != nil {
		return err
	}
	if lost := lostSince(z.pings.all(), since, time.Now()); lost > 0 {
		return fmt.Errorf("%d pings to %s were lost", lost, pod.Name)
	}
	return m.boundTo(ctx, z.addr, pod.UID)
}

// report writes the state of the migration, as KubeVirt does.
func (m *migration) report(ctx context.Context) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"migrationState": m.state}})
	if err != nil {
		return fmt.Errorf("report the live migration: %w", err)
	}
	if err := m.api.Patch(ctx, m.instance, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("report the live migration: %w", err)
	}
	return nil
}
