// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package parent

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netns"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// follow follows the changes of a node until the end of the test. Each of them waits for its reader.
func follow(t *testing.T, node *network.Namespace) (news chan string, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	news = make(chan string)
	tell := func(what string) {
		select {
		case news <- what:
		case <-ctx.Done():
		}
	}
	c := &Changes{
		Link:    func(physical bool) { tell(fmt.Sprintf("link, physical %t", physical)) },
		Address: func() { tell("address") },
		Pod:     func(namespace int) { tell(fmt.Sprintf("pod %d", namespace)) },
		Missed:  func() { tell("missed") },
		Log:     testr.New(t), Clock: clock.RealClock{},
	}
	var running sync.WaitGroup
	running.Go(func() { check.OK(t, node.Do(func() error { return c.Run(ctx) })) })
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(end)
	return news, end
}

// reads reads changes until one of them comes.
func reads(t *testing.T, news chan string, want string) {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		select {
		case got := <-news:
			if got == want {
				return
			}
			t.Log("before:", got)
		case <-deadline:
			t.Fatalf("nobody was told: %s", want)
		}
	}
}

func TestEachChangeIsToldToThoseWhoNeedIt(t *testing.T) {
	node, pod := network.New(t, "n"), network.New(t, "p")
	check.OK(t, node.AddPair("p0", pod, "eth0"))
	at := check.Value(netns.GetFromPath(pod.Path()))(t)
	defer at.Close()
	number := check.Value(node.Links().GetNetNsIdByFd(int(at)))(t)
	news, _ := follow(t, node)
	var making sync.WaitGroup // a change is told before the kernel has answered its maker
	defer making.Wait()
	reads(t, news, "missed")
	making.Go(func() { check.OK(t, node.SetUp("p0", true)) })
	reads(t, news, "link, physical false")
	making.Go(func() { check.OK(t, node.AddAddr("p0", netip.MustParsePrefix("10.9.0.7/24"))) })
	reads(t, news, "address")
	making.Go(func() { check.OK(t, pod.SetUp("eth0", true)) })
	reads(t, news, fmt.Sprint("pod ", number))
	lo := check.Value(node.Links().LinkByName("lo"))(t)
	making.Go(func() { check.OK(t, node.Links().LinkSetAlias(lo, "changed")) })
	reads(t, news, "link, physical true") // lo has no kind, as a device of a driver
}

// The one socket goes on after a loss, and everything is looked at again.
func TestChangesThatTheKernelHasDroppedAreMissed(t *testing.T) {
	node := network.New(t, "n")
	news, end := follow(t, node)
	subscribed := func() []network.Listener { return check.Value(node.Listeners())(t) }
	check.Becomes(t, time.Minute, "a subscription", func() bool { return len(subscribed()) == 1 })
	check.OK(t, node.Overflow("lo"))
	reads(t, news, "missed") // at the start
	reads(t, news, "missed")
	check.Equal(t, len(subscribed()), 1, "subscriptions:")
	end()
	check.Equal(t, len(subscribed()), 0, "subscriptions at the end:")
}
