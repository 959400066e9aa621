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

// deafLimit is how long it takes until no agent has heard another one lately,
// and a bit.
const deafLimit = segment.HearingWindow + 30*time.Second

// playDeaf: silence that a deaf listener hears proves nothing (R2).
//
// Every node is alone on the underlay. The zombie's node is cut off, and the
// others can neither fence the zombie nor hear it; nor would they hear anybody
// else, and that is what tells them that the silence means nothing.
func playDeaf(ctx context.Context, a *act) error {
	a.after("join the underlay", a.JoinUnderlay)
	if err := a.SplitUnderlay(); err != nil {
		return err
	}
	split := time.Now()
	a.story.Say("The underlay falls apart: every node is alone on its part of it, and has carrier all the same.")
	z, err := a.stageDeployment(ctx, nil)
	if err != nil {
		return err
	}
	a.story.Say("What a node has heard counts for %s. We wait until the agents say themselves that they are deaf.", segment.HearingWindow)
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
	a.story.Say("The underlay is whole again.")
	successor, err := z.reissued(ctx)
	if err != nil {
		return err
	}
	z.figures.add("address with a new pod, after the underlay was whole", time.Since(healed))
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

// staysSetAside: the verdict is Unknown, again and again, the message says why,
// and the address goes to nobody.
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
	z.story.Say("After %d tries it is still set aside, and the replacement waits. The zombie still serves its clients.", tries)
	return nil
}
