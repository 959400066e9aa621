/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Senders: the pod whose socket sent a frame that leaves the node. */
#ifndef FENCELINE_SENDER_H
#define FENCELINE_SENDER_H

#include "netns.h"

/* The inode of the node's network namespace. Set when the programs are loaded.
 */
volatile const __u32 node_netns = 0;

/* The struct net of the node, once it was seen: each read costs 30 ns. */
static volatile __u64 node_net;

/*
 * The network namespace of the pod whose socket sent the frame; 0 for frames of
 * the node, and those that it forwards. A frame of macvlan or ipvlan keeps
 * its socket, also past the guard, and has no ingress interface. A forwarded
 * frame has one, and the kernel's own ARP has neither.
 */
__noinline __u32 sender_netns(struct __sk_buff *skb)
{
	__u64 net;
	__u32 inode;

	if (!net_inum || skb->ingress_ifindex || !skb->sk)
		return 0;
	net = netns_of_socket(skb->sk);
	if (!net || net == node_net)
		return 0;
	inode = netns_inode(net);
	if (inode != node_netns)
		return inode;
	node_net = net;
	return 0;
}

#endif
