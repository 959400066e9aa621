// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/spool"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/test/check"
)

// brain is the one fake of these tests: it decides nothing and records what it
// is asked. What the real one does with addresses, guards and the API server is
// tested where it lives; here the protocol is under test, over a real socket.
type brain struct {
	add    func(context.Context, agentapi.AddRequest) (*agentapi.AddResponse, error)
	del    func(context.Context, agentapi.DelRequest) error
	check  func(context.Context, agentapi.CheckRequest) error
	status func(context.Context) error
	// answered is nil where nothing is left for after the answer.
	answered func(agentapi.Attachment)

	mu   sync.Mutex
	dels []agentapi.DelRequest
	gcs  []agentapi.GCRequest
}

func (b *brain) Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	if b.add == nil {
		return &agentapi.AddResponse{}, nil
	}
	return b.add(ctx, r)
}

func (b *brain) Answered(a agentapi.Attachment) {
	if b.answered != nil {
		b.answered(a)
	}
}

func (b *brain) Del(ctx context.Context, r agentapi.DelRequest) error {
	if b.del != nil {
		if err := b.del(ctx, r); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dels = append(b.dels, r)
	return nil
}

func (b *brain) Check(ctx context.Context, r agentapi.CheckRequest) error {
	if b.check == nil {
		return nil
	}
	return b.check(ctx, r)
}

func (b *brain) GC(_ context.Context, r agentapi.GCRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gcs = append(b.gcs, r)
	return nil
}

func (b *brain) Diagnose(context.Context, diagnosis.Request) (*diagnosis.Report, error) {
	return &diagnosis.Report{Node: "n1"}, nil
}

func (b *brain) Status(ctx context.Context) error {
	if b.status == nil {
		return nil
	}
	return b.status(ctx)
}

// deleted lists the containers of the DEL calls that succeeded, in their order.
func (b *brain) deleted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for _, r := range b.dels {
		ids = append(ids, r.ContainerID)
	}
	return ids
}

// rig is a server that runs, and a client of it.
type rig struct {
	*agentapi.Client
	brain   *brain
	socket  string
	spool   spool.Dir
	metrics *prometheus.Registry
	// stop ends the server and returns what Start returned.
	stop func() error
}

type option func(*Options)

func withClock(c clock.WithTicker) option { return func(o *Options) { o.Clock = c } }

func withCallTimeout(d time.Duration) option {
	return func(o *Options) { o.CallTimeout, o.WaitTimeout = d, time.Nanosecond }
}

func withSpool(d spool.Dir) option { return func(o *Options) { o.Spool = d } }

// withoutWatch is a node that is out of inotify instances.
func withoutWatch(o *Options) {
	o.watch = func(string) (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
}

// start runs a server. Its socket is in a directory with a short name: a unix
// socket's path holds 108 bytes at most.
func start(t *testing.T, b *brain, options ...option) *rig {
	t.Helper()
	dir := check.Value(os.MkdirTemp("", "flt"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := Options{
		Backend: b, Socket: filepath.Join(dir, "agent.sock"), Spool: spool.Dir(filepath.Join(dir, "spool")),
		Metrics: prometheus.NewRegistry(), Log: testr.New(t),
	}
	for _, set := range options {
		set(&o)
	}
	s := check.Value(New(o))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	check.Becomes(t, patience, "the agent listens", func() bool {
		c, err := net.Dial("unix", o.Socket)
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
	return &rig{agentapi.NewClient(o.Socket), b, o.Socket, o.Spool, o.Metrics.(*prometheus.Registry), stop}
}

// patience is how long anything may take on a busy machine.
const patience = time.Minute

func attachment(container string) agentapi.Attachment {
	return agentapi.Attachment{ContainerID: container, Interface: "eth0"}
}

func addOf(container string) agentapi.AddRequest {
	return agentapi.AddRequest{Attachment: attachment(container), NetNS: "/run/netns/" + container}
}

func delOf(container string) agentapi.DelRequest {
	return agentapi.DelRequest{Attachment: attachment(container)}
}
