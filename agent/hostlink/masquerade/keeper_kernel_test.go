// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package masquerade

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

// gauges are the faults that are present.
type gauges map[string]bool

func (g gauges) set(family, reason string, present bool) {
	delete(g, family+" "+reason)
	if present {
		g[family+" "+reason] = true
	}
}

func TestTheKeeperReportsWhatHostLinksLack(t *testing.T) {
	r := newRig(t)
	var entries []*attachment.Entry
	var unknown, unreached error
	faults, recorder := gauges{}, events.NewFakeRecorder(10)
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	k := NewKeeper(Options{
		Reporter: event.Reporter{Node: "n1", Events: recorder, Log: testr.New(t), Clock: clock},
		Entries:  func() []*attachment.Entry { return entries }, Services: func() error { return unknown },
		Reach: func(bool) error { return unreached }, SetFault: faults.set,
	})
	for _, step := range []struct {
		does  string
		do    func() error
		event string
		fault string
	}{
		{"without host links", func() error {
			entries = []*attachment.Entry{{Addresses: []attachment.Address{{Addr: addr("ipv6", podHost)}}}}
			return nil
		}, "", ""},
		{"forwarding is off without host links", forward("0"), "", ""},
		{"the first host link", func() error {
			k.Prepare()
			if err := Check(); err != nil {
				return err
			}
			entries[0].Routing = &attachment.Routing{HostLink: true}
			return nil
		}, "ForwardingOff net.ipv6.conf.all.forwarding is 0", "ipv6 forwarding"},
		{"nothing", func() error { return nil }, "", "ipv6 forwarding"},
		{"forwarding is on", forward("1"), "", ""},
		{"the service CIDRs are unknown", func() error { unknown = errors.New("nobody names them"); return nil }, "ServiceCIDRsUnknown pods get no routes to Services: nobody names them", "ipv6 services"},
		{"they are known", func() error { unknown = nil; return nil }, "", ""},
		{"pods of other nodes do not answer", func() error { unreached = errors.New("none answers"); return nil }, "PodsOfOthersUnreachable none answers", "ipv6 reach"},
		{"they answer", func() error { unreached = nil; return nil }, "", ""},
		{"forwarding is off again", forward("0"), "ForwardingOff", "ipv6 forwarding"},
		{"forwarding is on again", forward("1"), "", ""},
		{"the rules are flushed", flush, "HostLinkRulesRestored table ip6 fenceline of nftables: the rules of host links are not complete: there is no table", ""},
		{"the rules are flushed soon again", flush, "", ""},
		{"the rules are flushed after ten minutes", func() error { clock.Step(tellInterval); return flush() }, "HostLinkRulesRestored", ""},
	} {
		check.OK(r, r.node.Do(func() error {
			err := step.do()
			k.look()
			if len(entries[0].Addresses) > 0 && entries[0].Routing != nil {
				err = errors.Join(err, families()[1].do(hostlink.Ruleset.Check))
			} else if missing := families()[1].do(hostlink.Ruleset.Check); !errors.Is(missing, hostlink.ErrIncomplete) {
				t.Errorf("%s: the node has rules (%v)", step.does, missing)
			}
			return err
		}))
		select {
		case got := <-recorder.Events:
			check.That(t, step.event != "" && strings.Contains(got, "Warning "+step.event), "%s: event %q, want %q", step.does, got, step.event)
		default:
			check.That(t, step.event == "", "%s: no event, want %q", step.does, step.event)
		}
		if want := step.fault; len(faults) > 1 || (want == "") != (len(faults) == 0) || want != "" && !faults[want] {
			t.Errorf("%s: faults %v, want %q", step.does, faults, want)
		}
	}
}

// forward switches the forwarding of IPv6 on or off.
func forward(value string) func() error {
	return func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte(value), 0) }
}

// firewalld has the rules of firewalld 2 with its default zone, as far as they concern pods. Zones are filled
// in by the test: of trusted sources, and of everything else.
const firewalld = `table inet firewalld {
	chain trusted {
		TRUSTED
	}
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump trusted
		meta l4proto { icmp, ipv6-icmp } accept
		tcp dport 22 accept
		reject with icmpx admin-prohibited
	}
	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy accept
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump trusted
		meta l4proto { icmp, ipv6-icmp } accept
		reject with icmpx admin-prohibited
	}
}`

// What docs/operations.md says about firewalld.
func TestFirewalldLetsServicesAndProbesPass(t *testing.T) {
	r := newRig(t)
	pod := r.pod(podHost)
	r.ensure()
	for _, f := range families() {
		pod.Echo(r, "tcp", netip.AddrPortFrom(addr(f.Name, podHost), backendPort))
		r.node.Echo(r, "tcp", netip.AddrPortFrom(addr(f.Name, nodeHost), backendPort))
		r.other.Echo(r, "tcp", netip.AddrPortFrom(addr(f.Name, otherHost), backendPort))
		r.translate("tcp", clusterIP(f.Name, serviceOfOther), addr(f.Name, otherHost))
	}
	for name, trusted := range map[string]string{"by default": "", "with the pods' subnets trusted": "ip saddr 10.0.0.0/24 accept; ip6 saddr fd00::/64 accept"} {
		nft := r.node.Command(t.Context(), "nft", "-f", "-")
		nft.Stdin = strings.NewReader("table inet firewalld\ndelete table inet firewalld\n" + strings.Replace(firewalld, "TRUSTED", trusted, 1))
		out, err := nft.CombinedOutput()
		check.Must(t, err == nil, "%v: %s", err, out)
		for _, f := range families() {
			r.wantSource(name+": a probe of the node", r.node, "tcp", netip.AddrPortFrom(addr(f.Name, podHost), backendPort), addr(f.Name, nodeHost))
			r.wantSource(name+": a Service", pod, "tcp", netip.AddrPortFrom(clusterIP(f.Name, serviceOfOther), servicePort), addr(f.Name, nodeHost))
			got, err := sourceOf(pod, "tcp", netip.AddrPortFrom(addr(f.Name, nodeHost), backendPort), time.Second)
			check.That(t, (err == nil) == (trusted != ""), "%s: a pod to a port of its node over %s: %s, %v", name, f.Name, got, err)
		}
	}
}
