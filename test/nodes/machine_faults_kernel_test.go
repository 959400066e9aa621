// SPDX-License-Identifier: Apache-2.0

//go:build kernel && machine && !guest

package nodes_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// slowly is how many bytes a second a migration copies that is to break off.
const slowly = 1 << 20

// A machine has its address through all that may go wrong with it: a reboot, migrations that break off, and one
// whose source is cut off when the machine runs at the target already.
func TestAMachineKeepsItsAddress(t *testing.T) {
	m := newMachine(t, 3, "02:00:00:00:07:01")
	home := m.source
	stays := func(after string) {
		t.Helper()
		m.isBoundTo(home.Sandbox)
		m.hears(home.Addr)()
		check.That(t, m.SpeakersAreHolders() == nil, "after %s: %v", after, m.SpeakersAreHolders())
	}
	check.OK(t, home.qemu.do("set-action", map[string]any{"reboot": "reset"}, nil)) // as KubeVirt runs it
	check.OK(t, home.qemu.do("system_reset", nil, nil))
	check.OK(t, home.qemu.await(m.ctx, "RESET", func() error { return nil }))
	m.runs()
	stays("a reboot of the guest")

	for what, breakOff := range map[string]func(*launcher){
		"a migration that is cancelled":     func(*launcher) { check.OK(t, home.qemu.do("migrate_cancel", nil, nil)) },
		"a migration whose target has died": func(target *launcher) { target.kill() },
	} {
		heard := m.hears(home.Addr)
		target, state := m.prepare(m.Nodes[1])
		m.copy(target, slowly)
		m.Eventually(t, "memory is copied", func() error { return m.copied(home) })
		breakOff(target)
		m.Eventually(t, "it has broken off", func() error {
			if err := m.copied(home); err == nil {
				return errors.New("it goes on")
			}
			return nil
		})
		state["failed"], state["completed"] = true, true // as KubeVirt reports it
		m.report(state)
		m.end(target)
		check.OK(t, home.DeleteLink(cable))
		for _, f := range m.Frames.Frames() {
			taught := f.Port == network.Port(m.Nodes[1].Name) && f.Source.String() == home.MAC.String()
			check.That(t, !taught, "the target has taught the switch that the machine is there: %s", f)
		}
		heard()
		stays(what)
	}

	m.hears(started(m.ctx, t, m.Nodes[2], "other", func(*corev1.Pod) {}).Addr)() // its node can hear that the source is silent
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "v4"}}
	check.OK(t, m.Get(m.ctx, client.ObjectKeyFromObject(pool), pool))
	pool.Spec.Gateway = ptr.To("10.66.0.1")
	check.OK(t, m.Update(m.ctx, pool))
	cut := home.Node()
	target, state := m.prepare(m.Nodes[1])
	cut.ShutAPI(true)
	check.OK(t, errors.Join(cut.SetUp(uplink, false), cut.Report(m.ctx, corev1.ConditionUnknown)))
	m.copy(target, 1<<33)
	check.OK(t, target.qemu.await(m.ctx, "RESUME", func() error { return nil }))
	state["targetNodeDomainReadyTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	m.report(state)
	m.Eventually(t, "the target has the address", func() error { return m.boundTo(target.Sandbox) })
	m.hears(home.Addr)()
	cut.ShutAPI(false)
	check.OK(t, errors.Join(cut.SetUp(uplink, true), cut.Report(m.ctx, corev1.ConditionTrue)))
	m.end(home)
	home, m.source = target, target
	stays("a migration whose source was cut off")
	m.end(m.source)
	m.stop()
}

// copied returns an error unless a machine's memory is copied now.
func (m *machine) copied(from *launcher) error {
	var info struct {
		Status string
		RAM    struct{ Transferred int64 } `json:"ram"`
	}
	if err := from.qemu.do("query-migrate", nil, &info); err != nil || info.Status != "active" || info.RAM.Transferred == 0 {
		return fmt.Errorf("it is %+v: %w", info, err)
	}
	return nil
}
