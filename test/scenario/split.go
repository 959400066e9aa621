// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// loudLimit is how long two owners may reach each other if one of them speaks.
	loudLimit = 100 * time.Millisecond
	// quietLimit is the same for two quiet owners: the longest time between two claims of a holder,
	// and one second for their evaluation.
	quietLimit = 75*time.Second + time.Second
)

// playSplit: an address has two owners in two parts of the underlay. The parts are joined, and the
// newer token wins.
//
// The zombie's node is alone on its part of the underlay. The other nodes hear each other, so the silence of the
// zombie counts, and its addresses are given to new pods while it lives. One pair of owners is loud, one is quiet.
func playSplit(ctx context.Context, a *act) {
	loud, quiet := a.stageTwo(ctx)
	loud.cutOff(ctx)
	quiet.cut = loud.cut
	a.joinLater()
	check(a.SplitOff(ctx, loud.pod.Node))
	a.story.Say("The underlay is split as well: %s is alone on its part, and its interface still has carrier.", loud.pod.Node.Name())
	loudNew := loud.successor(ctx)
	quietNew := quiet.successor(ctx)
	loud.twoOwners(ctx, loudNew, quiet)
	quiet.announcedAll(ctx, quietNew)
	asked := time.Now()
	check(a.JoinUnderlay(ctx))
	a.story.Say("The underlay is one segment again.")
	loud.newerWins(ctx, loudNew, asked, time.Now())
	quiet.newerWinsQuietly(ctx, quietNew, asked)
	loud.comesHome(ctx, loudNew)
}

// stageTwo makes a full pool with two pods on each node. On the node that will be cut off, the first pod is loud:
// it announces its address all the time, and a client uses it. The other pod is quiet, and has no client.
func (a *act) stageTwo(ctx context.Context) (loud, quiet *zombie) {
	size := 2 * len(a.Nodes())
	a.makePool(ctx, size, nil)
	node := a.victim(ctx)
	a.deploy(ctx, size, evicted)
	pods := a.running(ctx, size, everyPod)
	pods = slices.DeleteFunc(pods, func(p *cluster.Pod) bool { return p.Node.Name() != node.Name() })
	must(len(pods) == 2, "%d pods are on %s, not 2", len(pods), node.Name())
	a.story.Say("A pool of %d addresses, all in use. On %s, a client uses pod %s with %s. No client uses pod %s with %s.",
		size, node.Name(), pods[0].Name, addressOf(pods[0]), pods[1].Name, addressOf(pods[1]))
	loud = a.zombieOf(ctx, pods[0])
	return loud, a.quietZombie(pods[1], loud.chronicle, loud.witness)
}

// twoOwners judges that there are two: the switch receives frames of both for the same address, and
// no claim was acknowledged.
func (z *zombie) twoOwners(ctx context.Context, successor *cluster.Pod, quiet *zombie) {
	since := time.Now()
	z.hearsOnly(ctx, successor, since)
	z.bothSpeak(ctx, successor, since)
	for _, other := range []*zombie{z, quiet} {
		acks := capture.Of(capture.About(capture.After(z.capture.Frames(), z.cut), other.addr), "ack")
		if len(acks) > 0 {
			fail("%s was to be taken by silence, and there is %s", other.addr, acks[0])
		}
		must(other.pod.Alive(), "the zombie %s has died", other.pod.Name)
	}
	z.story.Say("Verdict Silent, because the other nodes hear each other. Each of the two addresses now has two owners that cannot hear each other.")
}

// newerWins: two owners exist for at most loudLimit after the parts are joined. Nothing crosses before
// asked, everything after joined. The claim of a defence asks no holder for an ack, so the silence of
// the old owner is judged. Clients are judged from the announcement on that follows the claim, pings
// once their host has heard it: until then, the old owner had their frames.
func (z *zombie) newerWins(ctx context.Context, successor *cluster.Pod, asked, joined time.Time) {
	change := z.changeTo(successor)
	limited, cancel := context.WithTimeout(ctx, eventLimit)
	defer cancel()
	claim, err := z.capture.Wait(limited, func(f capture.Frame) bool {
		return f.Time.After(asked) && f.Kind == "claim" && f.Target == z.addr && f.Port != change.OldPort
	})
	did(err, "nobody claimed %s from its older owner", z.addr)
	took := claim.Time.Sub(joined)
	must(took <= loudLimit, "the older owner of %s was fenced %s after the underlay was whole", z.addr, took)
	announced, err := z.capture.Wait(limited, func(f capture.Frame) bool {
		return f.Time.After(claim.Time) && bytes.Equal(f.Source, change.New) && slices.Contains(f.Speaks, z.addr)
	})
	did(err, "nobody announced %s after the claim", z.addr)
	z.sendsTo(ctx, successor)
	z.hearsOnly(ctx, successor, announced.Time)
	check(change.OnlyNewAfter(z.capture.Frames(), claim.Time.Add(capture.FenceLimit)))
	crossed := capture.From(capture.SpokenFor(capture.After(z.capture.Frames(), asked), z.addr), z.mac)
	must(len(crossed) != 0, "the older owner of %s was quiet, so its silence proves nothing", z.addr)
	z.isMute()
	z.story.Say("%s after the underlay was whole, a claim from %s fenced it.", max(0, round(took)), claim.Port)
}

// newerWinsQuietly: both owners are quiet, and one repeats its claim within the claim period (R3), which decides.
// The newer owner answers an older claim. Its claim asks for an ack of that sender, which the zombie's kernel does
// not give, so its silence is judged. Quiet owners send nothing that the other's node hears. They may answer their
// router, which sends ARP requests when a node checks its way to pods of other nodes.
func (z *zombie) newerWinsQuietly(ctx context.Context, successor *cluster.Pod, asked time.Time) {
	limited, cancel := context.WithDeadline(ctx, asked.Add(quietLimit))
	defer cancel()
	port := "ul-" + successor.Node.Name()
	claim, err := z.capture.Wait(limited, func(f capture.Frame) bool {
		return f.Time.After(asked) && f.Kind == "claim" && f.Target == z.addr && f.Port == port
	})
	did(err, "nobody claimed %s from its older, quiet owner within %s", z.addr, quietLimit)
	change := z.changeTo(successor)
	spoken := capture.ToAll(capture.SpokenFor(capture.After(z.capture.Frames(), asked), z.addr))
	if len(spoken) > 0 && spoken[0].Time.Before(claim.Time) {
		fail("the owners were to be quiet: %s", spoken[0])
	}
	z.answersARP(ctx, z.addr)
	z.hears(ctx, successor)
	check(change.OnlyNewAfter(z.capture.Frames(), claim.Time.Add(capture.InFlight)))
	must(z.pod.Alive(), "the zombie %s has died, so its silence proves nothing", z.pod.Name)
	z.story.Say("The quiet pair: after %s, a claim was repeated, and the newer token won. Only pod %s answers.", round(claim.Time.Sub(asked)), successor.Name)
}

// announcedAll waits until a new holder has sent its last announcement: its kernel and its agent
// send two each, two seconds apart (RFC 5227).
func (z *zombie) announcedAll(ctx context.Context, successor *cluster.Pod) {
	const silence = 2500 * time.Millisecond
	mac := macOf(successor)
	eventually(ctx, eventLimit, "silence of the new owner of "+z.addr.String(), func(context.Context) {
		spoken := capture.From(capture.SpokenFor(z.capture.Frames(), z.addr), mac)
		must(len(spoken) != 0, "it was not announced yet")
		if last := spoken[len(spoken)-1]; time.Since(last.Time) < silence {
			fail("it spoke just now: %s", last)
		}
	})
}
