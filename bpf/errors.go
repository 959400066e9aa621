// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"

	"github.com/fenceline/fenceline/bpf/attach"
)

var (
	// ErrOlderToken is returned by InstallLease if the present lease has a greater token.
	ErrOlderToken = errors.New("a lease with a newer token is installed")
	// ErrHeld is returned by InstallLease if a watch (slot 0) would replace a held lease.
	ErrHeld = errors.New("the address is held here")
	// ErrNoDevice is returned if the interface or its network namespace does not exist.
	ErrNoDevice = attach.ErrNoDevice
	// ErrSlot is returned for slot 0 and for slots greater than MaxSlot.
	ErrSlot = errors.New("slot out of range")
)
