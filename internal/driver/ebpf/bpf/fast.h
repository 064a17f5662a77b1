// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The short way: what the long one decided about packets of an established TCP
// or UDP connection over IPv4, found by one look-up before anything else. An
// entry counts under the policy epoch of the decision and for at most a
// hundred ticks (0.1 to 1 s); then a packet goes the long way again, which
// keeps the connection alive and judges it anew. What is unusual about a
// packet (options, fragments, SYN, FIN, RST, lengths that do not fit) sends it
// the long way.
#pragma once

#include "conntrack.h"

#define FAST_TICKS 100
#define LONG_WAY -2

// Not pinned: programs of another version begin with an empty one.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct fast_key);
	__type(value, struct fast);
	__uint(max_entries, 65536);
} fast SEC(".maps");

struct fast_header {
	__u8 macs[12];
	__be16 eth;
	__u8 vihl, tos;
	__be16 len, id, frag;
	__u8 ttl, proto;
	__be16 csum;
	__be32 src, dst;
	__be32 ports;
	__be16 udp_len, udp_csum; // or the sequence number
	__be32 ack;
	__u8 offset, flags;
} __attribute__((packed));

// remembered finds what was decided about a packet of len bytes; 0 = nothing
// that counts. The first 42 bytes are there.
static __always_inline struct fast *remembered(struct fast_header *h, void *end, __u32 len, __u32 epoch, __u32 ifindex, __u32 tag)
{
	struct fast_key k;
	if (h->eth != bpf_htons(ETH_IP) || h->vihl != 0x45 || h->frag & bpf_htons(0xbfff))
		return 0;
	__u32 total = bpf_ntohs(h->len);
	if (total < 28 || total + 14 > len)
		return 0;
	if (h->proto == P_TCP) {
		if ((void *)h + 54 > end || total < 40 || h->offset < 0x50 || h->flags & (TCP_FIN | TCP_SYN | TCP_RST))
			return 0;
	} else if (h->proto != P_UDP || bpf_ntohs(h->udp_len) < 8) {
		return 0;
	}
	k.ifindex = ifindex;
	k.tag = tag;
	k.src = h->src;
	k.dst = h->dst;
	k.ports = h->ports;
	k.proto = h->proto;
	struct fast *f = bpf_map_lookup_elem(&fast, &k);
	if (!f || f->epoch != epoch || (__s64)(f->until - bpf_jiffies64()) < 0)
		return 0;
	const __u32 *a = (const void *)h->macs, *b = (const void *)f->macs;
	if (a[0] != b[0] || a[1] != b[1] || a[2] != b[2])
		return 0;
	return f;
}

// remembered_frame is remembered for a whole frame.
static __always_inline struct fast *remembered_frame(struct __sk_buff *skb, __u32 epoch, __u32 tag)
{
	void *h = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (h + 42 > end || skb->vlan_present)
		return 0;
	return remembered(h, end, skb->len, epoch, skb->ifindex, tag);
}

// fits tells whether a packet, or each segment that it will be cut into, is at
// most mtu bytes of IP.
static __always_inline int fits(struct __sk_buff *skb, __u32 mtu)
{
	struct fast_header *h = (void *)(long)skb->data;
	__u32 size = skb->gso_size;
	if (skb->len <= mtu + 14)
		return 1;
	if (!size || (void *)(h + 1) > (void *)(long)skb->data_end)
		return 0;
	return 20 + (h->proto == P_TCP ? (h->offset >> 4) * 4 : 8) + size <= mtu;
}

// remember keeps what was decided about a packet of a known connection.
static __noinline int remember(struct pkt *p, struct settings *g, struct station *s)
{
	struct fast_key *k = &p->fast_key;
	struct fast *f = &p->fast;
	__u8 proto = p->ip.f.proto;
	if (!s || p->ip.v6 || (proto != P_TCP && proto != P_UDP) || p->from == FROM_UPLINK || p->from == FROM_HOST)
		return 0;
	if (p->ip.tcp_flags & (TCP_FIN | TCP_SYN | TCP_RST))
		return 0;
	if (s->ifindex) {
		__u32 to = s->ifindex;
		struct port *o = bpf_map_lookup_elem(&ports, &to);
		if (!o)
			return 0;
		f->rx_slot = o->slot;
		f->ifindex = to;
		f->tag = f->underlay = 0;
		f->vtep_family = p->remote ? 4 : 0;
		__builtin_memcpy(f->vtep, &p->remote, 4);
	} else if (p->from == FROM_PORT && p->encap == ENCAP_VXLAN && s->vtep_family && g->vxlan) {
		f->ifindex = g->vxlan;
		f->tag = p->tag;
		f->vtep_family = s->vtep_family;
		__builtin_memcpy(f->vtep, s->vtep, 16);
		f->underlay = s->vtep_family == 4 && !((bpf_htonl(*(const __u32 *)s->vtep) ^ g->vtep) & g->vtep_mask) ? g->underlay : 0;
	} else {
		return 0;
	}
	k->ifindex = p->ifindex;
	k->tag = p->from == FROM_TUNNEL ? p->tag : 0;
	__builtin_memcpy(&k->src, &p->ip.f.src.b[12], 4);
	__builtin_memcpy(&k->dst, &p->ip.f.dst.b[12], 4);
	k->ports = (__u32)bpf_htons(p->ip.f.dport) << 16 | bpf_htons(p->ip.f.sport);
	k->proto = proto;
	f->tx_slot = p->slot;
	f->out_rule = p->out_rule;
	f->in_rule = p->rule;
	f->epoch = p->epoch;
	__builtin_memcpy(f->macs, &p->eth, 12);
	f->until = bpf_jiffies64() + FAST_TICKS;
	bpf_map_update_elem(&fast, k, f, BPF_ANY);
	return 0;
}
