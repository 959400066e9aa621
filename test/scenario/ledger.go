// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
)

// account is what was done with one lease.
type account struct {
	addr netip.Addr
	// podUID is that of the first holder.
	podUID string
	// taken counts how often it was quarantined that was not, freed how often it was
	// deleted.
	taken, freed int
	state        v1alpha1.LeaseState
}

// ledger holds the accounts of a chronicle's leases.
type ledger map[types.UID]*account

func ledgerOf(entries []entry) ledger {
	l := ledger{}
	for _, e := range entries {
		a := l[e.UID]
		if a == nil {
			a = &account{}
			a.addr, _ = netip.ParseAddr(e.Spec.Address) // the API server has checked it
			if e.Spec.Holder != nil {
				a.podUID = e.Spec.Holder.PodUID
			}
			l[e.UID] = a
		}
		switch {
		case e.gone:
			a.freed++
		case e.Spec.State == v1alpha1.StateQuarantined && a.state != v1alpha1.StateQuarantined:
			a.taken++
		}
		a.state = e.Spec.State
	}
	return l
}

// from keeps the leaked leases from an address on.
func (l ledger) from(first netip.Addr) ledger {
	kept := ledger{}
	for uid, a := range l {
		if !a.addr.Less(first) {
			kept[uid] = a
		}
	}
	return kept
}

func (l ledger) quarantined() int {
	sum := 0
	for _, a := range l {
		sum += min(a.taken, 1)
	}
	return sum
}

func (l ledger) freed() int {
	sum := 0
	for _, a := range l {
		sum += min(a.freed, 1)
	}
	return sum
}

// once returns an error unless each lease was taken once and freed once.
func (l ledger) once() error {
	var errs []error
	for _, a := range l {
		if a.taken != 1 || a.freed != 1 {
			errs = append(errs, fmt.Errorf("%s was taken %d times and freed %d times", a.addr, a.taken, a.freed))
		}
	}
	return errors.Join(errs...)
}

// reclaimedOnce waits until the leases that were leaked from an address on are
// gone. Each was taken once and freed once, by the record and by the audit logs of
// all controllers and agents.
func (a *act) reclaimedOnce(ctx context.Context, c *chronicle, from netip.Addr) error {
	entries, err := c.until(ctx, reclaimLimit, "the end of all leaked leases", func(all []entry) bool {
		return ledgerOf(all).from(from).freed() == leakedLeases
	})
	if err != nil {
		return err
	}
	leaked := ledgerOf(entries).from(from)
	if err := leaked.once(); err != nil {
		return err
	}
	// The line of the last one may follow its write.
	err = eventually(ctx, eventLimit, "audit logs that agree", func(ctx context.Context) error { return leaked.auditedOnce(ctx, a.Nodes()) })
	if err != nil {
		return err
	}
	a.story.Say("Leases and audit logs agree: each of the %d leases was quarantined once and freed once.", len(leaked))
	return nil
}

// auditedOnce returns an error unless the audit logs tell of at most one reclaim of
// each lease, since a controller may be killed before it has told, and of one end.
func (l ledger) auditedOnce(ctx context.Context, nodes []*cluster.Node) error {
	var reclaims, frees []string
	for _, n := range nodes {
		taken, err := l.audited(ctx, n, "controller", "reclaim")
		if err != nil {
			return err
		}
		freed, err := l.audited(ctx, n, "agent", "free")
		if err != nil {
			return err
		}
		reclaims, frees = append(reclaims, taken...), append(frees, freed...)
	}
	if twice := append(repeated(reclaims), repeated(frees)...); len(twice) > 0 || len(frees) != len(l) {
		return fmt.Errorf("they tell of %d reclaims and %d ends of %d leases, and twice of %v", len(reclaims), len(frees), len(l), twice)
	}
	return nil
}

// audited returns the holders of the ledger's leases that the audit lines of one
// kind name, in all logs that a node has of a container.
func (l ledger) audited(ctx context.Context, node *cluster.Node, container, kind string) ([]string, error) {
	logs, err := node.Exec(ctx, "sh", "-c", fmt.Sprintf("cat /var/log/pods/%s_fenceline-%s-*/%s/*.log || true", cluster.FencelineNamespace, container, container))
	if err != nil {
		return nil, err
	}
	holders := map[string]bool{}
	for _, a := range l {
		holders[a.podUID] = true
	}
	var found []string
	for line := range strings.Lines(logs) {
		if !strings.Contains(line, `"logger":"audit"`) || !strings.Contains(line, `"msg":"`+kind+`"`) {
			continue
		}
		_, rest, _ := strings.Cut(line, `"uid":"`)
		if uid, _, _ := strings.Cut(rest, `"`); holders[uid] {
			found = append(found, uid)
		}
	}
	return found, nil
}

// repeated returns what occurs more than once.
func repeated(words []string) []string {
	count := map[string]int{}
	var twice []string
	for _, w := range words {
		if count[w]++; count[w] == 2 {
			twice = append(twice, w)
		}
	}
	return twice
}
