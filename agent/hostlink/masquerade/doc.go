// SPDX-License-Identifier: Apache-2.0

// Package masquerade keeps the nftables rules of the node by which replies of Services come back
// through the node, and reports what else host links lack on the node.
//
// kube-proxy translates the destination of a connection on one node, and the reply must pass the
// same node. On the underlay both ends may send to each other directly. Three rules prevent that. They
// give the connection an address of the node as its source:
//
//   - "Services": a pod opened the connection through its host link, and its destination was
//     translated. The backend may be on another node, on the segment of the pod, or a pod of the same
//     node.
//   - "connections": a pod opened a connection of TCP through its host link. A host of a listed destination
//     may answer the pod directly, and firewalls of the node drop half a connection. UDP is left out,
//     because the first packet may be the answer to a host that asked on the segment.
//   - "replies": the connection goes to a pod through its host link, and is neither TCP nor ICMP, nor
//     from an address of the node. The pod marks frames of its host link, and TCP and ICMP answer on
//     the way of the mark (tcp_fwmark_accept, fwmark_reflect). A UDP or SCTP socket answers by the
//     route to the client instead, which is the underlay. Such clients are outside hosts that use a
//     NodePort or load balancer with externalTrafficPolicy Local, pods of another network on the same
//     node, and pods that reach each other by a listed destination. The pod sees the address of the
//     node, not that of the client.
//
// All other connections keep their addresses: those of TCP to pods, and all on the underlay, which do
// not pass the node. NAT rules see the first packet of a connection only. So
// a change of the rules has no effect on existing connections, and ICMP errors follow their connection.
package masquerade
