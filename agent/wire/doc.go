// SPDX-License-Identifier: Apache-2.0

// Package wire builds and sends the frames of the node agent: probes (RFC 5227, RFC 4862) and
// claims on a segment's parent, announcements from a pod's interface.
//
// It sends through packet sockets and never reads from them. Package segment hears other hosts
// through the observer.
package wire
