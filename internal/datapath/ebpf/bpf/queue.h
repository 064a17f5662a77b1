// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The net profile of a port. Such a port has a program before its own, which sets DSCP and
// sends the packet through a queue: out of a device whose other end leads back to the port.
// Other ports do not have that program.
#pragma once

#include "packet.h"

#define QUEUED 0xc0ffee77 // mark of a packet that has been through the queue

// queue is what is done on an interface with a queue: a port, or a queue's far end.
struct queue {
	__u32 to; // on a port the queue, 0 = none; at a queue's far end the port
	__u8 tos; // DSCP of packets, without ECN bits; 0 = unchanged
	__u8 pad[3];
};
MAP(queues, BPF_MAP_TYPE_HASH, __u32, struct queue, 8192, BPF_F_NO_PREALLOC);

// mark_packet sets an IP packet's DSCP; ECN bits stay.
static __always_inline void mark_packet(struct __sk_buff *skb, __u8 tos)
{
	__u8 b[2], now[2];
	if (skb->vlan_present || bpf_skb_load_bytes(skb, 14, b, 2))
		return;
	if (skb->protocol == bpf_htons(ETH_IP)) {
		now[0] = b[0];
		now[1] = tos | (b[1] & 3);
		if (now[1] != b[1] && !bpf_l3_csum_replace(skb, 14 + 10, *(__u16 *)b, *(__u16 *)now, 2))
			bpf_skb_store_bytes(skb, 14, now, 2, 0);
	} else if (skb->protocol == bpf_htons(ETH_IP6)) { // the class is across two bytes
		now[0] = (b[0] & 0xf0) | tos >> 4;
		now[1] = (b[1] & 0x3f) | (tos & 0x0c) << 4;
		if (*(__u16 *)now != *(__u16 *)b)
			bpf_skb_store_bytes(skb, 14, now, 2, BPF_F_RECOMPUTE_CSUM);
	}
}

// to_queue handles what the container of a port with a profile sends, before from_container.
SEC("tc")
int to_queue(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	if (skb->mark == QUEUED) { // no container can set it: marks do not cross namespaces
		skb->mark = 0;
		return TC_NEXT;
	}
	struct queue *q = bpf_map_lookup_elem(&queues, &ifindex);
	if (!q)
		return TC_NEXT;
	__u32 to = q->to;
	if (q->tos)
		mark_packet(skb, q->tos);
	return to ? bpf_redirect(to, 0) : TC_NEXT;
}

// from_queue returns a packet from the queue to its port.
SEC("tc")
int from_queue(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct queue *q = bpf_map_lookup_elem(&queues, &ifindex);
	if (!q)
		return TC_DROP;
	skb->mark = QUEUED;
	return bpf_redirect(q->to, BPF_F_INGRESS);
}
