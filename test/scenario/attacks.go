// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
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

// way is a path of frames out of the pod.
type way struct {
	name    string
	session *cluster.Session
	// past is set if frames bypass the guard of the interface. They are judged by their MAC later.
	past bool
}

// playAttacks: no frame of a pod with NET_RAW that pretends to be another host arrives, and each is
// counted under its reason.
func playAttacks(ctx context.Context, a *act) {
	s := a.stageSiege(ctx)
	s.story.Say("Pod attacker has %s and %s, and no capability but NET_RAW. Each frame is sent %d times.", s.own.four, s.own.six, strikes)
	through, past := &way{name: "by a raw socket"}, &way{name: "by a raw socket past the queue", past: true}
	began := time.Now()
	for _, w := range []*way{through, past} {
		s.open(ctx, w)
		s.attackBy(ctx, w)
	}
	s.nothingLost(ctx, began)
	s.remains(ctx, past)
	s.noneArrived()
}

// open starts the program in the pod that sends frames this way.
func (s *siege) open(ctx context.Context, w *way) {
	command := []string{"/app", "frames", cluster.PodInterface}
	if w.past {
		command = slices.Insert(command, 2, "-bypass")
	}
	w.session = value(s.Exec(ctx, s.namespace, s.attacker.Name, command...))
	s.after("end the frames "+w.name, func(context.Context) { w.session.Close() })
}

// attackBy sends all attacks this way, and the pod's own frames before and after them.
func (s *siege) attackBy(ctx context.Context, w *way) {
	s.isItself(ctx, w)
	var table bytes.Buffer
	columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	header := []string{"frame"}
	for _, v := range s.victims {
		header = append(header, v.name)
	}
	fmt.Fprintln(columns, strings.Join(header, "\t"))
	before := counted(ctx, s.attacker)
	for _, k := range attacks() {
		if w.past && k.forged {
			continue // see remains
		}
		row := []string{k.kind}
		for _, v := range s.victims {
			var after counts
			during(func() { after = s.strike(ctx, w, k, v, before) }, "%s of the %s, %s", k.kind, v.name, w.name)
			row, before = append(row, after.since(before).String()), after
		}
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	check(columns.Flush())
	s.isItself(ctx, w)
	s.story.Show("frames "+w.name+": dropped, and counted as", table.String())
}

// strike sends an attack, and judges how it is counted. It returns the counts after it.
func (s *siege) strike(ctx context.Context, w *way, k attack, victim party, before counts) (after counts) {
	frame := k.frame(s.own, victim, s.mark(fmt.Sprintf("%s of the %s, %s", k.kind, victim.name, w.name)))
	dropped := s.shoot(w.session, slices.Repeat([][]byte{frame}, strikes)...)
	if !w.past && dropped != strikes {
		fail("of %d frames, the kernel says to have dropped %d", strikes, dropped)
	}
	reason, want := k.reason(victim.name == s.sibling.Name), strikes
	if w.past && frame[0]&1 == 1 {
		want = 2 * strikes // a group's frame is dropped on the parent, and on the interface of the sibling
	}
	eventually(ctx, clientLimit, fmt.Sprintf("%d frames that are counted as %s", want, reason), func(ctx context.Context) {
		after = counted(ctx, s.attacker)
		must(after.since(before)[reason] >= want, "counted: %s", after.since(before))
	})
	grown := after.since(before)
	must(len(grown) == 1 && grown[reason] == want, "counted: %s, not %d %s", grown, want, reason)
	return after
}

// isItself sends the pod's own frames. It judges that each arrives on the underlay and at the
// sibling, and that none is counted.
func (s *siege) isItself(ctx context.Context, w *way) {
	before := counted(ctx, s.attacker)
	for n, frame := range ownFrames(s.own, s.victims[2]) {
		what := fmt.Sprintf("%sown frame %d, %s, mark %d", allowed, n, w.name, len(s.sent))
		during(func() {
			must(s.shoot(w.session, frame(s.mark(what))) == 0, "the kernel says to have dropped it")
			s.arrives(ctx, what)
		}, "%s", what)
	}
	after := counted(ctx, s.attacker)
	must(len(after.since(before)) == 0, "own frames of the pod were counted: %s", after.since(before))
}

// allowed begins the description of the frames that may arrive.
const allowed = "allowed: "

// arrives waits until a frame has come to the underlay and to the sibling.
func (s *siege) arrives(ctx context.Context, what string) {
	ctx, cancel := context.WithTimeout(ctx, eventLimit)
	defer cancel()
	_, err := s.capture.Wait(ctx, func(f capture.Frame) bool { return s.marked(f.Payload) == what })
	did(err, "it did not come to the underlay")
	eventually(ctx, eventLimit, "it at the sibling", func(context.Context) {
		frames := s.ear.heard()
		must(slices.ContainsFunc(frames, func(f []byte) bool { return s.marked(f) == what }), "it is none of %d frames", len(frames))
	})
}

// nothingLost judges that hosts reach the pods as if there were no attack.
func (s *siege) nothingLost(ctx context.Context, began time.Time) {
	end, pings := time.Now(), 0
	eventually(ctx, clientLimit, "an answer to each ping", func(context.Context) {
		pings = 0
		for _, p := range s.pings.all() {
			if p.sent.Before(began) || p.sent.After(end) {
				continue
			}
			pings++
			must(!p.answered.IsZero(), "%s did not answer the ping of %s", p.addr, p.sent.Format(time.StampMilli))
		}
	})
	s.story.Say("Meanwhile a host pinged the attacker, its sibling and the remote pod %d times. No ping was lost.", pings)
}

// noneArrived judges that no frame of an attack has come to the underlay or through the guard of the
// sibling.
func (s *siege) noneArrived() {
	var arrived []string
	for _, f := range value(s.capture.Stop()) {
		if what := s.marked(f.Payload); what != "" && !strings.HasPrefix(what, allowed) {
			arrived = append(arrived, "on the underlay: "+what)
		}
	}
	for _, f := range s.ear.heard() {
		if what := s.marked(f); what != "" && !strings.HasPrefix(what, allowed) {
			arrived = append(arrived, "at the sibling: "+what)
		}
	}
	must(len(arrived) == 0, "%d frames of the attacker arrived: %s", len(arrived), strings.Join(slices.Compact(arrived), "; "))
	s.story.Say("Of the frames of the tables, none came to the underlay or to the sibling. All of the attacker's own frames did.")
}
