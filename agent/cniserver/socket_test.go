// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

func TestTheSocketIsForRootOnlyAndGoesWithItsServer(t *testing.T) {
	r := start(t, &brain{})
	check.Equal(t, check.Value(os.Stat(r.socket))(t).Mode().Perm(), 0o600, "the socket has mode")
	check.OK(t, r.stop())
	check.Is(t, check.Err(os.Stat(r.socket)), os.ErrNotExist, "after the end:")
	err := check.Err(r.Add(t.Context(), addOf("abc")))
	_, away := errors.AsType[*agentapi.NoAnswerError](err)
	check.That(t, away, "a call without agent: %T %v, want an NoAnswerError", err, err)
}

func TestASocketThatAKilledAgentLeftIsReplaced(t *testing.T) {
	dir := check.Value(os.MkdirTemp("", "flt"))(t)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "agent.sock")
	for _, left := range []string{path, path + ".new"} {
		l := check.Value(net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"}))(t)
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	s := check.Value(listen(path))(t)
	defer s.Close()
	check.Value(net.Dial("unix", path))(t).Close()
}

func TestASuccessorsSocketIsLeftAlone(t *testing.T) {
	dir := check.Value(os.MkdirTemp("", "flt"))(t)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "agent.sock")
	old := check.Value(listen(path))(t)
	successor := check.Value(listen(path))(t)
	defer successor.Close()
	check.OK(t, old.Close())
	c, err := net.Dial("unix", path)
	check.Must(t, err == nil, "the successor cannot be reached: %v", err)
	c.Close()
}

func TestTheEndWaitsForCallsThatRun(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	r := start(t, &brain{add: func(context.Context, agentapi.AddRequest) (*agentapi.AddResponse, error) {
		close(begun)
		<-proceed
		return &agentapi.AddResponse{}, nil
	}})
	answered := make(chan error, 1)
	go func() { answered <- check.Err(r.Add(t.Context(), addOf("abc"))) }()
	check.Receive(t, patience, "ADD at the backend", begun)
	ended := make(chan error, 1)
	go func() { ended <- r.stop() }()
	check.Becomes(t, patience, "no new call is taken", func() bool {
		_, err := net.Dial("unix", r.socket)
		return err != nil
	})
	close(proceed)
	check.Is(t, check.Receive(t, patience, "answer", answered), nil, "the running ADD was answered")
	check.Is(t, check.Receive(t, patience, "end of the server", ended), nil, "got")
}
