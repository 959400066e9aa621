// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// firstProxied and proxiedPool are the first address and the size of the pool for which a proxy
	// answers.
	firstProxied = 20
	proxiedPool  = 201
	// ignoredLimit is how long addresses may stay Quarantined for a MAC that the pool ignores.
	ignoredLimit = 5 * time.Second
)

// meetsProxy shows that a host that answers for each address of a pool costs the pool few addresses,
// and that these return once the pool ignores the host.
func (a *act) meetsProxy(ctx context.Context) error {
	host, err := a.proxy(ctx)
	if err != nil {
		return err
	}
	pool := a.namespace + "-proxy"
	err = a.addPool(ctx, pool, v1alpha1.IPPoolSpec{
		Subnet: underlay.String(), IPs: a.ips(firstProxied, proxiedPool), Default: ptr.To(true),
	})
	if err != nil {
		return err
	}
	chronicle, err := a.keepChronicle(ctx, pool)
	if err != nil {
		return err
	}
	a.story.Say("A proxy with MAC %s answers for all %d addresses of another pool. Pod fourth asks for one.", host.MAC, proxiedPool)
	if err := a.startPod(ctx, "fourth", a.Node(1), nil); err != nil {
		return err
	}
	if err := a.namesProxy(ctx, "fourth", pool, host); err != nil {
		return err
	}
	aside := quarantined(chronicle)
	if len(aside) == 0 || len(aside) > v1alpha1.ManyAddresses {
		return fmt.Errorf("%d addresses were Quarantined for one host, not 1 to %d: %v", len(aside), v1alpha1.ManyAddresses, aside)
	}
	a.figures.add(fmt.Sprintf("addresses set aside, of %d that a proxy answers for", proxiedPool), len(aside))
	return a.ignoresProxy(ctx, chronicle, pool, host, aside)
}

// proxy plugs in a host that answers ARP for each address of the scenario.
func (a *act) proxy(ctx context.Context) (*cluster.Host, error) {
	host, err := a.foreignHost("proxy", netip.PrefixFrom(a.address(250), underlay.Bits()))
	if err != nil {
		return nil, err
	}
	all := netip.PrefixFrom(a.address(0), 24).String()
	_, err = host.Exec(ctx, "ip", "route", "add", "local", all, "dev", "lo")
	return host, err
}

// namesProxy judges that the pod and the pool name the host that answers for all addresses.
func (a *act) namesProxy(ctx context.Context, pod, pool string, host *cluster.Host) error {
	why := host.MAC.String() + " answers for more than 10 addresses on parent"
	event, err := a.event(ctx, pod, "FailedCreatePodSandBox", why)
	if err != nil {
		return err
	}
	a.story.Say("Pod %s is refused. Its event: %q", pod, event.Message)
	found, err := a.condition(ctx, pool, v1alpha1.ConditionAnsweredByOne, metav1.ConditionTrue)
	if err != nil {
		return err
	}
	if !strings.Contains(found.Message, host.MAC.String()) {
		return fmt.Errorf("condition %s of pool %s does not name %s: %q", found.Type, pool, host.MAC, found.Message)
	}
	a.story.Say("Condition %s of the pool: %q", found.Type, found.Message)
	return nil
}

// ignoresProxy has the pool ignore the host, and judges that the addresses that were set aside are
// free at once and that the pod gets an address.
func (a *act) ignoresProxy(ctx context.Context, c *chronicle, pool string, host *cluster.Host, aside []netip.Addr) error {
	named := time.Now()
	err := a.editPool(ctx, pool, func(s *v1alpha1.IPPoolSpec) {
		s.ConflictDetection = &v1alpha1.ConflictDetection{IgnoreMACs: []string{host.MAC.String()}}
	})
	if err != nil {
		return err
	}
	var last time.Time
	for _, addr := range aside {
		free, err := c.wait(ctx, ignoredLimit, addr, named, "deleted", func(e entry) bool { return e.gone })
		if err != nil {
			return err
		}
		if free.at.After(last) {
			last = free.at
		}
	}
	a.figures.add("all addresses back after ignoreMACs named the proxy", last.Sub(named))
	running, err := a.running(ctx, 1, func(p *corev1.Pod) bool { return p.Name == "fourth" })
	if err != nil {
		return err
	}
	a.figures.add("refused pod Running after ignoreMACs named the proxy", time.Since(named))
	if err := a.boundTo(ctx, addressOf(running[0]), running[0].UID); err != nil {
		return err
	}
	if _, err := a.condition(ctx, pool, v1alpha1.ConditionAnsweredByOne, metav1.ConditionFalse); err != nil {
		return err
	}
	a.story.Say("The pool ignores the proxy. All %d addresses were free after %s, and pod fourth has %s.", len(aside), round(last.Sub(named)), addressOf(running[0]))
	return nil
}

// quarantined returns the addresses that have been Quarantined up to now, each once.
func quarantined(c *chronicle) (all []netip.Addr) {
	entries, _ := c.all()
	seen := map[netip.Addr]bool{}
	for _, e := range entries {
		if addr := e.Spec.Addr(); isQuarantined(e) && !seen[addr] {
			seen[addr] = true
			all = append(all, addr)
		}
	}
	return all
}
