package bpf

// MaxSlot is the greatest slot; the lowest is 1.
const MaxSlot = 1<<14 - 1

// Guard describes the two programs on one pod interface.
type Guard struct {
	// Slot is unique on the node among living guards, 1 to MaxSlot.
	Slot uint32
	// Segment is the ifindex of the parent in the host's network namespace.
	Segment int
	// NetNS is the path of the network namespace of Interface; "" is the calling thread's.
	NetNS string
	// Interface is the pod's device, by name.
	Interface string
	// Verify makes the guard check claims itself: on an SR-IOV VF no observer sees them.
	Verify bool
	// SourceGuard drops frames from addresses that are not leased to this slot.
	SourceGuard bool
}
