// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/test/network"
)

// isServed uses kubectl as a person does.
func (w *whole) isServed(ctx context.Context) {
	started := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	domain := w.namespace + ".svc.cluster.local"
	for _, name := range []string{"b", "b." + w.namespace, "b." + domain} {
		group.Go(func() error {
			output, err := w.Kubectl(ctx, "exec", "--namespace="+w.namespace, "d", "--", "/app", "get", "http://"+name)
			return says("exec in pod d", output, "b ", err)
		})
	}
	group.Go(func() error {
		output, err := w.Kubectl(ctx, "logs", "--namespace="+w.namespace, "c")
		return says("the log of pod c", output, "c serves HTTP", err)
	})
	group.Go(func() error {
		output, err := w.Attach(ctx, w.namespace, "input", "hello")
		return says("attach to pod input", output, "hello", err)
	})
	group.Go(func() error { return w.isForwarded(ctx) })
	check(group.Wait())
	w.figures.add("exec, logs, attach, port-forward, and names by the pod's own resolv.conf", time.Since(started))
	w.story.Say("kubectl exec, logs, attach and port-forward work.")
}

// isForwarded asks pod b by a port of this machine.
func (w *whole) isForwarded(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	port, err := w.PortForward(ctx, w.namespace, "b", httpPort)
	if err != nil {
		return err
	}
	here, err := network.Current()
	if err != nil {
		return err
	}
	defer here.Close()
	got, err := place{"this machine", here}.get(ctx, port)
	return says("a forwarded port of pod b", got.pod, "b", err)
}

func says(what, got, want string, err error) error {
	if err == nil && !strings.Contains(got, want) {
		err = fmt.Errorf("it says %q, not %q", got, want)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
