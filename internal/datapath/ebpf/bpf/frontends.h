// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Frontends: ports of virtual addresses, and which packets to a node's address are for a
// service ("Frontends" of docs/design/services.md).
#pragma once

#include "reject.h"

// frontend_at finds the frontend of a port of a virtual address.
static __always_inline struct frontend *frontend_at(struct pkt *p, __u32 vip, __u16 port, __u8 proto)
{
	p->pk.vip = vip;
	p->pk.port = port;
	p->pk.proto = proto;
	return bpf_map_lookup_elem(&service_ports, &p->pk);
}

// frontend_of finds the frontend of a port of an address with number vip, without VIP_SHARED.
// A node's address is looked up by its own number first, then by the one of all nodes.
static __noinline struct frontend *frontend_of(struct pkt *p, __u32 vip, __u16 port, __u8 proto)
{
	struct frontend *f = frontend_at(p, vip & ~VIP_OWN, port, proto);
	if (f || !(vip & VIP_OWN))
		return f;
	any_node(&p->hk.ip, p->ip.v6);
	p->hk.domain = p->domain | ALL_NODES;
	__u32 *all = bpf_map_lookup_elem(&vips, &p->hk);
	return all ? frontend_at(p, *all & ~VIP_SHARED, port, proto) : 0;
}

// set_client_key makes p->tk the key of a client's flow to a service.
static __always_inline void set_client_key(struct pkt *p, const struct addr *client, const struct addr *vip, __u16 client_port, __u16 port, __u8 proto)
{
	struct ct_key *k = &p->tk;
	k->domain = p->domain;
	k->proto = proto;
	k->flip = 0;
	k->lo_port = client_port;
	k->hi_port = port;
	k->pad = p->from == FROM_HOST ? CLIENT_SIDE_EXTERNAL : CLIENT_SIDE;
	k->lo = *client;
	k->hi = *vip;
}

// translation_of_fragment finds the translation of a later fragment's datagram.
static __always_inline struct translation *translation_of_fragment(struct pkt *p, __u64 now)
{
	set_frag_key(p);
	struct frag *fr = bpf_map_lookup_elem(&frags, &p->fk);
	if (!fr || !fr->parts || now - fr->seen > 30 * SECOND)
		return 0;
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	p->relayed = g && p->from == FROM_HOST && is_relay_addr(g, &fr->orig.src, p->ip.v6);
	make_key(p, &fr->orig);
	return bpf_map_lookup_elem(&translations, &p->ck);
}

// read_client_error reads the packet that a client's ICMP error quotes; 0 = the client did not
// get it.
static __always_inline int read_client_error(struct __sk_buff *skb, struct pkt *p)
{
	int bad = read_quoted(skb, p);
	// read_quoted has overwritten the packet's own header.
	if (p->ip.v6 ? bpf_skb_load_bytes(skb, 14, &p->h6, sizeof(p->h6)) : bpf_skb_load_bytes(skb, 14, &p->h4, sizeof(p->h4)))
		return 0;
	return !bad && same_addr(&p->inner.f.dst, &p->ip.f.src) && same_addr(&p->inner.f.src, &p->ip.f.dst);
}

// translation_of_error finds the translation of the packet that a client's ICMP error quotes.
static __noinline struct translation *translation_of_error(struct __sk_buff *skb, struct pkt *p)
{
	struct flow *f = &p->ip.f;
	if (!read_client_error(skb, p))
		return 0;
	set_client_key(p, &f->src, &f->dst, p->inner.f.dport, p->inner.f.sport, p->inner.f.proto);
	return bpf_map_lookup_elem(&translations, &p->tk);
}

static __always_inline int has_ports(__u8 proto)
{
	return proto == P_TCP || proto == P_UDP || proto == P_SCTP;
}

static __always_inline int is_error(const struct pkt *p)
{
	__u8 type = p->ip.type;
	return !p->ip.later && (p->ip.v6 ? p->ip.f.proto == P_ICMP6 && type >= 1 && type <= 4 : p->ip.f.proto == P_ICMP && is_error4(type));
}

// is_for_service tells whether a packet to a node's address is for a service.
static __noinline int is_for_service(struct __sk_buff *skb, struct pkt *p)
{
	struct translation *t;
	if (p->ip.later) {
		t = translation_of_fragment(p, bpf_ktime_get_coarse_ns());
		return t && same_addr(&t->client_key.hi, &p->ip.f.dst);
	}
	if (is_error(p))
		return translation_of_error(skb, p) != 0;
	if (!has_ports(p->ip.f.proto))
		return 0;
	struct frontend *f = frontend_of(p, p->vip, p->ip.f.dport, p->ip.f.proto);
	return f && (f->exposed || p->from != FROM_HOST);
}
