package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
)

// returnLimit is how long an address may stay set aside after the foreign host
// has left: it is probed again after 10, then 20 seconds.
const returnLimit = 60 * time.Second

// playConflict: an address that somebody else uses is not handed out.
//
// The pool has three addresses. A neighbour has one, another pod has had the
// second, which cools down; the next pod is sure to be offered the third, which a
// foreign host uses.
func playConflict(ctx context.Context, a *act) error {
	err := a.makePool(ctx, 3, func(s *v1alpha1.IPPoolSpec) {
		s.Reclaim = &v1alpha1.Reclaim{Cooldown: &metav1.Duration{Duration: 10 * time.Minute}}
	})
	if err != nil {
		return err
	}
	chronicle, err := a.keepChronicle(ctx, a.namespace)
	if err != nil {
		return err
	}
	node := a.Node(1)
	first, err := a.runPod(ctx, "first", node, nil)
	if err != nil {
		return err
	}
	// Whom this node hears, so that the silence of others counts (R2).
	neighbour, err := a.runPod(ctx, "neighbour", a.Node(3), nil)
	if err != nil {
		return err
	}
	had, used := addressOf(first), a.address(firstHost)
	for used == had || used == addressOf(neighbour) {
		used = used.Next()
	}
	host, err := a.foreignHost("printer", netip.PrefixFrom(used, underlay.Bits()))
	if err != nil {
		return err
	}
	a.story.Say("A pool of three addresses. A neighbour has one, pod first has %s; a printer that nobody registered uses the last one, %s, by MAC %s.", had, used, host.MAC)
	if err := a.deletePod(ctx, first, false); err != nil {
		return err
	}
	started := time.Now()
	if _, err := chronicle.wait(ctx, podLimit, had, started, "deleted", func(e entry) bool { return e.gone }); err != nil {
		return err
	}
	a.story.Say("Pod first ends, and %s cools down. Pod second comes, and there is only the printer's address to offer.", had)
	offered := time.Now()
	before, err := added(ctx, node)
	if err != nil {
		return err
	}
	second, err := a.runPod(ctx, "second", node, nil)
	if err != nil {
		return err
	}
	a.figures.add("pod with a conflict Running", time.Since(offered))
	after, err := added(ctx, node)
	if err != nil {
		return err
	}
	if after-before != 1 {
		return fmt.Errorf("the pod took %v ADDs, not one", after-before)
	}
	if err := a.setAside(ctx, chronicle, second, had, used, host); err != nil {
		return err
	}
	return a.comesBack(ctx, chronicle, host)
}

// setAside: the pod got the other address in the same ADD, and the record names
// the foreign host.
func (a *act) setAside(ctx context.Context, c *chronicle, pod *cluster.Pod, had, used netip.Addr, host *cluster.Host) error {
	if addressOf(pod) != had {
		return fmt.Errorf("pod %s has %s, not %s", pod.Name, addressOf(pod), had)
	}
	conflict, err := c.wait(ctx, eventLimit, used, time.Time{}, "Quarantined for a conflict", isQuarantined)
	if err != nil {
		return err
	}
	spec := conflict.Spec
	if spec.Reason != v1alpha1.ReasonConflict || spec.Conflict == nil || spec.Conflict.MAC != host.MAC.String() {
		return fmt.Errorf("%s does not name the foreign host %s: %+v", conflict, host.MAC, ptr.Deref(spec.Conflict, v1alpha1.Conflict{}))
	}
	event, err := a.event(ctx, pod.Name, "AddressConflict", host.MAC.String())
	if err != nil {
		return err
	}
	if err := a.show(ctx, "get", "fllease", "-o", "wide"); err != nil {
		return err
	}
	a.story.Say("The pod has %s, from the same ADD. Its event says: %q", had, event.Message)
	return nil
}

// comesBack: without the foreign host the address is free again.
func (a *act) comesBack(ctx context.Context, c *chronicle, host *cluster.Host) error {
	if _, err := host.Exec(ctx, "ip", "link", "set", "eth0", "down"); err != nil {
		return err
	}
	left := time.Now()
	a.story.Say("The printer is switched off. Nobody tells Fenceline.")
	_, err := c.wait(ctx, returnLimit, host.Addr, left, "deleted", func(e entry) bool { return e.gone })
	if err != nil {
		return err
	}
	a.figures.add("address back after the foreign host left", time.Since(left))
	a.story.Say("After %s its address is free again.", round(time.Since(left)))
	return nil
}

// added counts the ADDs on a node, whatever became of them.
func added(ctx context.Context, node *cluster.Node) (float64, error) {
	return agents(ctx, []*cluster.Node{node}, "fenceline_cni_duration_seconds", map[string]string{"verb": "ADD"})
}
