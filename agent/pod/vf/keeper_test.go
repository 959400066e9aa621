// SPDX-License-Identifier: Apache-2.0

package vf

import (
	"errors"
	"slices"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

// card is a PF with one VF. It stands in for drivers that refuse a setting, or accept it without effect: that of the
// emulated cards (igb) has one behaviour only.
type card struct {
	info netlink.VfInfo
	// refuses and ignores are the settings that the driver refuses, or accepts without effect.
	refuses, ignores []string
	unknown, gone    bool
	done             []string
}

func (c *card) Find(device string) (Function, error) {
	if c.unknown {
		return Function{}, ErrNoInfo
	}
	return Function{Device: device, PF: &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "ens3f0"}}, Info: c.info}, nil
}

func (c *card) IsGone(string) bool { return c.gone }

func (c *card) change(setting string, to func()) error {
	if slices.Contains(c.refuses, setting) {
		return errors.New("operation not supported")
	}
	c.done = append(c.done, setting)
	if !slices.Contains(c.ignores, setting) {
		to()
	}
	return nil
}

func (c *card) SetState(_ Function, state uint32) error {
	return c.change("state", func() { c.info.LinkState = state })
}

func (c *card) SetVLAN(_ Function, vlan int) error {
	return c.change("VLAN", func() { c.info.Vlan = vlan })
}

func (c *card) SetSpoofCheck(_ Function, on bool) error {
	return c.change("spoof check", func() { c.info.Spoofchk = on })
}

// keeperOf keeps the VF of one pod. Each vouch is done at the card.
func keeperOf(t *testing.T, c *card, silenced, alone bool) (*Keeper, *attachment.Entry, map[Wall]int) {
	e := &attachment.Entry{ContainerID: "c", Interface: "net1", Device: "0000:03:10.1", Phase: attachment.Bound, Session: "s"}
	lacking := map[Wall]int{}
	return NewKeeper(Options{
		Reporter: event.Reporter{Node: "n1", Events: events.NewFakeRecorder(9), Log: testr.New(t), Clock: clock.RealClock{}},
		Session:  "s", Cards: c,
		Entries:  func() []*attachment.Entry { return []*attachment.Entry{e} },
		Entry:    func(string, string) (attachment.Entry, bool) { return *e, true },
		Silenced: func(*attachment.Entry) (bool, error) { return silenced, nil },
		Alone:    func(*attachment.Entry) bool { return alone },
		OneMAC:   func(*attachment.Entry) bool { return false },
		SetHolderSilent: func(_ *attachment.Entry, off bool) error {
			c.done = append(c.done, map[bool]string{true: "acked", false: "not acked"}[off])
			return nil
		},
		Missing: func(w Wall, n int) { lacking[w] = n },
	}), e, lacking
}

func TestAFencedVFIsOffAtItsPFBeforeItIsAcked(t *testing.T) {
	const disabled = nl.IFLA_VF_LINK_STATE_DISABLE
	for name, row := range map[string]struct {
		card card
		// alone: only the PF can silence the VF.
		alone bool
		want  netlink.VfInfo
		// off: the PF has the VF off. Without it, no claim is acked.
		off bool
	}{
		"a VF with its guard has its link down":                         {card{}, false, netlink.VfInfo{LinkState: disabled}, true},
		"or is in the dead VLAN, if the driver refuses that":            {card{refuses: []string{"state"}}, false, netlink.VfInfo{Vlan: DeadVLAN}, true},
		"without a guard it is in the dead VLAN too":                    {card{}, true, netlink.VfInfo{LinkState: disabled, Vlan: DeadVLAN}, true},
		"also if the driver refuses the state":                          {card{refuses: []string{"state"}}, true, netlink.VfInfo{Vlan: DeadVLAN}, true},
		"its link alone proves nothing, if the driver refuses the VLAN": {card{refuses: []string{"VLAN"}}, true, netlink.VfInfo{LinkState: disabled}, false},
		"nor does a VLAN that the PF does not show":                     {card{ignores: []string{"VLAN"}}, true, netlink.VfInfo{LinkState: disabled}, false},
		"nor a PF that says nothing about the VF":                       {card{unknown: true}, true, netlink.VfInfo{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			pass := row.card
			k, _, lacking := keeperOf(t, &pass, true, row.alone)
			k.pass()
			check.That(t, pass.info.LinkState == row.want.LinkState && pass.info.Vlan == row.want.Vlan, "the pass leaves it in state %d, VLAN %d", pass.info.LinkState, pass.info.Vlan)
			last := pass.done[len(pass.done)-1]
			check.That(t, (last == "acked") == row.off && (lacking[Off] == 0 || !row.off), "in the end it is %s, %d lack %q: %v", last, lacking[Off], Off, pass.done)
			check.Equal(t, pass.done[0], "not acked", "before it is off:")
			if !row.alone {
				return
			}
			call := row.card
			k, e, _ := keeperOf(t, &call, true, row.alone)
			err := k.SwitchOff(e)
			check.That(t, (err == nil) == row.off && slices.Contains(call.done, "acked") == row.off, "SwitchOff: %v, %v", err, call.done)
			check.That(t, call.info.Vlan == row.want.Vlan, "SwitchOff leaves it in VLAN %d", call.info.Vlan)
		})
	}
}

func TestAVFIsNotAckedOnceItIsToBeOn(t *testing.T) {
	c := &card{info: netlink.VfInfo{LinkState: nl.IFLA_VF_LINK_STATE_DISABLE, Vlan: DeadVLAN}}
	k, _, _ := keeperOf(t, c, false, true)
	k.pass()
	check.List(t, c.done, []string{"not acked", "state", "VLAN", "not acked"}, "steps")
	check.That(t, !isOff(c.info), "it stays off: %+v", c.info)
}

func TestAVFThatIsGoneSendsNothing(t *testing.T) {
	c := &card{unknown: true, gone: true}
	k, e, _ := keeperOf(t, c, true, true)
	check.OK(t, k.SwitchOff(e))
	check.List(t, c.done, []string{"acked"}, "steps")
}

// The runtime hands a VF to the next pod before the DEL of the last one reaches the agent.
func TestAVFOfANewerPodStaysAsItIs(t *testing.T) {
	for phase, stays := range map[attachment.Phase]bool{attachment.Intent: true, attachment.Bound: true, attachment.Releasing: false} {
		c := &card{}
		k, e, _ := keeperOf(t, c, true, true)
		newer := *e
		newer.ContainerID, newer.Phase, newer.Created = "d", phase, e.Created.Add(1)
		k.Entries = func() []*attachment.Entry { return []*attachment.Entry{e, &newer} }
		check.OK(t, k.SwitchOff(e))
		check.That(t, isOff(c.info) != stays, "the newer pod is %s: %v", phase, c.done)
		check.Equal(t, c.done[len(c.done)-1], "acked", "in the end:")
	}
}

func TestWithoutWallsNothingIsChangedAtThePF(t *testing.T) {
	off := netlink.VfInfo{LinkState: nl.IFLA_VF_LINK_STATE_DISABLE, Vlan: DeadVLAN}
	for alone, stays := range map[bool]bool{true: true, false: false} {
		c := &card{info: off}
		k, e, _ := keeperOf(t, c, true, alone)
		k.Disabled = true
		check.Says(t, k.SwitchOff(e), "agent.vfWalls is false")
		check.OK(t, k.Run(t.Context()))
		check.That(t, isOff(c.info) == stays, "only its PF can silence it %v: the VF is left off %v", alone, isOff(c.info))
	}
}
