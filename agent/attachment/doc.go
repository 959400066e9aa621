// SPDX-License-Identifier: Apache-2.0

// Package attachment has the table of the attachments of this node: the journal, which records each
// one on disk, the addresses that are held now, the calls under way, and what recovery has to resume.
//
// The journal is one file for each pod interface that has addresses or is getting them. Once Put or
// Remove has returned, its effect survives a kill of the agent. The end of the machine may take the
// last entries; their pods end with the machine.
package attachment
