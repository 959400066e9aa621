// SPDX-License-Identifier: Apache-2.0

// Package sources gives the kernel the sources that pods may use, and reports all other frames.
package sources
