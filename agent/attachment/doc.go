// SPDX-License-Identifier: Apache-2.0

// Package attachment stores the agent's record of each attachment on disk, one file for each pod
// interface that has addresses or is getting them. Once Put or Remove has returned, its effect
// survives a kill of the agent. The end of the machine may take the last entries; their pods end
// with the machine.
package attachment
