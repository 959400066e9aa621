// SPDX-License-Identifier: Apache-2.0

// Package pace says when frames may be sent: the schedules of RFC 5227 and RFC 4862, one limit for
// all frames of a segment, and one for an action on each address.
package pace
