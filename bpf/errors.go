// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"

	"github.com/fenceline/fenceline/bpf/attach"
)

var (
	// ErrNotBPFFS is returned by Open if the pin directory is not on a BPF file system.
	ErrNotBPFFS = errors.New("not on a bpffs")
	// ErrPinned is returned by StageGuard if the slot guards another living device.
	ErrPinned = errors.New("slot has a living guard on another device")
	// ErrNoGuard is returned by GuardLink if the slot has no guard.
	ErrNoGuard = errors.New("the slot has no guard: attach it to the pod's interface first")
	// ErrLayout is returned by Open if a pinned map has the layout of another version.
	ErrLayout = errors.New("a pinned map has the layout of another version; go back to that version, or drain the node and reboot it")
	// ErrOlderToken is returned by InstallLease if the present lease has a greater token.
	ErrOlderToken = errors.New("a lease with a newer token is installed")
	// ErrHeld is returned by InstallLease if a watch (slot 0) would replace a held lease.
	ErrHeld = errors.New("the address is held here")
	// ErrNetworksFull is returned by InstallLease and SetNetworks if the kernel can obey the claims of no
	// further network.
	ErrNetworksFull = errors.New("the kernel's map of networks is full; use fewer values of spec.network in pools")
	// ErrNoDevice is returned if the interface or its network namespace does not exist.
	ErrNoDevice = attach.ErrNoDevice
	// ErrSlot is returned for slot 0 and for slots greater than MaxSlot.
	ErrSlot = errors.New("slot out of range")
)
