// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// The node of a pod is cut off, in a pool of mode Observe. Its address is taken without a claim, and has
// two speakers. So the capture would see a second speaker in the tests of other modes.
func TestInModeObserveAZombieAndTheNextPodSpeak(t *testing.T) {
	ctx, c := cluster(t, nodes.Limit, 3)
	pool := c.NamedPool("own", "10.66.0.0/24", "10.66.0.20")
	pool.Spec.ConflictDetection = &v1alpha1.ConflictDetection{Mode: v1alpha1.ModeObserve}
	change(ctx, t, c, pool)
	c.StartController()
	dark, light := c.Nodes[0], c.Nodes[1]
	zombie := started(ctx, t, dark, "old", nodes.Wants(pool.Name))
	check.OK(t, errors.Join(dark.Fall(ctx), zombie.Outlive(ctx)))
	next := started(ctx, t, light, "next", nodes.Wants(pool.Name))
	check.Equal(t, next.Addr, zombie.Addr, "the next pod has")
	var sent, refused atomic.Int64
	for _, s := range []*nodes.Sandbox{zombie, next} {
		t.Cleanup(check.Value(s.Cry(namespaces.PodInterface, s.Addr, &sent, &refused))(t))
	}
	const enough = 20
	c.Eventually(t, "two speakers", func() error {
		spoken := capture.SpokenFor(capture.After(c.Frames.Frames(), next.Since), next.Addr)
		byOld, byNew := len(capture.From(spoken, zombie.MAC)), len(capture.From(spoken, next.MAC))
		if byOld < enough || byNew < enough {
			return fmt.Errorf("%d frames of the zombie, %d of the next pod", byOld, byNew)
		}
		return nil
	})
	about := capture.About(capture.After(c.Frames.Frames(), zombie.Until), next.Addr)
	check.None(t, append(capture.Of(about, "claim"), capture.Of(about, "ack")...), "in mode Observe, sent:")
	check.That(t, c.SpeakersAreHolders() != nil, "the judge of the other tests sees one speaker")
}
