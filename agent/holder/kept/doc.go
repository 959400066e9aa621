// SPDX-License-Identifier: Apache-2.0

// Package kept decides which of its kept addresses an interface gets again. It has no effects.
package kept
