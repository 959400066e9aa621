// SPDX-License-Identifier: Apache-2.0

// Package pace has the schedules of RFC 5227 and RFC 4862, and one limit for each segment.
package pace
