// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Packets that the tunnel cannot carry whole: their sender is told (RFC 1191,
// RFC 8201) where it has asked to be (DF, IPv6); others are left to the outer
// IP layer, which fragments.
#pragma once

#include "packet.h"

#define QUOTE4 68 // the longest header and eight bytes (RFC 792)
#define QUOTE6 128
#define MIN_MTU6 1280 // RFC 8200 section 5

struct too_big4 {
	struct eth eth;
	struct ip4 ip;
	__u8 type, code;
	__be16 csum;
	__be32 mtu;
	__u8 quote[QUOTE4];
} __attribute__((packed));

struct too_big6 {
	struct eth eth;
	struct ip6 ip;
	__u8 type, code;
	__be16 csum;
	__be32 mtu;
	__u8 quote[QUOTE6];
} __attribute__((packed));

union too_big {
	struct too_big4 v4;
	struct too_big6 v6;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, union too_big);
	__uint(max_entries, 1);
} too_big SEC(".maps");

static __always_inline __u16 folded(__s64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline int tell4(struct __sk_buff *skb, struct pkt *p, struct too_big4 *b, __u32 mtu)
{
	if (bpf_skb_load_bytes(skb, 14, b->quote, QUOTE4))
		return -1;
	__builtin_memcpy(b->eth.dst, p->eth.src, 6);
	__builtin_memcpy(b->eth.src, p->eth.dst, 6);
	b->eth.proto = p->eth.proto;
	__builtin_memset(&b->ip, 0, sizeof(b->ip));
	b->ip.vihl = 0x45;
	b->ip.len = bpf_htons(sizeof(*b) - sizeof(b->eth));
	b->ip.ttl = 64;
	b->ip.proto = P_ICMP;
	__builtin_memcpy(b->ip.src, p->h4.dst, 4); // in the name of whom it was for: there is no router
	__builtin_memcpy(b->ip.dst, p->h4.src, 4);
	b->ip.csum = folded(bpf_csum_diff(0, 0, (void *)&b->ip, sizeof(b->ip), 0));
	b->type = 3;
	b->code = 4;
	b->csum = 0;
	b->mtu = bpf_htonl(mtu);
	b->csum = folded(bpf_csum_diff(0, 0, (void *)&b->type, 8 + QUOTE4, 0));
	return bpf_skb_change_tail(skb, sizeof(*b), 0) || bpf_skb_store_bytes(skb, 0, b, sizeof(*b), BPF_F_INVALIDATE_HASH) ? -1 : sizeof(*b);
}

static __always_inline int tell6(struct __sk_buff *skb, struct pkt *p, struct too_big6 *b, __u32 mtu)
{
	__be32 pseudo[2] = { bpf_htonl(8 + QUOTE6), bpf_htonl(P_ICMP6) };
	if (bpf_skb_load_bytes(skb, 14, b->quote, QUOTE6))
		return -1;
	__builtin_memcpy(b->eth.dst, p->eth.src, 6);
	__builtin_memcpy(b->eth.src, p->eth.dst, 6);
	b->eth.proto = p->eth.proto;
	b->ip.vtcfl = bpf_htonl(0x60000000);
	b->ip.len = bpf_htons(8 + QUOTE6);
	b->ip.next = P_ICMP6;
	b->ip.hops = 64;
	b->ip.src = p->ip.f.dst;
	b->ip.dst = p->ip.f.src;
	b->type = 2;
	b->code = 0;
	b->csum = 0;
	b->mtu = bpf_htonl(mtu);
	__s64 sum = bpf_csum_diff(0, 0, pseudo, sizeof(pseudo), 0);
	sum = bpf_csum_diff(0, 0, (void *)&b->ip.src, 32, sum);
	b->csum = folded(bpf_csum_diff(0, 0, (void *)&b->type, 8 + QUOTE6, sum));
	return bpf_skb_change_tail(skb, sizeof(*b), 0) || bpf_skb_store_bytes(skb, 0, b, sizeof(*b), BPF_F_INVALIDATE_HASH) ? -1 : sizeof(*b);
}

// exceeds tells whether a packet, or a segment of it, is bigger than the device
// that it goes to takes, and its sender must know: then the frame has become
// the error for the sender, of the length that is returned. 0 = let it go;
// -1 = no error could be made.
static __noinline int exceeds(struct __sk_buff *skb, struct pkt *p, __u32 ifindex)
{
	__u32 zero = 0, mtu = 0;
	if (p->kind != KIND_IP || p->error || bpf_check_mtu(skb, ifindex, &mtu, 0, BPF_MTU_CHK_SEGS) <= 0)
		return 0;
	union too_big *b = bpf_map_lookup_elem(&too_big, &zero);
	if (!b)
		return 0;
	if (p->ip.v6)
		return mtu < MIN_MTU6 ? 0 : tell6(skb, p, &b->v6, mtu);
	return p->h4.frag & bpf_htons(0x4000) ? tell4(skb, p, &b->v4, mtu) : 0;
}
