// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

// rotations is the number of replacements of the claim key, one after the other.
const rotations = 10

// The claim key is replaced while pods come and go. The agent of the old holder is dead at each
// forced take-over, and its kernel acknowledges: before, during and after a rotation.
func TestTheClaimKeyIsReplacedWithoutAGap(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 3)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	check.OK(t, c.Create(ctx, webSet()))
	c.StartController()
	k := &keys{name: &name{Cluster: c, t: t, ctx: ctx}, current: "0123456789abcdef"}
	k.end(started(ctx, t, c.Nodes[2], "any", nil)) // its agent has the pool
	defer k.traffic(c.Nodes[2])()

	holder := k.begin(c.Nodes[0])
	holder = k.takeOver(holder, c.Nodes[1], func() {})
	holder = k.takeOver(holder, c.Nodes[0], func() { k.begins("fedcba9876543210") }) // the zombie knows the old key
	k.ends()
	holder = k.takeOver(holder, c.Nodes[1], func() {})
	for i := range rotations {
		k.begins(fmt.Sprintf("key number %5d", i))
		k.ends()
	}
	holder = k.takeOver(holder, c.Nodes[0], func() {})
	k.end(holder)
}

// keys replaces the claim key of a cluster.
type keys struct {
	*name
	current string
	dead    *nodes.Node // its agent does not run
}

// begins makes next the current key and keeps the old one beside it, as docs/operations.md says. It
// returns when the live agents use both.
func (k *keys) begins(next string) {
	k.t.Helper()
	k.patch(map[string][]byte{"previous": []byte(k.current), "current": []byte(next)})
	k.current = next
}

// ends removes the old key, and returns when the agents no longer use it.
func (k *keys) ends() {
	k.t.Helper()
	k.patch(map[string][]byte{"previous": nil})
}

func (k *keys) patch(data map[string][]byte) {
	k.t.Helper()
	patch := check.Value(json.Marshal(map[string]any{"data": data}))(k.t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: nodes.System, Name: "fenceline-claim-key"}}
	check.OK(k.t, k.Patch(k.ctx, secret, client.RawPatch(types.MergePatchType, patch)))
	for _, n := range k.Nodes {
		if n == k.dead {
			continue
		}
		k.Eventually(k.t, n.Name+" uses the keys", func() error {
			used, err := n.Sum(k.ctx, "fenceline_claim_key_revision", nil)
			if err == nil && fmt.Sprintf("%.0f", used) != secret.ResourceVersion {
				err = fmt.Errorf("%s uses the keys of revision %.0f, not %s", n.Name, used, secret.ResourceVersion)
			}
			return err
		})
	}
}

// takeOver lets the next pod of the name take the address on another node, by force. between runs
// after the agent was killed. In the end, the agent starts again.
func (k *keys) takeOver(zombie *nodes.Sandbox, to *nodes.Node, between func()) *nodes.Sandbox {
	k.t.Helper()
	at := zombie.Node()
	check.OK(k.t, at.Fall(k.ctx))
	k.dead = at
	between()
	check.OK(k.t, zombie.Outlive(k.ctx))
	acks := func() int { return len(capture.About(capture.Of(k.Frames.Frames(), "ack"), zombie.Addr)) }
	before := acks()
	next := k.begin(to)
	check.Equal(k.t, next.Addr, zombie.Addr, "web-0 had %s and has", zombie.Addr)
	check.Becomes(k.t, nodes.Limit, fmt.Sprintf("an ack of %s, which knows another key than %q, is captured", at.Name, k.current), func() bool { return acks() != before })
	check.OK(k.t, at.Rise(k.ctx))
	k.dead = nil
	check.OK(k.t, zombie.End(k.ctx))
	return next
}

// traffic starts and ends pods on a node until stop is called. None of them is refused.
func (k *keys) traffic(n *nodes.Node) (stop func()) {
	ctx, cancel := context.WithCancel(k.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		served := 0
		for ; ctx.Err() == nil; served++ {
			if err := k.serve(n, fmt.Sprintf("passing-%d", served)); err != nil {
				k.t.Errorf("pod %d: %v", served, err)
				return
			}
		}
		k.t.Logf("%d pods came and went", served)
	}()
	return func() { cancel(); <-done }
}

// serve starts and ends a pod. Its only ADD must succeed.
func (k *keys) serve(n *nodes.Node, name string) error {
	pod, err := n.NewPod(k.ctx, name, nil)
	if err != nil {
		return err
	}
	s, err := n.NewSandbox(pod)
	if err != nil {
		return err
	}
	return errors.Join(s.Add(k.ctx), s.End(k.ctx), k.ForgetPod(k.ctx, pod))
}
