// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The answer to a client whose service has no backend: TCP a reset, others "port unreachable",
// from the virtual address.
#pragma once

#include "route.h"

#define NO_PORT4 (3 << 8 | 3)
#define NO_PORT6 (1 << 8 | 4)

static __always_inline void make_reset(struct pkt *p, struct tcp *t)
{
	__u8 *b = p->buf, flags = p->ip.tcp_flags;
	__u32 len = p->ip.end - p->ip.l4 - (b[12] >> 4) * 4 + !!(flags & TCP_SYN) + !!(flags & TCP_FIN);
	__u32 seq, ack;
	__builtin_memcpy(&seq, b + 4, 4);
	__builtin_memcpy(&ack, b + 8, 4);
	__builtin_memset(t, 0, sizeof(*t));
	t->sport = *(__be16 *)(b + 2);
	t->dport = *(__be16 *)b;
	t->offset = sizeof(*t) / 4 << 4;
	t->flags = TCP_RST;
	if (flags & TCP_ACK) { // RFC 9293 section 3.5.2
		t->seq = ack;
	} else {
		t->flags |= TCP_ACK;
		t->ack = bpf_htonl(bpf_ntohl(seq) + len);
	}
}

static __always_inline void swap_macs(struct eth *e, const struct pkt *p)
{
	__builtin_memcpy(e->dst, p->eth.src, 6);
	__builtin_memcpy(e->src, p->eth.dst, 6);
	e->proto = p->eth.proto;
}

// make_tcp_reset turns the frame into the answer to itself; it returns the length, -1 = it
// could not be made.
static __noinline int make_tcp_reset(struct __sk_buff *skb, struct pkt *p, union icmp_error *b)
{
	__u32 len;
	if (!b || bpf_skb_load_bytes(skb, p->ip.l4, p->buf, sizeof(struct tcp)))
		return -1;
	__be32 pseudo[2] = { bpf_htonl(sizeof(struct tcp)), bpf_htonl(P_TCP) };
	if (p->ip.v6) {
		struct reset6 *r = &b->r6;
		swap_macs(&r->eth, p);
		make_reset(p, &r->tcp);
		r->ip.vtcfl = bpf_htonl(0x60000000);
		r->ip.len = bpf_htons(sizeof(r->tcp));
		r->ip.next = P_TCP;
		r->ip.hops = 64;
		r->ip.src = p->ip.f.dst;
		r->ip.dst = p->ip.f.src;
		__s64 sum = bpf_csum_diff(0, 0, pseudo, sizeof(pseudo), 0);
		sum = bpf_csum_diff(0, 0, (void *)&r->ip.src, 32, sum);
		r->tcp.csum = fold_checksum(bpf_csum_diff(0, 0, (void *)&r->tcp, sizeof(r->tcp), sum));
		len = sizeof(*r);
		return bpf_skb_change_tail(skb, sizeof(*r), 0) || bpf_skb_store_bytes(skb, 0, r, sizeof(*r), BPF_F_INVALIDATE_HASH) ? -1 : (int)len;
	}
	struct reset4 *r = &b->r4;
	swap_macs(&r->eth, p);
	make_reset(p, &r->tcp);
	__builtin_memset(&r->ip, 0, sizeof(r->ip));
	r->ip.vihl = 0x45;
	r->ip.len = bpf_htons(sizeof(r->ip) + sizeof(r->tcp));
	r->ip.ttl = 64;
	r->ip.proto = P_TCP;
	__builtin_memcpy(r->ip.src, p->h4.dst, 4);
	__builtin_memcpy(r->ip.dst, p->h4.src, 4);
	r->ip.csum = fold_checksum(bpf_csum_diff(0, 0, (void *)&r->ip, sizeof(r->ip), 0));
	__s64 sum = bpf_csum_diff(0, 0, pseudo, sizeof(pseudo), 0);
	sum = bpf_csum_diff(0, 0, (void *)r->ip.src, 8, sum);
	r->tcp.csum = fold_checksum(bpf_csum_diff(0, 0, (void *)&r->tcp, sizeof(r->tcp), sum));
	len = sizeof(*r);
	return bpf_skb_change_tail(skb, sizeof(*r), 0) || bpf_skb_store_bytes(skb, 0, r, sizeof(*r), BPF_F_INVALIDATE_HASH) ? -1 : (int)len;
}

// reject_no_backend drops a client's packet to a service without a backend, and answers it.
static __noinline int reject_no_backend(struct __sk_buff *skb, struct pkt *p)
{
	__u32 zero = 0;
	int len;
	dropped(DROP_NO_PROVIDER);
	union icmp_error *b = bpf_map_lookup_elem(&icmp_error, &zero);
	if (!b || !may_get_error(p) || !is_reply_allowed(p))
		return TC_DROP;
	if (p->pre_nat.proto == P_TCP)
		len = make_tcp_reset(skb, p, b);
	else if (p->ip.v6)
		len = make_icmp_error6(skb, p, &b->v6, NO_PORT6, 0, &p->pre_nat.dst);
	else
		len = make_icmp_error4(skb, p, &b->v4, NO_PORT4, 0, p->h4.dst);
	return len < 0 ? TC_DROP : send_back(skb, p, len);
}
