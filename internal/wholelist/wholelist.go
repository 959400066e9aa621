// SPDX-License-Identifier: Apache-2.0

// Package wholelist reads lists of the kernel completely, and what the kernel does not know of the bridges of Open
// vSwitch. A change of an interface interrupts a list, and interfaces change all the time on a node that starts many
// pods.
package wholelist

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// tries is how often a list is read at most.
const tries = 10

// Of calls list until it is not interrupted, or returns the result and the
// netlink.ErrDumpInterrupted of the last try.
func Of[T any](list func() (T, error)) (all T, err error) {
	for range tries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
