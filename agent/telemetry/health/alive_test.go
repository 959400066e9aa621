// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/go-logr/logr/testr"

	"github.com/fenceline/fenceline/test/check"
)

func TestALivenessProbeIsAnsweredUntilStopFreesItsPort(t *testing.T) {
	// Not 127.0.0.1: other processes connect from its ports.
	free := check.Value(net.Listen("tcp", "127.0.0.2:0"))(t)
	address := free.Addr().String()
	free.Close()
	for range 2 {
		stop := check.Value(AnswerAlive(address, testr.New(t)))(t)
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusNotFound} {
			answer, err := http.Get(fmt.Sprintf("http://%s%s", address, path))
			check.OK(t, err)
			answer.Body.Close()
			check.That(t, answer.StatusCode == want, "%s answers %s", path, answer.Status)
		}
		stop()
	}
}
