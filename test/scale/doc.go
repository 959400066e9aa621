// SPDX-License-Identifier: Apache-2.0

// Package scale plays the agents of a large cluster against a real API server and the real controller.
package scale
