// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestTheRuntimeIsToldEveryCandidate(t *testing.T) {
	yes := true
	pools := make([]*v1alpha1.IPPool, 40)
	for i := range pools {
		pools[i] = fakenode.Pool(fmt.Sprintf("p%02d", i), fmt.Sprintf("10.%d.0.0/24", i), v1alpha1.ModeEnforce)
		pools[i].Spec.Disable, pools[i].Spec.Default = &yes, &yes
	}
	r := fakenode.New(t, pools...)
	text := r.Refused(agentapi.CodeNoPool, r.Pod("web", "u1"))
	for _, p := range pools {
		if !strings.Contains(text, "pool "+p.Name+": it is disabled") {
			t.Errorf("the error says nothing of %s", p.Name)
		}
	}
	events := r.Told()
	if len(events) != 1 || !strings.HasSuffix(events[0], "more; see kubectl get flpool") || !strings.Contains(events[0], "pool p05: it is disabled") {
		t.Errorf("events %q", events)
	}
}
