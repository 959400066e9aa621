// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/test/nodes"
)

// lives are sandboxes that have had an address.
type lives struct {
	mu  sync.Mutex
	all []*nodes.Sandbox
}

func (l *lives) add(s *nodes.Sandbox) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
}

// ending is how a pod ends.
type ending struct {
	weight int
	end    func(s *soak, ctx context.Context, n *nodes.Node, box *nodes.Sandbox, random *rand.Rand) error
}

var endings = []ending{
	{6, (*soak).endNormally},
	{2, (*soak).endAfterAnotherSandbox},
	{2, (*soak).endByForce},
}

// lifecycle is one pod from its creation to its end.
func (s *soak) lifecycle(number int, random *rand.Rand) error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	n := s.Nodes[random.IntN(len(s.Nodes))]
	pod, err := n.NewPod(ctx, fmt.Sprintf("pod-%d", number), func(pod *corev1.Pod) {
		if number%2 == 0 {
			pod.Spec.RestartPolicy = corev1.RestartPolicyAlways // its address is kept until the pod ends
		}
	})
	if err != nil {
		return err
	}
	box, err := s.begin(ctx, n, pod)
	if err != nil {
		return fmt.Errorf("lifecycle %d: %w", number, err)
	}
	rest(ctx, random, 300*time.Millisecond)
	if err := choose(endings, random).end(s, ctx, n, box, random); err != nil {
		return fmt.Errorf("lifecycle %d: %w", number, err)
	}
	return nil
}

// begin gives a pod a sandbox, which speaks.
func (s *soak) begin(ctx context.Context, n *nodes.Node, pod *corev1.Pod) (*nodes.Sandbox, error) {
	box, err := n.Begin(ctx, pod)
	if err != nil {
		return nil, err
	}
	s.lives.add(box)
	s.speak(ctx, box)
	return box, nil
}

// speak has a pod send something. Whether somebody answers is not judged: a
// foreign host may have the address.
func (s *soak) speak(ctx context.Context, box *nodes.Sandbox) {
	_ = box.Command(ctx, "ping", "-q", "-c", "2", "-i", "0.05", "-W", "1", s.host.Addr.String()).Run()
}

func (s *soak) endNormally(ctx context.Context, _ *nodes.Node, box *nodes.Sandbox, _ *rand.Rand) error {
	return errors.Join(box.End(ctx), s.ForgetPod(ctx, box.Pod))
}

// endAfterAnotherSandbox has the pod's sandbox made anew first.
func (s *soak) endAfterAnotherSandbox(ctx context.Context, n *nodes.Node, box *nodes.Sandbox, random *rand.Rand) error {
	if err := box.End(ctx); err != nil {
		return err
	}
	again, err := s.begin(ctx, n, box.Pod)
	if err != nil {
		return err
	}
	return s.endNormally(ctx, n, again, random)
}

// endByForce deletes the pod while its sandbox runs on and speaks; the kubelet
// finds out before the controller has taken the address, or after.
func (s *soak) endByForce(ctx context.Context, _ *nodes.Node, box *nodes.Sandbox, random *rand.Rand) error {
	box.Abandon()
	if err := s.ForgetPod(ctx, box.Pod); err != nil {
		return err
	}
	for until := time.Now().Add(upTo(random, 4*time.Second)); time.Now().Before(until) && ctx.Err() == nil; {
		s.speak(ctx, box)
		rest(ctx, random, 200*time.Millisecond)
	}
	return box.End(ctx)
}

// choose picks by weight.
func choose(all []ending, random *rand.Rand) ending {
	total := 0
	for _, e := range all {
		total += e.weight
	}
	at := random.IntN(total)
	for _, e := range all {
		if at -= e.weight; at < 0 {
			return e
		}
	}
	panic("the weights do not add up")
}

// rest waits a random time, as life does.
func rest(ctx context.Context, random *rand.Rand, most time.Duration) {
	timer := time.NewTimer(upTo(random, most))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func upTo(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(most)))
}
