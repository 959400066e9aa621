// SPDX-License-Identifier: Apache-2.0

// Package cniserver serves the CNI plugin on the agent's unix socket. It also carries out the DEL
// calls that plugins spooled while no agent answered.
//
// It implements the protocol. The Backend handles the addresses. For each attachment the server
// runs one call at a time. Every call ends: by its deadline, when the plugin disconnects, or by a
// DEL, which cancels the other calls of its attachment.
package cniserver
