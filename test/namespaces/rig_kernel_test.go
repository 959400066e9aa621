// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package namespaces_test

import (
	"context"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
)

// macvlan returns a configuration with one fixed address, by the reference
// plugins alone.
func macvlan(t *testing.T, addr string) string {
	return `{"cniVersion": "1.0.0", "name": "test", "plugins": [{
		"type": "macvlan", "master": "` + namespaces.Parent + `", "mode": "bridge",
		"ipam": {"type": "host-local", "dataDir": "` + t.TempDir() + `",
			"ranges": [[{"subnet": "10.77.0.0/16", "rangeStart": "` + addr + `", "rangeEnd": "` + addr + `"}]]}
	}]}`
}

// answers asks for a second, or until there is an answer if one is wanted.
func answers(ctx context.Context, t *testing.T, from *network.Namespace, to netip.Addr, wanted bool) bool {
	t.Helper()
	patience := map[bool]string{false: "1", true: "30"}[wanted]
	return from.Command(ctx, "ping", "-q", "-i", "0.2", "-c", "1", "-w", patience, to.String()).Run() == nil
}

func TestPodsOfTheReferencePluginAndForeignHostsShareTheUnderlay(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rig := namespaces.New(t, 2)
	frames := rig.Capture()
	host := rig.Host(netip.MustParsePrefix("10.77.0.9/16"), nil)
	a := check.Value(rig.Node(1).AddPod(ctx, macvlan(t, "10.77.0.11")))(t)
	b, err := rig.Node(2).AddPod(ctx, macvlan(t, "10.77.0.12"))
	check.OK(t, err)
	for _, to := range []netip.Addr{b.IPs[0], host.Addr} {
		if !answers(ctx, t, a.Namespace, to, true) {
			t.Errorf("%s does not answer %s", to, a.IPs[0])
		}
	}
	check.Is(t, a.Check(ctx), nil, "got")
	check.Is(t, a.Del(ctx), nil, "got")
	check.That(t, !answers(ctx, t, host.Namespace, a.IPs[0], false), "a deleted pod answers")
	seen := check.Value(frames.Stop())(t)
	spoken := capture.SpokenFor(seen, a.IPs[0])
	if len(spoken) == 0 || len(capture.From(spoken, a.MAC)) != len(spoken) || spoken[0].Port != "ul-n1" {
		t.Errorf("frames for %s of %s on n1: %v", a.IPs[0], a.MAC, spoken)
	}
}

func TestACutCableSilencesANode(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rig := namespaces.New(t, 1)
	host := rig.Host(netip.MustParsePrefix("10.77.0.9/16"), nil)
	pod := check.Value(rig.Node(1).AddPod(ctx, macvlan(t, "10.77.0.11")))(t)
	for _, step := range []struct {
		do   func() error
		want bool
	}{{rig.Node(1).CutUnderlay, false}, {rig.Node(1).HealUnderlay, true}} {
		check.OK(t, step.do())
		check.Equal(t, answers(ctx, t, host.Namespace, pod.IPs[0], step.want), step.want, "answer")
	}
}

func TestARigLeavesNoNamespace(t *testing.T) {
	t.Run("rig", func(t *testing.T) { namespaces.New(t, 2) })
	left, err := network.Names("flt-" + strconv.Itoa(os.Getpid()) + "-")
	check.That(t, err == nil && len(left) == 0, "left %v, %v", left, err)
}
