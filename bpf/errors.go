package bpf

import "errors"

var (
	// ErrNotBPFFS is returned by Open when the pin directory is not on a BPF file system.
	ErrNotBPFFS = errors.New("not on a bpffs")
	// ErrPinned is returned by StageGuard and AttachGuard when the slot guards another living device.
	ErrPinned = errors.New("slot has a living guard on another device")
	// ErrSchema is returned by Open when a pinned map of another version cannot be carried over.
	ErrSchema = errors.New("pinned map has an incompatible layout")
	// ErrOlderToken is returned by InstallLease when the present lease has a greater token.
	ErrOlderToken = errors.New("a lease with a newer token is installed")
	// ErrHeld is returned by InstallLease when a watch (slot 0) would replace a lease that is held.
	ErrHeld = errors.New("the address is held here")
	// ErrNoDevice is returned when an interface to attach to does not exist.
	ErrNoDevice = errors.New("no such device")
	// ErrSlot is returned for slot 0 and for slots greater than MaxSlot.
	ErrSlot = errors.New("slot out of range")
)
