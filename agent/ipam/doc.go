// Package ipam chooses pools and addresses. Everything in it is a function of
// values: it knows no API server, no clock that is not given to it and no
// kernel. What it returns is a proposal; the create of the lease decides.
package ipam
