// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// strikes is how often each frame of an attack is sent.
const strikes = 3

// way is how frames leave the pod.
type way struct {
	name    string
	session *cluster.Session
	// past the guard of the interface. The frames are judged by their MAC later.
	past bool
}

// playAttacks: whatever a pod with NET_RAW pretends to be, nobody hears it, and each frame is counted
// under its reason.
func playAttacks(ctx context.Context, a *act) error {
	s := value(a.stageSiege(ctx))
	s.story.Say("Pod attacker has %s and %s, and no capability but NET_RAW. Each frame is sent %d times.", s.own.four, s.own.six, strikes)
	through, past := &way{name: "by a raw socket"}, &way{name: "by a raw socket past the queue", past: true}
	began := time.Now()
	for _, w := range []*way{through, past} {
		check(s.open(ctx, w))
		check(s.attackBy(ctx, w))
	}
	s.figures.add("frames of attacks", strikes*s.cells)
	s.figures.add("time for all of them", time.Since(began))
	s.nothingLost(ctx, began)
	check(s.remains(ctx, past))
	return s.noneArrived()
}

// open starts the program in the pod that sends the frames of a way.
func (s *siege) open(ctx context.Context, w *way) (err error) {
	command := []string{"/app", "frames", cluster.PodInterface}
	if w.past {
		command = slices.Insert(command, 2, "-bypass")
	}
	if w.session, err = s.Exec(ctx, s.namespace, s.attacker.Name, command...); err != nil {
		return err
	}
	s.after("end the frames "+w.name, func(context.Context) error { w.session.Close(); return nil })
	return nil
}

// attackBy sends all attacks on one way, and the pod's own frames before and after them.
func (s *siege) attackBy(ctx context.Context, w *way) error {
	check(s.isItself(ctx, w))
	var table bytes.Buffer
	columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	header := []string{"frame"}
	for _, v := range s.victims {
		header = append(header, v.name)
	}
	fmt.Fprintln(columns, strings.Join(header, "\t"))
	before := value(counted(ctx, s.attacker))
	for _, k := range attacks() {
		if w.past && k.forged {
			continue // see remains
		}
		row := []string{k.kind}
		for _, v := range s.victims {
			after, err := s.strike(ctx, w, k, v, before)
			if err != nil {
				return fmt.Errorf("%s of the %s, %s: %w", k.kind, v.name, w.name, err)
			}
			row, before = append(row, after.since(before).String()), after
			s.cells++
		}
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	check(errors.Join(columns.Flush(), s.isItself(ctx, w)))
	s.story.Show("frames "+w.name+": dropped, and counted as", table.String())
	return nil
}

// strike sends an attack, and judges how it is counted. It returns the counts after it.
func (s *siege) strike(ctx context.Context, w *way, k attack, victim party, before counts) (after counts, err error) {
	frame := k.frame(s.own, victim, s.mark(fmt.Sprintf("%s of the %s, %s", k.kind, victim.name, w.name)))
	dropped := value(s.shoot(w.session, slices.Repeat([][]byte{frame}, strikes)...))
	if !w.past && dropped != strikes {
		return nil, fmt.Errorf("of %d frames, the kernel says to have dropped %d", strikes, dropped)
	}
	reason, want := k.reason(victim.name == s.sibling.Name), strikes
	if w.past && frame[0]&1 == 1 {
		want = 2 * strikes // a group's frame is dropped on the parent, and on the interface of the sibling
	}
	check(eventually(ctx, clientLimit, fmt.Sprintf("%d frames that are counted as %s", want, reason), func(ctx context.Context) error {
		if after, err = counted(ctx, s.attacker); err != nil {
			return err
		}
		if grown := after.since(before); grown[reason] < want {
			return errors.New("counted: " + grown.String())
		}
		return nil
	}))
	if grown := after.since(before); len(grown) != 1 || grown[reason] != want {
		return nil, fmt.Errorf("counted: %s, not %d %s", grown, want, reason)
	}
	return after, nil
}

// isItself sends the pod's own frames, and judges that each of them arrives on the underlay and at the
// sibling, and that none is counted.
func (s *siege) isItself(ctx context.Context, w *way) error {
	before, err := counted(ctx, s.attacker)
	if err != nil {
		return err
	}
	for n, frame := range ownFrames(s.own, s.victims[2]) {
		what := fmt.Sprintf("%sown frame %d, %s, mark %d", allowed, n, w.name, len(s.sent))
		dropped, err := s.shoot(w.session, frame(s.mark(what)))
		if err == nil && dropped != 0 {
			err = errors.New("the kernel says to have dropped it")
		}
		if err == nil {
			err = s.arrives(ctx, what)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	after, err := counted(ctx, s.attacker)
	if err == nil && len(after.since(before)) != 0 {
		err = fmt.Errorf("own frames of the pod were counted: %s", after.since(before))
	}
	return err
}

// allowed begins the description of the frames that may arrive.
const allowed = "allowed: "

// arrives waits until a frame has come to the underlay and to the sibling.
func (s *siege) arrives(ctx context.Context, what string) error {
	ctx, cancel := context.WithTimeout(ctx, eventLimit)
	defer cancel()
	_, err := s.capture.Wait(ctx, func(f capture.Frame) bool { return s.marked(f.Payload) == what })
	if err != nil {
		return fmt.Errorf("it did not come to the underlay: %w", err)
	}
	return eventually(ctx, eventLimit, "it at the sibling", func(context.Context) error {
		frames, err := s.ear.heard()
		if err == nil && !slices.ContainsFunc(frames, func(f []byte) bool { return s.marked(f) == what }) {
			err = fmt.Errorf("it is none of %d frames", len(frames))
		}
		return err
	})
}

// nothingLost judges that hosts reach the pods as if there were no attack.
func (s *siege) nothingLost(ctx context.Context, began time.Time) {
	end, pings := time.Now(), 0
	check(eventually(ctx, clientLimit, "an answer to each ping", func(context.Context) error {
		pings = 0
		for _, p := range s.pings.all() {
			if p.sent.Before(began) || p.sent.After(end) {
				continue
			}
			pings++
			if p.answered.IsZero() {
				return fmt.Errorf("%s did not answer the ping of %s", p.addr, p.sent.Format(time.StampMilli))
			}
		}
		return nil
	}))
	s.figures.add("pings of the pods meanwhile, all answered", pings)
	s.story.Say("Meanwhile a host pinged the attacker, its sibling and the remote pod %d times. No ping was lost.", pings)
}

// noneArrived judges that no frame of an attack has come to the underlay or through the guard of the
// sibling.
func (s *siege) noneArrived() error {
	frames := value(s.capture.Stop())
	var arrived []string
	for _, f := range frames {
		if what := s.marked(f.Payload); what != "" && !strings.HasPrefix(what, allowed) {
			arrived = append(arrived, "on the underlay: "+what)
		}
	}
	heard := value(s.ear.heard())
	for _, f := range heard {
		if what := s.marked(f); what != "" && !strings.HasPrefix(what, allowed) {
			arrived = append(arrived, "at the sibling: "+what)
		}
	}
	if len(arrived) > 0 {
		return fmt.Errorf("%d frames of the attacker arrived: %s", len(arrived), strings.Join(slices.Compact(arrived), "; "))
	}
	s.story.Say("Of the frames of the tables, none came to the underlay or to the sibling. All of the attacker's own frames did.")
	return nil
}
