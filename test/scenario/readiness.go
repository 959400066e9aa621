// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/cluster"
)

// markOfReader is an annotation of a Node that marks a position in its changes for the reader.
const markOfReader = "scenario/mark"

// readiness reads every change of a node from one resourceVersion on, without a
// gap. Not safe for concurrent use.
type readiness struct {
	*act
	node    *cluster.Node
	changes watch.Interface
}

// readinessOf begins to read once the node is Ready. If the kubelet has noticed a removed file, its
// next STATUS request reports that.
func (a *act) readinessOf(ctx context.Context, node *cluster.Node) *readiness {
	object := &corev1.Node{}
	eventually(ctx, statusLimit, "Ready", func(ctx context.Context) {
		did(a.api.Get(ctx, client.ObjectKey{Name: node.Name()}, object), "read node %s", node.Name())
		check(isNodeReady(object))
	})
	w, err := a.api.Watch(context.WithoutCancel(ctx), &corev1.NodeList{}, &client.ListOptions{
		Raw: &metav1.ListOptions{FieldSelector: "metadata.name=" + node.Name(), ResourceVersion: object.ResourceVersion},
	})
	did(err, "watch node %s", node.Name())
	r := &readiness{act: a, node: node, changes: w}
	a.after("stop the watch of node "+node.Name(), func(ctx context.Context) { w.Stop(); r.mark(ctx, nil) })
	return r
}

// stayed fails if the node was not Ready in a change since the last one that was read.
func (r *readiness) stayed(ctx context.Context) {
	text := time.Now().Format(time.RFC3339Nano)
	r.mark(ctx, &text)
	var left error
	r.until(ctx, eventLimit, "the mark "+text, func(n *corev1.Node) bool {
		if left == nil {
			left = isNodeReady(n)
		}
		return n.Annotations[markOfReader] == text
	})
	check(left)
}

// mark sets the mark, or takes it away.
func (r *readiness) mark(ctx context.Context, text *string) {
	patch := value(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{markOfReader: text}}}))
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.node.Name()}}
	did(r.api.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)), "mark node %s", r.node.Name())
}

// until reads on to the first change that matches.
func (r *readiness) until(ctx context.Context, limit time.Duration, what string, match func(*corev1.Node) bool) *corev1.Node {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last *corev1.Node
	for {
		select {
		case <-ctx.Done():
			fail("waited %s for %s of node %s; the last change that was read is %v", limit, what, r.node.Name(), last)
		case event, ok := <-r.changes.ResultChan():
			n, isNode := event.Object.(*corev1.Node)
			must(ok && isNode, "wait for %s of node %s: the watch has ended: %v", what, r.node.Name(), event.Object)
			if last = n; match(n) {
				return n
			}
		}
	}
}

// isNodeReady returns an error with the condition unless the node is Ready.
func isNodeReady(n *corev1.Node) error {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
		if c.Type == corev1.NodeReady {
			return fmt.Errorf("node %s is Ready=%s at resourceVersion %s: %s", n.Name, c.Status, n.ResourceVersion, c.Message)
		}
	}
	return fmt.Errorf("node %s has no condition Ready at resourceVersion %s", n.Name, n.ResourceVersion)
}
