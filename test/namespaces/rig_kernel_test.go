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

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
)

func TestACutCableSilencesANode(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rig := namespaces.New(t, 1)
	host := rig.Host(netip.MustParsePrefix("10.77.0.9/16"), nil)
	addr := netip.MustParsePrefix("10.77.0.11/16")
	check.OK(t, rig.Node(1).AddAddr(namespaces.Parent, addr))
	for _, step := range []struct {
		do   func() error
		want bool
	}{{rig.Node(1).CutUnderlay, false}, {rig.Node(1).HealUnderlay, true}} {
		check.OK(t, step.do())
		patience := map[bool]string{false: "1", true: "30"}[step.want]
		ping := host.Command(ctx, "ping", "-q", "-i", "0.2", "-c", "1", "-w", patience, addr.Addr().String())
		check.Equal(t, ping.Run() == nil, step.want, "answer")
	}
}

func TestARigLeavesNoNamespace(t *testing.T) {
	t.Run("rig", func(t *testing.T) { namespaces.New(t, 2) })
	left, err := network.Names("flt-" + strconv.Itoa(os.Getpid()) + "-")
	check.That(t, err == nil && len(left) == 0, "left %v, %v", left, err)
}
