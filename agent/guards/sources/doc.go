// SPDX-License-Identifier: Apache-2.0

// Package sources tells the kernel what pods may send by their pools, and reports other frames.
package sources
