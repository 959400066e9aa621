// SPDX-License-Identifier: Apache-2.0

// Package wire sends the frames of the node agent: probes and claims on a segment's parent,
// announcements from a pod's interface.
//
// It never reads from its packet sockets. Package segment hears other hosts through the observer.
package wire
