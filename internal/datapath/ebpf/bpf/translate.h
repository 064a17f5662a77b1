// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Rewriting a translated packet, from p->pre_nat to p->post_nat, and what an ICMP error quotes,
// from p->quoted_pre_nat to p->quoted_post_nat. Checksums are corrected by the difference, which
// is right for packets with offloads too. SCTP's CRC is linear, so that works for it as well,
// unless the device computes it. Quoted transport checksums stay.
#pragma once

#include "hostegress.h"

#define CRC32C 0x82f63b78 // polynomial, reflected (RFC 9260 appendix A)

// bit_of is bit n of w. The compiler must not see that it is 0 or 1: it would make a mask of
// it, of which the verifier of Linux 6.18 follows both values.
static __always_inline __u32 bit_of(__u32 w, __u32 n)
{
	__u32 bit = w >> n & 1;
	asm volatile("" : "+r"(bit));
	return bit;
}

// crc_multiply multiplies two polynomials modulo CRC32C's, reflected: bit 31 is x^0.
static __always_inline __u32 crc_multiply(__u32 a, __u32 b)
{
	__u32 product = 0;
	for (int i = 0; i < 32; i++) {
		product ^= b * bit_of(a, 31);
		a <<= 1;
		b = b >> 1 ^ CRC32C * bit_of(b, 0);
	}
	return product;
}

struct crc_shift {
	__u32 change, len, power; // power is x^(8 * 2^i) in step i
};

static long shift_crc(__u32 i, struct crc_shift *c)
{
	__u32 with = crc_multiply(c->change, c->power);
	c->change ^= (c->change ^ with) * bit_of(c->len, i & 31);
	c->power = crc_multiply(c->power, c->power);
	return 0;
}

// crc_change is the change of the CRC32C of len bytes when change is added to the first four:
// change * x^(8 * len).
__noinline int crc_change(__u32 change, __u32 len)
{
	struct crc_shift c = { .change = change, .len = len, .power = 1U << 23 };
	bpf_loop(17, shift_crc, &c, 0);
	return c.change;
}

// checksum_offset is the offset of a transport checksum over addresses, 0 = it has none; for UDP
// it sets a flag by which no checksum stays none.
static __always_inline __u32 checksum_offset(const struct pkt *p, __u64 *flags)
{
	switch (p->ip.f.proto) {
	case P_TCP:
		return p->ip.l4 + 16;
	case P_UDP:
		*flags |= BPF_F_MARK_MANGLED_0;
		return p->ip.l4 + 6;
	case P_ICMP6:
		return p->ip.l4 + 2;
	}
	return 0;
}

// rewrite_packet_addr changes an address of the packet; field is its offset in the header.
static __noinline int rewrite_packet_addr(struct __sk_buff *skb, struct pkt *p, __u32 field, struct addr *from, struct addr *to)
{
	__u64 flags = BPF_F_PSEUDO_HDR;
	__u32 at = p->ip.later ? 0 : checksum_offset(p, &flags);
	if (!from || !to || same_addr(from, to))
		return 0;
	if (!p->ip.v6)
		return rewrite_addr(skb, 14, field, p->ip.later ? 0 : p->ip.l4, p->ip.f.proto, last4(from), last4(to));
	__s64 diff = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)to, sizeof(*to), 0);
	if (at && bpf_l4_csum_replace(skb, at, 0, diff, flags))
		return -1;
	return bpf_skb_store_bytes(skb, 14 + field, to, sizeof(*to), BPF_F_RECOMPUTE_CSUM); // as in rewrite_addr6
}

// rewrite_quoted_addr changes an address in the header that an ICMP error quotes.
static __noinline int rewrite_quoted_addr(struct __sk_buff *skb, struct pkt *p, __u32 field, struct addr *from, struct addr *to)
{
	__u32 at = p->ip.l4 + 8;
	if (!from || !to || same_addr(from, to))
		return 0;
	if (!p->ip.v6)
		return rewrite_addr(skb, at, field, 0, 0, last4(from), last4(to)); // the error's checksum stays
	__s64 diff = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)to, sizeof(*to), 0);
	if (bpf_l4_csum_replace(skb, p->ip.l4 + 2, 0, diff, 0))
		return -1;
	return bpf_skb_store_bytes(skb, at + field, to, sizeof(*to), 0);
}

// rewrite_port changes the port at offset at; sum is the offset of the checksum.
static __noinline int rewrite_port(struct __sk_buff *skb, __u32 at, __u32 sum, __u64 flags, __u32 ports)
{
	__be16 from = bpf_htons(ports >> 16), to = bpf_htons(ports);
	if (from == to)
		return 0;
	if (bpf_l4_csum_replace(skb, sum, from, to, flags | sizeof(to)))
		return -1;
	return bpf_skb_store_bytes(skb, at, &to, sizeof(to), 0);
}

// rewrite_sctp_ports changes both ports of SCTP.
static __always_inline int rewrite_sctp_ports(struct __sk_buff *skb, struct pkt *p)
{
	__u32 from = (__u32)bpf_htons(p->pre_nat.dport) << 16 | bpf_htons(p->pre_nat.sport);
	__u32 to = (__u32)bpf_htons(p->post_nat.dport) << 16 | bpf_htons(p->post_nat.sport), sum;
	if (from == to)
		return 0;
	if (p->ip.fragment || bpf_skb_load_bytes(skb, p->ip.l4 + 8, &sum, sizeof(sum)))
		return -1; // the other fragments are unknown
	if (sum) // else a device computes it
		sum ^= crc_change(from ^ to, p->ip.end - p->ip.l4);
	return bpf_skb_store_bytes(skb, p->ip.l4, &to, sizeof(to), 0) || bpf_skb_store_bytes(skb, p->ip.l4 + 8, &sum, sizeof(sum), 0);
}

static __always_inline __u32 port_pair(__u16 from, __u16 to)
{
	return (__u32)from << 16 | to;
}

// apply_nat rewrites the packet; 0 = done.
__noinline int apply_nat(struct __sk_buff *skb)
{
	struct pkt *p = current_packet();
	if (!p)
		return -1;
	__u32 src = p->ip.v6 ? IP6_SRC : IP_SRC, dst = p->ip.v6 ? IP6_DST : IP_DST, at = p->ip.l4;
	__u64 flags = 0;
	if (p->error) {
		__u32 sum = at + 2;
		if (rewrite_quoted_addr(skb, p, src, &p->quoted_pre_nat.src, &p->quoted_post_nat.src) ||
		    rewrite_quoted_addr(skb, p, dst, &p->quoted_pre_nat.dst, &p->quoted_post_nat.dst) ||
		    rewrite_port(skb, p->inner.l4, sum, 0, port_pair(p->quoted_pre_nat.sport, p->quoted_post_nat.sport)) ||
		    rewrite_port(skb, p->inner.l4 + 2, sum, 0, port_pair(p->quoted_pre_nat.dport, p->quoted_post_nat.dport)))
			return -1;
	}
	if (rewrite_packet_addr(skb, p, src, &p->pre_nat.src, &p->post_nat.src) || rewrite_packet_addr(skb, p, dst, &p->pre_nat.dst, &p->post_nat.dst))
		return -1;
	if (p->error || p->ip.later)
		return 0;
	if (p->ip.f.proto == P_SCTP)
		return rewrite_sctp_ports(skb, p);
	__u32 sum = checksum_offset(p, &flags);
	return rewrite_port(skb, at, sum, flags, port_pair(p->pre_nat.sport, p->post_nat.sport)) ||
	       rewrite_port(skb, at + 2, sum, flags, port_pair(p->pre_nat.dport, p->post_nat.dport));
}
