// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fenceline/fenceline/test/images"
)

// otherIPAM is an IPAM from which a network moves.
type otherIPAM struct {
	name string
	// ranges are its configuration of a part of moved, if network is for several only.
	ranges map[string]any
	// onOne: each node gives addresses alone, so only one of them has pods of it.
	onOne bool
	// install makes it ready for a move.
	install func(ctx context.Context, a *act)
	// network returns the plugins of a network with ranges of both families.
	network func(ctx context.Context, a *act, name string, ranges ...netip.Prefix) []map[string]any
	// beforeFinish does what a person does to the pools before the end of a move, or is nil.
	beforeFinish func(ctx context.Context, a *act, pools []string)
	// takesBack: networks move out to it.
	takesBack bool
}

// fromWhereabouts is the real whereabouts.
var fromWhereabouts = otherIPAM{
	name: "whereabouts", takesBack: true,
	ranges: map[string]any{"range": moved.String(), "range_start": "10.79.0.10", "range_end": "10.79.0.99"},
	install: func(ctx context.Context, a *act) {
		a.after("remove whereabouts", func(ctx context.Context) { check(a.RemoveWhereabouts(ctx)) })
		check(a.InstallWhereabouts(ctx))
	},
	network: func(_ context.Context, _ *act, _ string, ranges ...netip.Prefix) []map[string]any {
		var all []map[string]any
		for _, r := range ranges {
			all = append(all, map[string]any{"range": r.String()})
		}
		return []map[string]any{macvlan(map[string]any{"type": "whereabouts", "ipRanges": all}, nil)}
	},
}

// span returns the first and the last address of a part of a prefix.
func span(r netip.Prefix) (first, last string) {
	a := r.Addr().AsSlice()
	end := func(last byte) string {
		a[len(a)-1] = last
		addr, _ := netip.AddrFromSlice(a)
		return addr.String()
	}
	return end(10), end(99)
}

// poolNames are the names of the pools that the ranges of a network become.
func poolNames(network string, ranges []netip.Prefix) []string {
	if len(ranges) == 1 {
		return []string{network}
	}
	return []string{network, network + "-2"}
}

// hostLocalDir is where host-local keeps its files.
const hostLocalDir = "/var/lib/cni/networks"

// hostLocalValue is the value of the chart for a move from host-local.
const hostLocalValue = "moveIn.hostLocalDir=" + hostLocalDir

// fromHostLocal is the real host-local, whose directory the agents mount meanwhile.
var fromHostLocal = otherIPAM{
	name: "host-local", onOne: true,
	ranges: map[string]any{"subnet": moved.String(), "rangeStart": "10.79.0.10", "rangeEnd": "10.79.0.99"},
	install: func(ctx context.Context, a *act) {
		a.after("have the agents lose the directory of host-local", func(ctx context.Context) {
			check(errors.Join(a.InstallChart(ctx, images.DefaultVersion), a.WaitReady(ctx)))
		})
		check(errors.Join(a.InstallChart(ctx, images.DefaultVersion, hostLocalValue), a.WaitReady(ctx)))
	},
	network: func(_ context.Context, _ *act, _ string, ranges ...netip.Prefix) []map[string]any {
		var all [][]map[string]any
		for _, r := range ranges {
			first, last := span(r)
			all = append(all, []map[string]any{{"subnet": r.String(), "rangeStart": first, "rangeEnd": last}})
		}
		return []map[string]any{macvlan(map[string]any{"type": "host-local", "ranges": all}, nil)}
	},
}

// fromSpiderpool is the stand-in for Spiderpool.
var fromSpiderpool = otherIPAM{
	name: "spiderpool", takesBack: true,
	install: func(ctx context.Context, a *act) {
		s := &spiderpool{Stage: a.Stage}
		dir := value(os.MkdirTemp("", "spiderpool")) // nodes see it
		a.after("remove the socket", func(context.Context) { check(os.RemoveAll(dir)) })
		listener := value((&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(dir, "agent.sock")))
		server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(listener) }() // until it is closed; a plugin that is not answered fails
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		go wait.UntilWithContext(running, func(ctx context.Context) { _ = s.collect(ctx) }, time.Second) // as often as it takes
		a.after("remove Spiderpool", func(ctx context.Context) {
			stop()
			check(server.Close())
			eventually(ctx, podLimit, "the end of the SpiderEndpoints", func(ctx context.Context) { check(s.collect(ctx)) })
			check(a.RemoveSpiderpool(ctx))
		})
		check(a.InstallSpiderpool(ctx, listener.Addr().String()))
	},
	network: func(ctx context.Context, a *act, name string, ranges ...netip.Prefix) []map[string]any {
		ipam := map[string]any{"type": "spiderpool"}
		for i, r := range ranges {
			pool, version, key := poolNames(name, ranges)[i], int64(4), "default_ipv4_ippool"
			if r.Addr().Is6() {
				version, key = 6, "default_ipv6_ippool"
			}
			o := spiderObject("SpiderIPPool", "", pool)
			first, last := span(r)
			o.Object["spec"] = map[string]any{
				"ipVersion": version, "subnet": r.String(), "ips": []any{first + "-" + last}, "vlan": int64(0), "default": false, "disable": false,
			}
			did(a.api.Create(ctx, o), "make SpiderIPPool %s", pool)
			ipam[key] = []string{pool}
		}
		return []map[string]any{macvlan(ipam, nil), {"type": "coordinator"}}
	},
	beforeFinish: func(ctx context.Context, a *act, pools []string) {
		for _, pool := range pools {
			a.patch(ctx, spiderObject("SpiderIPPool", "", pool), `{"spec":{"disable":true}}`)
		}
	},
}
