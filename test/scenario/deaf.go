// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// deafLimit is how long the agents may take to report that they are deaf.
const deafLimit = segment.HearingWindow + 30*time.Second

// playDeaf shows that silence on a deaf parent proves nothing (R2).
//
// Each node is alone on the underlay, and the management cable of the zombie's node is cut. The other
// nodes can neither fence the zombie nor hear it. They hear no other node either, so they know that
// silence proves nothing.
func playDeaf(ctx context.Context, a *act) error {
	a.after("join the underlay", a.JoinUnderlay)
	if err := a.SplitUnderlay(); err != nil {
		return err
	}
	split := time.Now()
	a.story.Say("The underlay is split: each node is alone on its part, and its interface still has carrier.")
	z, err := a.stageDeployment(ctx, nil)
	if err != nil {
		return err
	}
	a.story.Say("A frame of another node is evidence of hearing for %s. After that, the agents report that they are deaf.", segment.HearingWindow)
	if err := z.othersAreDeaf(ctx); err != nil {
		return err
	}
	z.figures.add("agents deaf, from the split", time.Since(split))
	if err := z.cutOff(ctx); err != nil {
		return err
	}
	if err := z.staysSetAside(ctx); err != nil {
		return err
	}
	if err := a.JoinUnderlay(ctx); err != nil {
		return err
	}
	healed := time.Now()
	a.story.Say("The underlay is one segment again.")
	successor, err := z.reissued(ctx)
	if err != nil {
		return err
	}
	z.figures.add("address bound to a new pod, after the split ended", time.Since(healed))
	if err := z.fencedFor(ctx, successor, healed); err != nil {
		return err
	}
	return z.comesHome(ctx, successor)
}

// othersAreDeaf waits until no agent of a live node counts silence as proof.
func (z *zombie) othersAreDeaf(ctx context.Context) error {
	return eventually(ctx, deafLimit, "deaf agents", func(ctx context.Context) error {
		for _, n := range z.others(z.pod.Node) {
			m, err := scrape(ctx, n, agentMetrics)
			if err != nil {
				return err
			}
			deaf, series := m.sum("fenceline_segment_deaf", map[string]string{"parent": cluster.UnderlayInterface})
			if series != 1 || deaf != 1 {
				return fmt.Errorf("the agent of %s hears others on %d of %d parents", n.Name(), series-int(deaf), series)
			}
		}
		return nil
	})
}

// staysSetAside judges that each verdict is Unknown, that the message of the lease says why, and that
// the address stays Quarantined.
func (z *zombie) staysSetAside(ctx context.Context) error {
	unknown := map[string]string{"verdict": string(segment.Unknown)}
	before, err := agents(ctx, z.others(z.pod.Node), "fenceline_verifications_total", unknown)
	if err != nil {
		return err
	}
	entry, err := z.chronicle.wait(ctx, reclaimLimit, z.addr, z.cut, "Quarantined with a message", isUnknown)
	if err != nil {
		return err
	}
	z.figures.add("verdict Unknown, from the cut", entry.at.Sub(z.cut))
	z.story.Say("Verdict Unknown: %q", entry.Spec.Message)
	if err := z.show(ctx, "get", "fllease", z.addr.String(), "--output=wide"); err != nil {
		return err
	}
	const tries = 4
	err = eventually(ctx, reclaimLimit, fmt.Sprintf("%d verdicts of Unknown", tries), func(ctx context.Context) error {
		now, err := agents(ctx, z.others(z.pod.Node), "fenceline_verifications_total", unknown)
		if err != nil {
			return err
		}
		if now-before < tries {
			return fmt.Errorf("there are %v", now-before)
		}
		return nil
	})
	if err != nil {
		return err
	}
	entries, _ := z.chronicle.of(z.addr)
	for _, e := range entries {
		if !e.at.Before(entry.at) && !isQuarantined(e) {
			return fmt.Errorf("the address was not to leave its quarantine: %s", e)
		}
	}
	frames := z.capture.Frames()
	if speakers := capture.Speakers(capture.After(frames, z.cut), z.addr); len(speakers) != 1 || speakers[0] != z.mac.String() {
		return fmt.Errorf("%v speak for %s, not only the zombie %s", speakers, z.addr, z.mac)
	}
	if err := z.alive(ctx, z.pod); err != nil {
		return errors.Join(errors.New("the zombie was to live on"), err)
	}
	z.story.Say("After %d verifications, the address is still Quarantined, and the new pod waits. The zombie still serves its clients.", tries)
	return nil
}
