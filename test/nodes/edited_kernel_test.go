// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// A pod has an address of the first of two pools. The pool is disabled, gets other addresses, and is
// deleted. In between, the agent is killed. The pod keeps its lease and loses no ping. New pods get
// an address of the pool that serves them at that time.
func TestAPodKeepsItsAddressWhateverBecomesOfItsPool(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 1)
	n, host := c.Nodes[0], c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	primary := c.NamedPool("primary", "10.66.0.0/24", "10.66.0.20-10.66.0.49")
	c.NamedPool("backup", "10.66.0.0/24", "10.66.0.100-10.66.0.109")
	c.StartController()
	both := func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1alpha1.AnnotationPrefix + "ippool": `{"ipv4":["primary","backup"]}`}
	}
	old := started(ctx, t, n, "old", both)
	was := &v1alpha1.IPLease{}
	check.OK(t, c.Get(ctx, client.ObjectKey{Name: old.Addr.String()}, was))
	check.Equal(t, was.Spec.Pool, primary.Name, "the pod names %s first, and has an address of", primary.Name)
	answered := pinged(ctx, t, host, old.Addr)

	for i, step := range []struct {
		name   string
		change func()
		serves string // the prefix of the addresses of new pods
	}{
		{"disabled", func() {
			primary.Spec.Disable = ptr.To(true)
			change(ctx, t, c, primary)
		}, "10.66.0.10"},
		{"enabled with other addresses", func() {
			primary.Spec.Disable, primary.Spec.IPs = nil, []string{"10.66.0.50-10.66.0.59"}
			change(ctx, t, c, primary)
			c.Eventually(t, "the pool names the lease outside", func() error {
				check.OK(t, c.Get(ctx, client.ObjectKeyFromObject(primary), primary))
				if !meta.IsStatusConditionTrue(primary.Status.Conditions, v1alpha1.ConditionOutside) {
					return fmt.Errorf("its conditions are %+v", primary.Status.Conditions)
				}
				return nil
			})
		}, "10.66.0.5"},
		{"served by another agent", func() {
			check.OK(t, errors.Join(n.KillAgent(), n.StartAgent(), n.AwaitAgent(ctx)))
		}, "10.66.0.5"},
		{"deleted", func() { check.OK(t, c.Delete(ctx, primary)) }, "10.66.0.10"},
	} {
		step.change()
		// The agent may see the change a moment later. Freed addresses cool down, so more tries would
		// empty a pool that serves by mistake.
		for tries := 0; ; tries++ {
			next := started(ctx, t, n, fmt.Sprintf("new-%d-%d", i, tries), both)
			if strings.HasPrefix(next.Addr.String(), step.serves) {
				break
			}
			check.Must(t, tries != 7, "the pool is %s: a new pod has %s, want %s", step.name, next.Addr, step.serves)
			check.OK(t, next.Finish(ctx))
		}
		now := &v1alpha1.IPLease{}
		check.OK(t, c.Get(ctx, client.ObjectKeyFromObject(was), now))
		if now.UID != was.UID || now.Spec.State != v1alpha1.StateBound || now.Spec.Holder.PodUID != string(old.Pod.UID) {
			t.Errorf("the pool is %s, and the lease of the old pod is %+v", step.name, now)
		}
	}
	loses(t, c, answered)
	speakers := capture.Speakers(c.Frames.Frames(), old.Addr)
	check.That(t, slices.Equal(speakers, []string{old.MAC.String()}), "%v speak for the address of the old pod", speakers)
	for _, s := range c.Living() {
		check.OK(t, s.Finish(ctx))
	}
	c.Eventually(t, "the deleted pool is gone, and no lease is left", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(primary), primary); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it has the status %+v: %w", primary.Status, err)
		}
		return c.LeasesAreLiving(ctx)
	})
}

// pinged pings an address from a host until the test ends. answered returns the numbers of the
// answered pings, from 1 on.
func pinged(ctx context.Context, t *testing.T, host *namespaces.Host, addr netip.Addr) (answered func() []int) {
	t.Helper()
	file := check.Value(os.Create(filepath.Join(t.TempDir(), "ping")))(t)
	ctx, cancel := context.WithCancel(ctx)
	ping := host.Command(ctx, "ping", "-n", "-i", "0.05", addr.String())
	ping.Stdout = file
	check.OK(t, ping.Start())
	t.Cleanup(func() {
		cancel()
		_ = ping.Wait() // it was killed
		check.OK(t, file.Close())
	})
	number := regexp.MustCompile(`icmp_seq=(\d+) ttl`)
	return func() (all []int) {
		data := check.Value(os.ReadFile(file.Name()))(t)
		for _, m := range number.FindAllSubmatch(data, -1) {
			n := check.Value(strconv.Atoi(string(m[1])))(t)
			all = append(all, n)
		}
		return all
	}
}
