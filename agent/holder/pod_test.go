// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

// podCache returns its own object, as a cache does that copies nothing.
type podCache struct {
	client.Reader
	pod corev1.Pod
}

func (c *podCache) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	*into.(*corev1.Pod) = c.pod
	return nil
}

// podServer decodes its answer, as a client of the API server does.
type podServer struct {
	client.Reader
	answer string
}

func (s podServer) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return json.Unmarshal([]byte(s.answer), into)
}

func TestTheAPIServersPodLeavesTheCachesAsItIs(t *testing.T) {
	cached := &podCache{}
	cached.pod.UID, cached.pod.Labels = "old", map[string]string{"app": "web"}
	h := &Holders{Options: Options{
		Cache:  cached,
		Reader: podServer{answer: `{"metadata":{"uid":"new","labels":{"app":"db","more":"yes"}}}`},
	}}
	pod, err := h.pod(t.Context(), agentapi.Pod{Namespace: "shop", Name: "web-0", UID: "new"})
	check.That(t, err == nil && pod.UID == "new" && pod.Labels["app"] == "db", "got %+v, %v", pod, err)
	check.Same(t, cached.pod.Labels, map[string]string{"app": "web"}, "the labels in the cache by now")
}
