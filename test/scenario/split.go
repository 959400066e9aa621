// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// loudLimit is how long two owners may hear each other if one speaks.
	loudLimit = 100 * time.Millisecond
	// quietLimit is how long they may be there if both are quiet: the longest time
	// between two claims of a holder, and a second until it is looked at.
	quietLimit = 75*time.Second + time.Second
)

// playSplit: two owners of an address that could not hear each other come
// together, and the newer token wins.
//
// The zombie's node is alone on its part of the underlay. The others hear each
// other, so that the silence of the zombie counts, and its addresses are given to
// new pods while it lives. One pair of owners is loud, one is quiet.
func playSplit(ctx context.Context, a *act) error {
	loud, quiet, err := a.stageTwo(ctx)
	if err != nil {
		return err
	}
	check(loud.cutOff(ctx))
	quiet.cut = loud.cut
	a.after("join the underlay", a.JoinUnderlay)
	check(a.SplitOff(ctx, loud.pod.Node))
	a.story.Say("The underlay is split as well: %s is alone on its part, and its interface still has carrier.", loud.pod.Node.Name())
	loudNew := loud.reissued(ctx)
	quietNew := value(quiet.successor(ctx))
	check(loud.twoOwners(ctx, loudNew, quiet))
	check(quiet.announcedAll(ctx, quietNew))
	asked := time.Now()
	check(a.JoinUnderlay(ctx))
	a.story.Say("The underlay is one segment again.")
	check(loud.newerWins(ctx, loudNew, asked, time.Now()))
	check(quiet.newerWinsQuietly(ctx, quietNew, asked))
	return loud.comesHome(ctx, loudNew)
}

// stageTwo makes a full pool with two pods on each node. Of those on the node that
// will be cut the first is loud: it insists on its address, and a client uses it.
// Nobody speaks for or to the other one.
func (a *act) stageTwo(ctx context.Context) (loud, quiet *zombie, err error) {
	size := 2 * len(a.Nodes())
	check(a.makePool(ctx, size, nil))
	node := value(a.victim(ctx))
	check(a.deploy(ctx, size))
	pods := value(a.running(ctx, size, everyPod))
	pods = slices.DeleteFunc(pods, func(p *cluster.Pod) bool { return p.Node.Name() != node.Name() })
	if len(pods) != 2 {
		return nil, nil, fmt.Errorf("%d pods are on %s, not 2", len(pods), node.Name())
	}
	a.story.Say("A pool of %d addresses, all in use. On %s, a client uses pod %s with %s. No client uses pod %s with %s.",
		size, node.Name(), pods[0].Name, addressOf(pods[0]), pods[1].Name, addressOf(pods[1]))
	loud = a.zombieOf(ctx, pods[0])
	quiet = &zombie{act: a, pod: pods[1], addr: addressOf(pods[1]), chronicle: loud.chronicle, witness: loud.witness}
	quiet.mac, err = pods[1].MAC()
	return loud, quiet, err
}

// twoOwners makes sure that there are two: the switch takes frames of both for the
// same address, and no claim has been acknowledged.
func (z *zombie) twoOwners(ctx context.Context, successor *cluster.Pod, quiet *zombie) error {
	since := time.Now()
	check(z.hearsOnly(ctx, successor, since))
	check(z.bothSpeak(ctx, successor, since))
	for _, other := range []*zombie{z, quiet} {
		acks := capture.Of(capture.About(capture.After(z.capture.Frames(), z.cut), other.addr), "ack")
		if len(acks) > 0 {
			return fmt.Errorf("%s was to be taken by silence, and there is %s", other.addr, acks[0])
		}
		if !other.pod.Alive() {
			return fmt.Errorf("the zombie %s has died", other.pod.Name)
		}
	}
	z.story.Say("Verdict Silent, because the other nodes hear each other. Each of the two addresses now has two owners that cannot hear each other.")
	return nil
}

// newerWins: from the first frame of the old owner that crosses, two owners are
// there for loudLimit at most. joined is when everything crossed for sure; asked
// is before anything did. The claim of a defence asks no holder for an ack, so the
// silence of the old owner is judged.
func (z *zombie) newerWins(ctx context.Context, successor *cluster.Pod, asked, joined time.Time) error {
	change := value(z.changeTo(successor))
	check(z.hearsOnly(ctx, successor, joined.Add(loudLimit)))
	frames := capture.After(z.capture.Frames(), asked)
	claim := value(change.firstClaim(frames))
	if took := claim.Time.Sub(joined); took > loudLimit {
		return fmt.Errorf("the older owner of %s was fenced %s after the underlay was whole", z.addr, took)
	}
	check(change.onlyNewAfter(frames, claim.Time.Add(fenceLimit)))
	crossed := capture.From(capture.SpokenFor(capture.After(z.capture.Frames(), asked), z.addr), z.mac)
	if len(crossed) == 0 {
		return fmt.Errorf("the older owner of %s was quiet, so its silence proves nothing", z.addr)
	}
	if z.crier.refused.Load() == 0 {
		return fmt.Errorf("the kernel refused no frame of the zombie %s", z.pod.Name)
	}
	z.figures.add("first frame that crosses to the claim, loud", claim.Time.Sub(crossed[0].Time))
	z.figures.add("claim to the last frame of the older owner", crossed[len(crossed)-1].Time.Sub(claim.Time))
	z.story.Say("%s after the first frame of the older owner crossed, a claim from %s fenced it.", round(claim.Time.Sub(crossed[0].Time)), claim.Port)
	return nil
}

// newerWinsQuietly: where both owners are quiet, a claim that one of them repeats
// brings the matter up within the claim period (R3). An older claim is answered by
// the newer one, which asks its sender for an ack and gets none from the zombie's
// kernel; so the zombie's silence is judged. Quiet owners say nothing that the other's node hears. They
// may answer their router, which asks for them when a node asks whether it reaches pods of others.
func (z *zombie) newerWinsQuietly(ctx context.Context, successor *cluster.Pod, asked time.Time) error {
	limited, cancel := context.WithDeadline(ctx, asked.Add(quietLimit))
	defer cancel()
	port := "ul-" + successor.Node.Name()
	claim, err := z.capture.Wait(limited, func(f capture.Frame) bool {
		return f.Time.After(asked) && f.Kind == "claim" && f.Target == z.addr && f.Port == port
	})
	if err != nil {
		return fmt.Errorf("nobody claimed %s from its older, quiet owner within %s: %w", z.addr, quietLimit, err)
	}
	change := value(z.changeTo(successor))
	spoken := capture.ToAll(capture.SpokenFor(capture.After(z.capture.Frames(), asked), z.addr))
	if len(spoken) > 0 && spoken[0].Time.Before(claim.Time) {
		return errors.New("the owners were to be quiet: " + spoken[0].String())
	}
	check(z.answersARP(ctx, z.addr))
	check(z.hears(ctx, successor))
	check(change.onlyNewAfter(z.capture.Frames(), claim.Time.Add(inFlight)))
	if !z.pod.Alive() {
		return fmt.Errorf("the zombie %s has died, so its silence proves nothing", z.pod.Name)
	}
	took := claim.Time.Sub(asked)
	z.figures.add("end of the split to the fence, both quiet", took)
	z.story.Say("The quiet pair: after %s, a claim was repeated, and the newer token won. Only pod %s answers.", round(took), successor.Name)
	return nil
}

// announcedAll waits until a new holder has said all that it says unasked: its
// kernel and its agent announce it twice each, two seconds apart (RFC 5227).
func (z *zombie) announcedAll(ctx context.Context, successor *cluster.Pod) error {
	const silence = 2500 * time.Millisecond
	mac := value(successor.MAC())
	return eventually(ctx, eventLimit, "silence of the new owner of "+z.addr.String(), func(context.Context) error {
		spoken := capture.From(capture.SpokenFor(z.capture.Frames(), z.addr), mac)
		if len(spoken) == 0 {
			return errors.New("it was not announced yet")
		}
		if last := spoken[len(spoken)-1]; time.Since(last.Time) < silence {
			return errors.New("it spoke just now: " + last.String())
		}
		return nil
	})
}
