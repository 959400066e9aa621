// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package vf

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// The netlink library leaves the socket of a subscription open that the kernel has ended.
func TestASubscriptionThatHasLostChangesIsClosedAndRenewedAfterAPause(t *testing.T) {
	const limit = 10 * time.Second
	node := network.New(t, "n")
	now := clocktesting.NewFakeClock(time.Unix(0, 0))
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan struct{}) // while Follow waits for it, it reads no more
	changed := func() {
		select {
		case changes <- struct{}{}:
		case <-ctx.Done():
		}
	}
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	running.Go(func() { check.OK(t, node.Do(func() error { return Follow(ctx, changed, testr.New(t), now) })) })
	subscribed := func(want ...network.Listener) {
		t.Helper()
		check.Eventually(t, limit, fmt.Sprintf("the subscriptions %v", want), func() error {
			all, err := node.Listeners()
			if err == nil && fmt.Sprint(all) != fmt.Sprint(want) {
				err = fmt.Errorf("got %v", all)
			}
			return err
		})
	}
	check.OK(t, node.Overflow("lo"))
	for deadline := time.After(limit); !now.HasWaiters(); {
		select {
		case <-changes:
		case <-deadline:
			t.Fatal("Follow does not pause after changes were lost")
		default:
		}
	}
	subscribed()
	now.Step(again)
	check.Receive(t, limit, "a look after the changes that were lost", changes)
	subscribed(network.Listener{})
}
