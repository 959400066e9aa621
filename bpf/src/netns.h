/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The network namespace of a socket, by offsets in the kernel's structs. */
#ifndef FENCELINE_NETNS_H
#define FENCELINE_NETNS_H

#include "kernel.h"

/*
 * Offsets in bytes: of the namespace in struct sock_common, and of its inode in
 * struct net. 0: not known. Set when the programs are loaded.
 */
volatile const __u32 sock_net = 0, net_inum = 0;

/* The address of the struct net of a socket; 0 if it is not known. */
static __always_inline __u64 netns_of_socket(const void *socket)
{
	__u64 common[8];

	if (!net_inum || sock_net > sizeof(common) - sizeof(__u64) ||
	    bpf_probe_read_kernel(common, sock_net + sizeof(__u64), socket))
		return 0;
	return *(__u64 *)((char *)common + sock_net);
}

/* The inode of a struct net; 0 if it cannot be read. */
static __always_inline __u32 netns_inode(__u64 net)
{
	__u32 inode;

	if (bpf_probe_read_kernel(&inode, sizeof(inode),
				  (void *)net + net_inum))
		return 0;
	return inode;
}

#endif
