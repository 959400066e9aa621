// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package guards

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// The netlink library leaves the socket of a subscription open that the kernel has ended.
func TestASubscriptionThatHasLostChangesIsReplacedAndClosed(t *testing.T) {
	node := network.New(t, "n")
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan struct{}) // while the keeper waits for it, it reads no changes
	k := NewExclusive(ExclusiveOptions{
		Names: []string{"lo"}, Index: lo, Parents: func() map[int]string { return map[int]string{1: "lo"} }, Log: testr.New(t), Clock: clocktesting.NewFakeClock(time.Unix(0, 0)),
		SetAddresses: func([]netip.Addr) error { return nil },
		SetTrusted: func(int, []net.HardwareAddr, bool) error {
			select {
			case told <- struct{}{}:
			case <-ctx.Done():
			}
			return nil
		},
	})
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	running.Go(func() { check.OK(t, node.Do(func() error { return k.Run(ctx) })) })
	check.OK(t, node.Overflow("lo"))
	check.Receive(t, time.Minute, "the first pass", told)
	check.Eventually(t, 10*time.Second, "one new subscription", func() error {
		all, err := node.Listeners()
		if err == nil && (len(all) != 1 || all[0].Lost) {
			err = fmt.Errorf("subscribed: %+v", all)
		}
		return err
	})
}
