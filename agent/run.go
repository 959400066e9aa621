// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/agent/install"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/watch"
	"github.com/fenceline/fenceline/bpf"
)

// run runs the agent until ctx ends. Attached programs stay attached.
func run(ctx context.Context, s settings) error {
	if s.node == "" || s.namespace == "" {
		return errors.New("--node-name and --namespace are required")
	}
	log := newLogger(s.logLevel)
	ctrl.SetLogger(log)
	klog.SetLogger(log)

	installer := &install.Installer{
		PluginFile: s.plugin, BinDir: s.binDir, ConflistFile: s.conflist, ConfDir: s.confDir, Log: log, Clock: clock.RealClock{},
	}
	if err := installer.EnsurePlugin(); err != nil {
		log.Error(err, "the runtime has the previous plugin or none; the agent tries again")
	}
	// The journal's lock comes before the pins: one agent at a time owns them.
	book, err := attachment.Open(s.stateDir)
	if err != nil {
		return err
	}
	defer book.Close()
	for _, damaged := range book.Corrupt() {
		log.Error(damaged, "a file of the journal is corrupt and was renamed: after a loss of power the leases of the last boot are quarantined, otherwise a pod keeps its address until it is deleted")
	}
	kernel, err := bpf.Open(bpf.Options{Dir: s.bpfDir, Cgroup: s.cgroupDir})
	if err != nil {
		return fmt.Errorf("open the maps and programs in %s: %w", s.bpfDir, err)
	}
	defer kernel.Close()
	if err := kernel.PrepareGuards(); err != nil {
		return fmt.Errorf("load the guard of pods: %w", err)
	}

	meaning := "guards are pinned links, which no pod can remove"
	if !kernel.HasTCX() {
		meaning = "guards are filters of clsact, which a pod with NET_ADMIN can remove for a moment; Linux 6.6 and RHEL 9.4 have tcx"
	}
	log.Info("the programs are in the kernel", "kernel", KernelRelease(), "tcx", kernel.HasTCX(), "meaning", meaning)
	if err := kernel.Sockets.Unguarded(); err != nil {
		log.Error(err, "pods with NET_RAW can make sockets whose frames skip their guard (AF_XDP, PACKET_QDISC_BYPASS): docs/platforms.md")
	}
	links, err := pod.NewFinder()
	if err != nil {
		return err
	}
	defer links.Close()

	api, err := findAPIServer()
	if err != nil {
		return err
	}
	watcher, err := api.client()
	if err != nil {
		return err
	}
	identity, confirm, err := identify(ctx, s, watcher, book, log)
	if err != nil {
		return err
	}
	book.Begin(identity.Session)
	mgr, err := api.manager(s, log)
	if err != nil {
		return err
	}
	if err := mgr.Add(confirm); err != nil {
		return fmt.Errorf("add the confirmation of the identity: %w", err)
	}
	a := &agent{
		settings: s, Identity: identity, log: log, api: api, mgr: mgr, watcher: watcher,
		kernel: kernel, attachments: book, links: links, installer: installer, cached: watch.NewClient(mgr, watcher, lease.NewView(s.node)),
	}
	if err := hostlink.UnlockSysctls(); err != nil {
		log.Error(err, "pods with a host link cannot start")
	}
	if err := a.assemble(ctx); err != nil {
		return err
	}
	defer a.hostLinks.Close()
	defer a.segments.Close()
	defer a.Holders.After.Wait()
	early, err := a.start()
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, run := range append(early, mgr.Start) {
		all.Go(func() error { return run(ctx) })
	}
	return all.Wait()
}

// newLogger returns a logger that writes JSON lines to stderr.
func newLogger(level slog.Level) logr.Logger {
	return logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// identify finds the identity of the node, and answers liveness probes meanwhile.
// confirm asks the API server again if the identity comes from the journal only.
func identify(ctx context.Context, s settings, reader client.Reader, book *attachment.Table, log logr.Logger) (id lease.Identity, confirm manager.RunnableFunc, err error) {
	stop, err := AnswerAlive(s.healthAddress, log)
	if err != nil {
		return lease.Identity{}, nil, err
	}
	defer stop()
	bootID, err := lease.BootID()
	if err != nil {
		return lease.Identity{}, nil, err
	}
	inquiry := lease.Inquiry{Reader: reader, Memory: book.Identity, Node: s.node, Patience: lease.Patience, Log: log}
	found, sure, err := inquiry.Ask(ctx)
	if err != nil {
		return lease.Identity{}, nil, err
	}
	confirm = func(ctx context.Context) error {
		if sure {
			return nil
		}
		return inquiry.Confirm(ctx, found)
	}
	return lease.Identify(found, bootID, book.All()), confirm, nil
}
