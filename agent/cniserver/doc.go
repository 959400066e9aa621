// Package cniserver serves the CNI plugin on the agent's unix socket and
// carries out the DEL calls that plugins spooled while no agent was there.
//
// It knows the protocol and nothing of addresses; those are the Backend's. For
// each attachment it makes one call at a time, and to every call it gives an
// end: a deadline, the plugin's disconnection, or a DEL, for which whatever else
// runs for the attachment makes way.
package cniserver
