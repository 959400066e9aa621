/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Senders: whose socket a frame is of that leaves the node. */
#ifndef FENCELINE_SENDER_H
#define FENCELINE_SENDER_H

#include "kernel.h"

/*
 * The node's network namespace (inode), and offsets in bytes: of the namespace
 * in struct sock_common, and of the inode in struct net. 0: not known. Set when
 * the programs are loaded.
 */
volatile const __u32 node_netns = 0;
volatile const __u32 sock_net = 0, net_inum = 0;

/* The struct net of the node, once it was seen: each read costs 30 ns. */
static volatile __u64 node_net;

/*
 * The network namespace of the pod whose socket sent the frame; 0 for frames of
 * the node, and those that it forwards. macvlan and ipvlan leave a frame its
 * socket, also past the guard, and no interface that it came in by. A forwarded
 * frame has such an interface, and the kernel's own ARP has neither.
 */
__noinline __u32 sender_netns(struct __sk_buff *skb)
{
	__u64 sock[8];
	__u64 net;
	__u32 inum;

	if (!net_inum || skb->ingress_ifindex || !skb->sk ||
	    sock_net > sizeof(sock) - sizeof(net))
		return 0;
	if (bpf_probe_read_kernel(sock, sock_net + sizeof(net), skb->sk))
		return 0;
	net = *(__u64 *)((char *)sock + sock_net);
	if (net == node_net)
		return 0;
	if (bpf_probe_read_kernel(&inum, sizeof(inum), (void *)net + net_inum))
		return 0;
	if (inum != node_netns)
		return inum;
	node_net = net;
	return 0;
}

#endif
