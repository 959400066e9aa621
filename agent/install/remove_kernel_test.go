// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package install

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/agent/hostlink/masquerade"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

// attached counts the programs at both hooks of an interface.
func attached(t *testing.T, index int) int {
	t.Helper()
	in := check.Value(link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress}))(t)
	out := check.Value(link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXEgress}))(t)
	return len(in.Programs) + len(out.Programs)
}

func TestTheRemoverTakesFencelineOffTheNode(t *testing.T) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = fmt.Sprintf("fltr%d", os.Getpid())
	check.OK(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: attrs.Name + "p"}))
	parent := check.Value(netlink.LinkByName(attrs.Name))(t)
	t.Cleanup(func() { check.OK(t, netlink.LinkDel(parent)) })
	bpffs := t.TempDir()
	check.OK(t, unix.Mount("bpf", bpffs, "bpf", 0, ""))
	t.Cleanup(func() { check.OK(t, unix.Unmount(bpffs, unix.MNT_DETACH)) })
	o := RemoveOptions{StateDir: t.TempDir(), ConfDir: t.TempDir(), BPFDir: filepath.Join(bpffs, "fenceline"), Conflist: "90-fenceline.conflist"}

	// What an agent leaves that has ended.
	kernel := check.Value(bpf.Open(bpf.Options{Dir: o.BPFDir}))(t)
	check.OK(t, kernel.Observers.Attach(parent.Attrs().Index))
	guard := bpf.Guard{Slot: 1, Interface: attrs.Name + "p", NetNS: "/proc/thread-self/ns/net", Segment: parent.Attrs().Index}
	check.OK(t, kernel.Guards.Stage(guard))
	check.OK(t, kernel.Guards.Pin(guard))
	check.OK(t, kernel.Close())
	check.OK(t, masquerade.Ensure())
	book := check.Value(attachment.Open(o.StateDir))(t)
	check.OK(t, book.Put(attachment.Entry{ContainerID: "c", Interface: "eth0"}))
	check.OK(t, book.Rotations.Put(map[string]netip.Addr{"v4": netip.MustParseAddr("10.0.0.2")}))
	ours := filepath.Join(o.ConfDir, o.Conflist)
	write := func(path, content string) string {
		check.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check.OK(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	write(ours, `{"cniVersion":"1.1.0","name":"underlay","plugins":[{"type":"macvlan","ipam":{"type":"fenceline"}}]}`)
	others := []string{
		write(filepath.Join(o.ConfDir, "10-other.conflist"), `{}`),
		write(filepath.Join(o.StateDir, "spool", "c@eth0.json"), `{}`),
	}

	check.Is(t, RemoveNode(o), attachment.ErrLocked, "beside an agent:")
	check.Equal(t, attached(t, parent.Attrs().Index), 2, "programs at the parent, which are the observer's:")
	check.OK(t, book.Close())
	for range 2 { // a remover that is started again finds nothing
		check.OK(t, RemoveNode(o))
	}

	for _, name := range []string{attrs.Name, attrs.Name + "p"} {
		check.Equal(t, attached(t, check.Value(netlink.LinkByName(name))(t).Attrs().Index), 0, "programs at %s:", name)
	}
	for _, gone := range []string{o.BPFDir, ours} {
		check.Is(t, check.Err(os.Stat(gone)), os.ErrNotExist, "%s:", gone)
	}
	check.Is(t, masquerade.Check(), hostlink.ErrIncomplete, "the rules of host links:")
	for _, kept := range others {
		check.Is(t, check.Err(os.Stat(kept)), nil, "what is not the agent's is gone:")
	}
	book = check.Value(attachment.Open(o.StateDir))(t)
	defer book.Close()
	last, known := book.Rotations.Get()
	check.That(t, len(book.All()) == 0 && !known, "the journal tells of %v and %v", book.All(), last)
}
