package bpf

// ClaimKey is the SipHash key that authenticates claims and acks.
type ClaimKey [16]byte
