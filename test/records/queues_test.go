// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/check"
)

// lastLevel records the priority level of the last answer of the API server.
type lastLevel struct {
	next http.RoundTripper
	mu   sync.Mutex
	uid  string
}

func (l *lastLevel) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.next.RoundTrip(r)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.uid = answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
	}
	return answer, err
}

// watchedAgent returns a client with the token of an agent's pod, and the priority level of its calls.
func (e *env) watchedAgent(t *testing.T, pod *corev1.Pod) (client.Client, *lastLevel) {
	t.Helper()
	config, err := e.server.ServiceAccount(t.Context(), namespace, "fenceline-agent", pod)
	check.OK(t, err)
	seen := &lastLevel{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		seen.next = next
		return seen
	})
	return e.client(t, config), seen
}

// testQueues: the events of agents do not wait where their leases do.
func (e *env) testQueues(t *testing.T) {
	names := map[string]string{}
	var levels flowcontrolv1.PriorityLevelConfigurationList
	check.OK(t, e.admin.List(t.Context(), &levels))
	for _, l := range levels.Items {
		names[string(l.UID)] = l.Name
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-queues", Namespace: namespace},
		Spec:       corev1.PodSpec{ServiceAccountName: "fenceline-agent", NodeName: "n1", Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
	}
	e.create(t, pod)
	agent, seen := e.watchedAgent(t, pod)
	for _, row := range []struct {
		what, level string
		write       func() error
	}{
		{"a lease", "fenceline", func() error { return agent.Create(t.Context(), bound("", "10.1.0.1"), client.DryRunAll) }},
		{"an event", "fenceline-events", func() error { return agent.Create(t.Context(), agentEvent("Pod", "web-0"), client.DryRunAll) }},
	} {
		e.eventually(t, "the queue of "+row.what, func() error {
			if err := row.write(); err != nil {
				return err
			}
			seen.mu.Lock()
			defer seen.mu.Unlock()
			if got := names[seen.uid]; got != row.level {
				return fmt.Errorf("it is %q, want %q", got, row.level)
			}
			return nil
		})
	}
}
