// SPDX-License-Identifier: Apache-2.0

//go:build bench

package hostlink

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

// BenchmarkHostLink makes and removes host links of dual-stack pods. It prints the median of each step,
// and of a bare veth pair, made and set up in the same pods. The guard is
// not in it: package bpf measures it.
func BenchmarkHostLink(b *testing.B) {
	r := newRig(b)
	times := map[string][]time.Duration{}
	took := func(step string, do func() error) {
		began := time.Now()
		check.OK(r, do())
		times[step] = append(times[step], time.Since(began))
	}
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("p%d", i)
		pod, entries := r.pod(name, []string{fmt.Sprintf("10.0.0.%d/24", i%250+2), fmt.Sprintf("fd00::%x/64", i+256)})
		e := entries[0]
		p := check.Value(openPod(e))(r)
		took("make", func() error {
			node := check.Value(r.links.nodeAddresses())(r)
			plan, known, err := r.links.plan(e, p, node)
			check.OK(r, err)
			took("make: pair and settings of the node", func() error { _, err := r.links.putNodeEnd(e, p, plan, mend); return err })
			took("make: side of the pod", func() error { return p.putLink(e, plan, known, mend) })
			took("make: side of the node", func() error { return r.links.putNodeSide(e, plan, mend) })
			took("make: rules", func() error { return syncRules(p.links, plan.Rules, ofInterface(p.own.Attrs().Index), mend) })
			return nil
		})
		took("check", func() error { r.guards.linked[NodeEnd(e.Attachment())] = true; return r.links.Check(e) })
		took("remove", func() error { return r.links.Remove(e) })
		took("bare pair", func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "bare-" + name
			bare := netlink.NewVeth(attrs)
			bare.PeerName, bare.PeerNamespace = "bare0", netlink.NsFd(int(p.ns.Fd()))
			if err := r.node.Links().LinkAdd(bare); err != nil {
				return err
			}
			return errors.Join(r.node.SetUp(attrs.Name, true), pod.SetUp("bare0", true))
		})
		check.OK(r, r.node.DeleteLink("bare-"+name))
		p.Close()
		check.OK(r, pod.DeleteLink("eth0"))
	}
	for step, all := range times {
		b.Logf("%-36s p50 %8s of %d", step, figure.Median(all).Round(10*time.Microsecond), len(all))
	}
	figure.Report(b, "host link of a pod, made", float64(figure.Median(times["make"]))/float64(figure.Median(times["bare pair"])), "× bare veth pair")
	b.ReportMetric(float64(figure.Median(times["make"]).Microseconds())/1000, "make-ms")
	b.ReportMetric(float64(figure.Median(times["remove"]).Microseconds())/1000, "remove-ms")
}
