// SPDX-License-Identifier: (MIT OR GPL-2.0)
// ICMP errors. The sender of a packet that the tunnel cannot carry gets one (RFC 1191,
// RFC 8201), with DF or without: Open vSwitch in user space does not reassemble fragments of
// tunnel packets. Errors of the router are in route.h.
#pragma once

#include "packet.h"

#define QUOTE4 68 // the longest header and eight bytes (RFC 792)
#define QUOTE6 128
#define MIN_MTU6 1280 // RFC 8200 section 5

struct error4 {
	struct eth eth;
	struct ip4 ip;
	__u8 type, code;
	__be16 csum;
	__be32 rest; // the MTU, if the packet is too big
	__u8 quote[QUOTE4];
} __attribute__((packed));

struct error6 {
	struct eth eth;
	struct ip6 ip;
	__u8 type, code;
	__be16 csum;
	__be32 rest;
	__u8 quote[QUOTE6];
} __attribute__((packed));

struct tcp {
	__be16 sport, dport;
	__be32 seq, ack;
	__u8 offset, flags;
	__be16 window, csum, urgent;
} __attribute__((packed));

struct reset4 {
	struct eth eth;
	struct ip4 ip;
	struct tcp tcp;
} __attribute__((packed));

struct reset6 {
	struct eth eth;
	struct ip6 ip;
	struct tcp tcp;
} __attribute__((packed));

union icmp_error {
	struct error4 v4;
	struct error6 v6;
	struct reset4 r4;
	struct reset6 r6;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, union icmp_error);
	__uint(max_entries, 1);
} icmp_error SEC(".maps");

static __always_inline __u16 fold_checksum(__s64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

// quotable is how many bytes of the packet an error may quote.
static __always_inline __u32 quotable(const struct pkt *p, __u32 most)
{
	__u32 n = p->ip.end - sizeof(struct eth);
	return n < most ? n : most;
}

// BETWEEN returns -1 unless lo <= n <= hi, in steps that verifiers of old kernels follow: each
// bound is a comparison of its own, and never with 1, which they read as "not 0".
#define BETWEEN(n, lo, hi)                 \
	do {                               \
		asm volatile("" : "+r"(n)); \
		if ((n) > (hi))            \
			return -1;         \
		asm volatile("" : "+r"(n)); \
		if ((n) < (lo))            \
			return -1;         \
	} while (0)

// make_icmp_error4 turns the frame into an error about itself, of a type and code, from an
// address; it returns the length, -1 = it could not be made.
static __always_inline int make_icmp_error4(struct __sk_buff *skb, struct pkt *p, struct error4 *b, __u32 kind, __be32 rest, const __u8 *by)
{
	__u32 n = quotable(p, QUOTE4), len;
	__builtin_memset(b->quote, 0, QUOTE4);
	BETWEEN(n, 20, QUOTE4);
	if (bpf_skb_load_bytes(skb, 14, b->quote, n))
		return -1;
	__builtin_memcpy(b->eth.dst, p->eth.src, 6);
	__builtin_memcpy(b->eth.src, p->eth.dst, 6);
	b->eth.proto = p->eth.proto;
	__builtin_memset(&b->ip, 0, sizeof(b->ip));
	b->ip.vihl = 0x45;
	b->ip.len = bpf_htons(28 + n);
	b->ip.ttl = 64;
	b->ip.proto = P_ICMP;
	__builtin_memcpy(b->ip.src, by, 4);
	__builtin_memcpy(b->ip.dst, p->h4.src, 4);
	b->ip.csum = fold_checksum(bpf_csum_diff(0, 0, (void *)&b->ip, sizeof(b->ip), 0));
	b->type = kind >> 8;
	b->code = kind;
	b->csum = 0;
	b->rest = rest;
	b->csum = fold_checksum(bpf_csum_diff(0, 0, (void *)&b->type, 8 + QUOTE4, 0));
	len = sizeof(*b) - QUOTE4 + n;
	BETWEEN(len, 42, sizeof(*b));
	return bpf_skb_change_tail(skb, len, 0) || bpf_skb_store_bytes(skb, 0, b, len, BPF_F_INVALIDATE_HASH) ? -1 : (int)len;
}

// make_icmp_error6 is make_icmp_error4 for IPv6.
static __always_inline int make_icmp_error6(struct __sk_buff *skb, struct pkt *p, struct error6 *b, __u32 kind, __be32 rest, const struct addr *by)
{
	__u32 n = quotable(p, QUOTE6), len;
	__builtin_memset(b->quote, 0, QUOTE6);
	BETWEEN(n, 40, QUOTE6);
	if (bpf_skb_load_bytes(skb, 14, b->quote, n))
		return -1;
	__be32 pseudo[2] = { bpf_htonl(8 + n), bpf_htonl(P_ICMP6) };
	__builtin_memcpy(b->eth.dst, p->eth.src, 6);
	__builtin_memcpy(b->eth.src, p->eth.dst, 6);
	b->eth.proto = p->eth.proto;
	b->ip.vtcfl = bpf_htonl(0x60000000);
	b->ip.len = bpf_htons(8 + n);
	b->ip.next = P_ICMP6;
	b->ip.hops = 64;
	b->ip.src = *by;
	b->ip.dst = p->ip.f.src;
	b->type = kind >> 8;
	b->code = kind;
	b->csum = 0;
	b->rest = rest;
	__s64 sum = bpf_csum_diff(0, 0, pseudo, sizeof(pseudo), 0);
	sum = bpf_csum_diff(0, 0, (void *)&b->ip.src, 32, sum);
	b->csum = fold_checksum(bpf_csum_diff(0, 0, (void *)&b->type, 8 + QUOTE6, sum));
	len = sizeof(*b) - QUOTE6 + n;
	BETWEEN(len, 42, sizeof(*b));
	return bpf_skb_change_tail(skb, len, 0) || bpf_skb_store_bytes(skb, 0, b, len, BPF_F_INVALIDATE_HASH) ? -1 : (int)len;
}

// make_too_big checks whether a packet, or a segment of it, exceeds its device's MTU and the
// sender must know. Then the frame becomes the error, whose length is returned. 0 = it may be
// sent; -1 = no error could be made.
__noinline int make_too_big(struct __sk_buff *skb, __u32 ifindex)
{
	struct pkt *p = current_packet();
	if (!p)
		return 0;
	__u32 zero = 0, mtu = 0;
	if (p->kind != KIND_IP || p->error || bpf_check_mtu(skb, ifindex, &mtu, 0, BPF_MTU_CHK_SEGS) <= 0)
		return 0;
	union icmp_error *b = bpf_map_lookup_elem(&icmp_error, &zero);
	if (!b)
		return 0;
	// In the name of the destination.
	if (p->ip.v6)
		return mtu < MIN_MTU6 ? 0 : make_icmp_error6(skb, p, &b->v6, 2 << 8, bpf_htonl(mtu), p->nat == NAT_REQUEST ? &p->pre_nat.dst : &p->ip.f.dst);
	if (p->ip.later) // no error about these (RFC 1122 3.2.2)
		return -1;
	return make_icmp_error4(skb, p, &b->v4, 3 << 8 | 4, bpf_htonl(mtu), p->h4.dst);
}
