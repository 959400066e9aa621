// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/test/capture"
)

// playDelete: a pod that is deleted in the ordinary way is silent before its
// lease is gone, although the macvlan plugin removes its link only afterwards.
func playDelete(ctx context.Context, a *act) error {
	if err := a.makePool(ctx, 1, nil); err != nil {
		return err
	}
	pod, err := a.runPod(ctx, "old", a.Node(1), nil)
	if err != nil {
		return err
	}
	z, err := a.zombieOf(ctx, pod)
	if err != nil {
		return err
	}
	if err := z.pings.waitFor(ctx, 20, time.Now()); err != nil {
		return err
	}
	a.story.Say("Pod old has %s, announces it every %s, and gets a ping every %s. It is deleted.", z.addr, cryEvery, pingEvery)
	deleted := time.Now()
	if err := a.deletePod(ctx, pod, false); err != nil {
		return err
	}
	free, err := z.chronicle.wait(ctx, podLimit, z.addr, deleted, "deleted", func(e entry) bool { return e.gone })
	if err != nil {
		return err
	}
	// What comes late would come while the pod is taken apart.
	if err := a.removeNamespace(ctx); err != nil {
		return err
	}
	spoken := capture.From(capture.SpokenFor(z.capture.Frames(), z.addr), z.mac)
	if len(spoken) == 0 {
		return fmt.Errorf("the capture has no frame of %s, so it proves nothing", z.mac)
	}
	if late := capture.After(spoken, free.at); len(late) > 0 {
		return fmt.Errorf("%d frames of the old holder came after its lease was gone, the first one %s: %s",
			len(late), late[0].Time.Sub(free.at), late[0])
	}
	last := spoken[len(spoken)-1]
	a.figures.add("last frame before the lease was gone", free.at.Sub(last.Time))
	a.figures.add("frames of the pod until then", len(spoken))
	a.story.Say("Its last frame came %s before its lease was deleted.", round(free.at.Sub(last.Time)))
	return nil
}
