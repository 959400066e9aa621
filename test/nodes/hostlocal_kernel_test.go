// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/movein"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// local is a network of host-local on two nodes, which give addresses alone.
type local struct {
	*moving
	pods []*nodes.Sandbox
}

func (l *local) dir(n *nodes.Node) string { return filepath.Join(l.data, n.Name) }

// of is the definition of the network on a node, with any range.
func (l *local) of(n *nodes.Node, from, to string) string { return l.local(l.dir(n), from, to) }

// write has the agents' code make the files of the move those of ranges, and returns those of host-local.
func (l *local) write(write bool, ends []netip.Addr) (all []movein.NodeFiles) {
	l.t.Helper()
	for _, n := range l.Nodes {
		r := diagnosis.HostLocal{DataDir: l.dir(n), Networks: []string{"old"}, Mark: "fenceline-move/default.old", Write: write, Ends: ends}
		files := check.Value(r.Answer(time.Now().Add(-time.Hour)))(l.t)
		of := movein.NodeFiles{Node: n.Name}
		for _, f := range files.Files {
			of.Files = append(of.Files, movein.File{Directory: movein.Directory{DataDir: l.data, Network: "old"}, Address: f.Address, Container: f.Container, Interface: f.Interface})
		}
		all = append(all, of)
	}
	return all
}

// plan plans the move of the network from the files, and the pods with their network-status.
func (l *local) plan() movein.Plan {
	l.t.Helper()
	f := movein.Facts{
		From: v1alpha1.MoveHostLocal, Network: "default/old", Nodes: l.write(false, nil),
		Definitions: []movein.Definition{{Namespace: "default", Name: "old", Config: l.local(l.data, "10.66.0.5", "10.66.0.20")}},
	}
	for _, s := range l.pods {
		f.Pods = append(f.Pods, movein.Pod{Namespace: s.Pod.Namespace, Name: s.Pod.Name, UID: string(s.Pod.UID), Node: s.Node().Name,
			Interfaces: []movein.Interface{{Interface: namespaces.PodInterface, MAC: s.MAC.String(), IPs: []netip.Addr{s.Addr}}}})
	}
	p := movein.PlanOf(f)
	check.None(l.t, p.Blocks, "blocks:")
	check.Equal(l.t, p.Held(), 0, "held")
	check.Equal(l.t, len(p.Records), len(l.pods), "records")
	return p
}

// files returns all files of host-local.
func (l *local) files() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	check.OK(l.t, filepath.WalkDir(l.data, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all[path] = string(check.Value(os.ReadFile(path))(l.t))
		}
		return err
	}))
	return all
}

// in freezes host-local and has the agents adopt the pods.
func (l *local) in(ctx context.Context) movein.Plan {
	l.t.Helper()
	l.write(true, l.plan().Freeze())
	p := l.plan()
	l.move(ctx, p.Records...)
	for _, s := range l.pods {
		l.becomes(ctx, s.Addr, v1alpha1.MoveAdopted, "")
	}
	return p
}

// The real host-local gives no address while a network moves: neither by the definition of the move, nor by that before
// it. The pods of two nodes move in and back and in, lose no ping, and each file is as before.
func TestANetworkOfHostLocalMovesUnderItsPods(t *testing.T) {
	ctx, m := newMoving(t, 2)
	l := &local{moving: m}
	one, two := m.Nodes[0], m.Nodes[1]
	for i, n := range []*nodes.Node{one, one, two} {
		from := []string{"10.66.0.5", "10.66.0.15"}[i/2] // two nodes that begin alike give the same address
		s := l.starts(n, []string{"web-0", "web-1", "web-2"}[i], l.of(n, from, "10.66.0.20"))
		l.reported(ctx, s)
		l.pods = append(l.pods, s)
	}
	check.List(t, []string{l.pods[0].Addr.String(), l.pods[1].Addr.String(), l.pods[2].Addr.String()}, []string{"10.66.0.5", "10.66.0.6", "10.66.0.15"}, "host-local gives")
	before := l.files()
	var stops []func() error
	for _, s := range l.pods {
		stops = append(stops, l.pinged(ctx, s.Addr))
	}

	p := l.in(ctx)
	frozen := l.files()
	check.Equal(t, len(frozen)-len(before), 2*16-3, "files of the move")
	for i, n := range m.Nodes {
		for j, definition := range []string{l.of(n, "10.66.0.5", "10.66.0.20"), strings.Replace(p.Changes[0].Frozen, l.data, l.dir(n), 1)} {
			refused := l.starts(n, []string{"reverted-0", "frozen-0", "reverted-1", "frozen-1"}[2*i+j], definition)
			check.Says(t, refused.Add(ctx), "no IP addresses available in range set")
			check.OK(t, refused.Del(ctx)) // a kubelet deletes what it could not make
		}
	}
	check.That(t, maps.Equal(l.files(), frozen), "a refused pod has changed files: %v", l.files())

	m.goesBack(ctx)
	for _, s := range l.pods {
		m.free(ctx, s.Addr)
	}
	m.unguarded(one)
	m.unguarded(two)
	l.write(true, nil)
	check.That(t, maps.Equal(l.files(), before), "after the way back, the files are %v, and were %v", l.files(), before)
	check.OK(t, m.Delete(ctx, &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: "old"}}))
	m.patch(ctx, &v1alpha1.IPPool{}, "v4", `{"spec":{"disable":null}}`)

	// Host-local gives addresses again, but none of Fenceline.
	returned := check.Value(p.Changes[0].Returned([]netip.Addr{netip.MustParseAddr("10.66.0.7")}))(t)
	late := l.starts(one, "late", strings.Replace(returned, l.data, l.dir(one), 1))
	l.reported(ctx, late)
	check.Equal(t, late.Addr.String(), "10.66.0.8", "host-local gives")
	l.pods = append(l.pods, late)
	before = l.files()

	l.in(ctx)
	l.write(true, nil)
	check.That(t, maps.Equal(l.files(), before), "after the end, the files are %v, and were %v", l.files(), before)
	check.OK(t, m.Delete(ctx, &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: "old"}}))
	var lost []error
	for _, stop := range stops {
		lost = append(lost, stop())
	}
	check.OK(t, errors.Join(lost...))
	m.Eventually(t, "the leases are those of the living", func() error { return m.LeasesAreLiving(ctx) })

	// The DEL of an adopted pod goes to host-local, and its address becomes free in Fenceline too.
	check.OK(t, errors.Join(l.pods[0].Del(ctx), l.pods[0].Remove()))
	m.free(ctx, l.pods[0].Addr)
	_, isLeft := l.files()[filepath.Join(l.dir(one), "old", "10.66.0.5")]
	check.That(t, !isLeft, "the file of a pod that has ended is left")
}
