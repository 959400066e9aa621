// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/scrape"
)

// immutable is FS_IMMUTABLE_FL of linux/fs.h.
const immutable = 0x10

// EmptyState removes everything from the agent's state directory, as a clean-up script does.
func (n *Node) EmptyState() error {
	files, err := filepath.Glob(filepath.Join(n.state(), "*"))
	for _, f := range files {
		err = errors.Join(err, os.RemoveAll(f))
	}
	return err
}

// ReplaceDisk mounts an empty file system over the state directory. It has few bytes and few inodes.
func (n *Node) ReplaceDisk() error {
	if err := unix.Mount("tmpfs", n.state(), "tmpfs", 0, "size=128k,nr_inodes=64"); err != nil {
		return fmt.Errorf("mount a file system over %s: %w", n.state(), err)
	}
	n.cluster.t.Cleanup(func() { n.cluster.check(unix.Unmount(n.state(), unix.MNT_DETACH)) })
	return nil
}

// SetDiskReadOnly makes the disk of ReplaceDisk read-only, or undoes that.
func (n *Node) SetDiskReadOnly(is bool) error {
	flags := uintptr(unix.MS_REMOUNT)
	if is {
		flags |= unix.MS_RDONLY
	}
	return unix.Mount("", n.state(), "", flags, "")
}

// SetReadOnly makes the directory of the journal a read-only file system, or undoes that.
func (n *Node) SetReadOnly(is bool) error {
	journal := filepath.Join(n.state(), "journal")
	if !is {
		return unix.Unmount(journal, unix.MNT_DETACH)
	}
	return unix.Mount("tmpfs", journal, "tmpfs", unix.MS_RDONLY, "")
}

// SetImmutable sets the attribute i of the journal directory, which forbids new files even to root,
// or removes it.
func (n *Node) SetImmutable(is bool) error {
	dir, err := os.Open(filepath.Join(n.state(), "journal"))
	if err != nil {
		return err
	}
	defer dir.Close()
	flags := uint32(0)
	if is {
		flags = immutable
	}
	return unix.IoctlSetPointerInt(int(dir.Fd()), unix.FS_IOC_SETFLAGS, int(flags))
}

// Fill fills the disk of ReplaceDisk with one file, or its inodes with empty files. undo removes them.
func (n *Node) Fill(inodes bool) (undo func() error, err error) {
	dir := filepath.Join(n.state(), "others")
	undo = func() error { return os.RemoveAll(dir) }
	if err := os.Mkdir(dir, 0o700); err != nil {
		return undo, err
	}
	if !inodes {
		err = os.WriteFile(filepath.Join(dir, "large"), make([]byte, 1<<20), 0o600)
	}
	for i := 0; inodes && err == nil; i++ {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600)
	}
	if errors.Is(err, unix.ENOSPC) {
		err = nil
	}
	return undo, err
}

// Entries reads the agent's journal from outside, by container and interface.
func (n *Node) Entries() (_ map[string]attachment.Entry, err error) {
	defer must.Catch(&err)
	entries := map[string]attachment.Entry{}
	// A file gets its final name late. In this order, a rename in between hides no file.
	for _, pattern := range []string{".entry-*.new", "*.json"} {
		files := must.Value(filepath.Glob(filepath.Join(n.state(), "journal", pattern)))
		for _, file := range files {
			readEntry(file, entries)
		}
	}
	return entries, nil
}

// readEntry adds the newest value of a file, if it holds one.
func readEntry(file string, entries map[string]attachment.Entry) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return // forgotten or named meanwhile
	}
	must.OK(err)
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	if len(whole) == 0 {
		return // made ahead
	}
	lines := bytes.Split(bytes.TrimSpace(whole), []byte("\n"))
	var written struct {
		Value attachment.Entry `json:"value"`
	}
	must.Done(json.Unmarshal(lines[len(lines)-1], &written), "read %s", file)
	entries[written.Value.ContainerID+"/"+written.Value.Interface] = written.Value
}

// Guards lists the pinned guards.
func (n *Node) Guards() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(n.pins(), "guards"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Visits returns the network namespaces of the agent's threads, except the node's own. A thread
// keeps its namespace alive, with the links of a pod that has ended.
func (n *Node) Visits() ([]string, error) {
	var home string
	err := n.Do(func() (err error) {
		home, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, err
	}
	visited, err := n.agent.NetworkNamespaces()
	return slices.DeleteFunc(visited, func(name string) bool { return name == home }), err
}

// Leftovers returns an error if the node keeps journal entries or spooled calls of sandboxes that do
// not live.
func (n *Node) Leftovers(living []*Sandbox) error {
	entries, err := n.Entries()
	if err != nil {
		return err
	}
	var left []string
	for _, s := range living {
		if s.node != n {
			continue
		}
		e, ok := entries[s.Attachment()]
		if !ok || e.Phase != attachment.Bound || len(e.Addresses) != 1 || e.Addresses[0].Addr != s.Addr {
			left = append(left, fmt.Sprintf("the journal says %+v of %s, which has %s", e, s.Attachment(), s.Addr))
		}
		delete(entries, s.Attachment())
	}
	for _, e := range entries {
		left = append(left, fmt.Sprintf("an entry in phase %s of %s", e.Phase, e.ContainerID))
	}
	spooled, err := n.spool().List()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, a := range spooled {
		left = append(left, "a spooled DEL of "+a.ContainerID)
	}
	if len(left) > 0 {
		slices.Sort(left)
		return fmt.Errorf("%s keeps %s", n.Name, strings.Join(left, "; "))
	}
	return nil
}

// RemovePins removes the pins, which outlive the agent.
func (n *Node) RemovePins() error {
	return n.Do(func() error {
		k, err := bpf.Open(bpf.Options{Dir: n.pins()})
		if err != nil {
			return err
		}
		return k.Remove()
	})
}

// metricsAddress is the address of the agent's metrics in the node's namespace.
const metricsAddress = "127.0.0.1:9474"

// Stock returns the Warm leases of a pool that this node alone serves.
func (n *Node) Stock(ctx context.Context, pool string) ([]v1alpha1.IPLease, error) {
	leases := &v1alpha1.IPLeaseList{}
	err := n.cluster.List(ctx, leases, client.MatchingFields{"spec.pool": pool, "spec.state": string(v1alpha1.StateWarm)})
	return leases.Items, err
}

// Ready counts the Warm leases of a pool whose addresses the agent has proven.
func (n *Node) Ready(ctx context.Context, pool string) (int, error) {
	ready, err := n.Sum(ctx, "fenceline_warm_leases", map[string]string{"pool": pool, "condition": "ready"})
	return int(ready), err
}

// Sum adds up the series of a counter or gauge of the agent, or the counts of a histogram, that have all
// the labels.
func (n *Node) Sum(ctx context.Context, name string, labels map[string]string) (float64, error) {
	metrics, err := scrape.Read(ctx, metricsAddress, n.dial)
	sum, _ := metrics.Sum(name, labels)
	return sum, err
}

// MetricsProxy serves the metrics of the agent outside of the node's namespace.
func (n *Node) MetricsProxy() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: metricsAddress}) },
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: n.dial},
	}
}

// dial connects to a server in the node's namespace.
func (n *Node) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = n.Do(func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return c, err
}
