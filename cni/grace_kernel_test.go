// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/fenceline/fenceline/test/check"
)

// A runtime asks every few seconds, and calls the node not ready at the first error.
func TestARuntimeIsNotToldOfAnAgentThatStartsAgain(t *testing.T) {
	m := newMachine(t)
	list := m.conflist(t, "1.1.0")
	status := func(list *libcni.NetworkConfigList) error {
		return m.runtime(func(c *libcni.CNIConfig) error { return c.GetStatusNetworkList(t.Context(), list) })
	}
	if err := status(list); err == nil {
		t.Error("an agent that has never served is forgiven")
	}
	stop := m.startAgent(t)
	check.OK(t, status(list))
	stop()
	if err := status(list); err != nil {
		t.Errorf("the agent is away for a moment: %v", err)
	}
	strict, err := libcni.ConfListFromBytes([]byte(strings.ReplaceAll(string(list.Bytes), `"socket"`, `"status_grace":"0s","socket"`)))
	check.OK(t, err)
	if err := status(strict); err == nil || !strings.Contains(err.Error(), m.socket()) {
		t.Errorf("without a grace: %v", err)
	}
}
