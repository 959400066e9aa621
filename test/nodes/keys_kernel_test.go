// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

// rotations are the replacements of the claim key one after the other.
const rotations = 10

// The claim key is replaced while pods come and go. Each take-over by force is acknowledged by the
// kernel of a node whose agent is dead: with the key from before the rotation, in it, and after it.
func TestTheClaimKeyIsReplacedWithoutAGap(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 3)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	check.OK(t, c.Create(ctx, setOf("web", 1)))
	c.StartController()
	k := &keys{off: &off{Cluster: c, t: t, ctx: ctx}, name: &name{Cluster: c, t: t, ctx: ctx}, current: "0123456789abcdef"}
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
	*off
	name    *name
	current string
	dead    *nodes.Node // its agent does not run
}

func (k *keys) begin(n *nodes.Node) *nodes.Sandbox { return k.name.begin(n) }

func (k *keys) end(s *nodes.Sandbox) { k.name.end(s) }

// begins writes the next key beside the current one, as docs/operations.md tells, and waits for it as
// ends does.
func (k *keys) begins(next string) {
	k.t.Helper()
	k.patch(map[string][]byte{"previous": []byte(k.current), "current": []byte(next)})
	k.current = next
}

// ends removes the key from before.
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
			used, err := n.KeyRevision(k.ctx)
			if err == nil && strconv.FormatUint(used, 10) != secret.ResourceVersion {
				err = fmt.Errorf("%s uses the keys of revision %d, not %s", n.Name, used, secret.ResourceVersion)
			}
			return err
		})
	}
}

// takeOver has the next pod of the name take the address on another node, by force. between happens
// after the death of the agent. The agent starts again in the end.
func (k *keys) takeOver(zombie *nodes.Sandbox, to *nodes.Node, between func()) *nodes.Sandbox {
	k.t.Helper()
	at := zombie.Node()
	check.OK(k.t, at.KillAgent())
	k.dead = at
	between()
	k.report(at, corev1.ConditionUnknown)
	check.OK(k.t, k.ForgetPod(k.ctx, zombie.Pod))
	zombie.Abandon()
	before := k.acks(zombie)
	next := k.begin(to)
	check.Equal(k.t, next.Addr, zombie.Addr, "web-0 had %s and has", zombie.Addr)
	check.That(k.t, k.acks(zombie) != before, "no ack of %s, which knows another key than %q", at.Name, k.current)
	check.OK(k.t, errors.Join(at.StartAgent(), at.AwaitAgent(k.ctx)))
	k.dead = nil
	k.report(at, corev1.ConditionTrue)
	check.OK(k.t, zombie.End(k.ctx))
	return next
}

// acks counts those for the address of a sandbox.
func (k *keys) acks(s *nodes.Sandbox) (n int) {
	for _, f := range capture.Of(k.Frames.Frames(), "ack") {
		if f.Target == s.Addr {
			n++
		}
	}
	return n
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
