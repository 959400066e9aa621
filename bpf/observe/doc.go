// SPDX-License-Identifier: Apache-2.0

// Package observe keeps the observers before all other programs on the parents of this node.
package observe
