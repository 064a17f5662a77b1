// SPDX-License-Identifier: (MIT OR GPL-2.0)
// ARP and neighbour discovery: answered here, or forwarded.
#pragma once

#include "servicenat.h"

static __noinline int answer_arp(struct __sk_buff *skb, struct pkt *p, const __u8 *mac)
{
	__u8 ask[4];
	__builtin_memcpy(ask, p->arp.tip, 4);
	__builtin_memcpy(p->eth.dst, p->eth.src, 6);
	__builtin_memcpy(p->eth.src, mac, 6);
	p->arp.op = bpf_htons(2);
	__builtin_memcpy(p->arp.tmac, p->arp.smac, 6);
	__builtin_memcpy(p->arp.tip, p->arp.sip, 4);
	__builtin_memcpy(p->arp.smac, mac, 6);
	__builtin_memcpy(p->arp.sip, ask, 4);
	if (bpf_skb_store_bytes(skb, 0, &p->eth, 14, 0) || bpf_skb_store_bytes(skb, 14, &p->arp, sizeof(p->arp), 0))
		return dropped(DROP_INVALID);
	return send_back(skb, p, p->len);
}

struct advert {
	struct eth eth;
	struct ip6 ip;
	__u8 type, code;
	__be16 csum;
	__be32 flags;
	struct addr target;
	__u8 option, units, mac[6];
} __attribute__((packed));

#define IS_ROUTER 0x80000000 // flag of an advertisement

static __noinline int answer_nd(struct __sk_buff *skb, struct pkt *p, const __u8 *mac, __be32 router)
{
	struct advert a = {};
	__u32 pseudo[2] = { bpf_htonl(32), bpf_htonl(P_ICMP6) };
	__builtin_memcpy(a.eth.dst, p->eth.src, 6);
	__builtin_memcpy(a.eth.src, mac, 6);
	a.eth.proto = bpf_htons(ETH_IP6);
	a.ip.vtcfl = bpf_htonl(0x60000000);
	a.ip.len = bpf_htons(32);
	a.ip.next = P_ICMP6;
	a.ip.hops = 255;
	a.ip.src = p->target;
	a.ip.dst = p->sender;
	a.flags = router | bpf_htonl(0x60000000); // solicited, override
	if (!p->has_sender) { // duplicate address detection: to all nodes
		a.ip.dst.b[0] = 0xff;
		a.ip.dst.b[1] = 2;
		a.ip.dst.b[15] = 1;
		a.flags = router | bpf_htonl(0x20000000);
	}
	a.type = 136;
	a.target = p->target;
	a.option = 2;
	a.units = 1;
	__builtin_memcpy(a.mac, mac, 6);
	__builtin_memcpy(p->buf, &a.type, 32);
	__s64 sum = bpf_csum_diff(0, 0, pseudo, 8, 0);
	p->h6 = a.ip;
	sum = bpf_csum_diff(0, 0, (__be32 *)&p->h6.src, 32, sum);
	sum = bpf_csum_diff(0, 0, (__be32 *)p->buf, 32, sum);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	a.csum = ~sum;
	if (bpf_skb_change_tail(skb, sizeof(a), 0) || bpf_skb_store_bytes(skb, 0, &a, sizeof(a), BPF_F_INVALIDATE_HASH))
		return dropped(DROP_INVALID);
	return send_back(skb, p, sizeof(a));
}

// neighbour handles ARP and neighbour discovery, which policy does not judge.
static __noinline int neighbour(struct __sk_buff *skb, struct pkt *p)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	int asks = p->nd == 135 || (p->kind == KIND_ARP && p->arp.op == bpf_htons(1));
	if (!g)
		return dropped(DROP_NETWORK);
	if (p->path == PATH_TO_HOST) // for the router's address
		return p->kind == KIND_ARP ? answer_arp(skb, p, g->router) : answer_nd(skb, p, g->router, bpf_htonl(IS_ROUTER));
	if (asks && p->from == FROM_PORT && g->services) { // for a service's address
		if (p->kind == KIND_ARP)
			map_ipv4(&p->mapped, p->arp.tip);
		else
			p->mapped = p->target;
		__u32 *vip = lookup_vip(p, &p->mapped);
		if (vip && !(*vip & VIP_SHARED))
			return p->kind == KIND_ARP ? answer_arp(skb, p, g->router) : answer_nd(skb, p, g->router, 0);
	}
	int lost = p->nd && !p->multicast && has_wrong_mac(p, 0);
	if (!p->multicast && (!asks || g->flood))
		return lost ? dropped(DROP_UNKNOWN_DEST) : to_station(skb, p, g, station_at(p, p->eth.dst));
	if (g->flood)
		return flood(skb, p, 0);
	if (asks) {
		if (p->kind == KIND_ARP)
			map_ipv4(&p->mapped, p->arp.tip);
		else
			p->mapped = p->target;
		struct endpoint *s = endpoint_at(p, &p->mapped);
		if (s && s->net == p->net) {
			int answers = p->from == FROM_PORT ? !same(s->mac, p->eth.src, 6) : p->from == FROM_UPLINK && s->ifindex;
			if (answers)
				return p->kind == KIND_ARP ? answer_arp(skb, p, s->mac) : answer_nd(skb, p, s->mac, 0);
		}
		if (lost)
			return dropped(DROP_UNKNOWN_DEST);
		if (!p->multicast) {
			struct station *st = station_at(p, p->eth.dst);
			if (st)
				return to_station(skb, p, g, st);
		}
	}
	if (p->from == FROM_PORT && p->encap == ENCAP_VLAN && !p->path)
		return to_uplink(skb, p, g);
	return dropped(DROP_UNKNOWN_DEST);
}
