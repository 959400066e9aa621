// SPDX-License-Identifier: Apache-2.0

// Package wholelist reads lists of the kernel whole. A change of an interface interrupts a list, and on a
// node that starts many pods, interfaces change all the time.
package wholelist

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// tries is how often a list is read at most.
const tries = 10

// Of calls list until it is not interrupted. The error of the last try is netlink.ErrDumpInterrupted if
// each try was, and the result is then that of this try.
func Of[T any](list func() (T, error)) (all T, err error) {
	for range tries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
