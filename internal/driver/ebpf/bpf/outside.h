// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Clients outside that another host leads to a container here, for a service: their
// frames have the router's MAC as source, and the container's answers go back to the
// host that they came by ("From outside" of docs/design/services.md).
#pragma once

#include "served.h"

// from_router tells whether a frame has the router's MAC as source.
static __always_inline int from_router(const struct pkt *p)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	return g && same(p->eth.src, g->router, 6);
}

// tunnel_number is the number of the host that a frame came from; 0 = it is none that
// is known.
static __always_inline __u32 tunnel_number(struct pkt *p)
{
	__builtin_memset(&p->end, 0, sizeof(p->end));
	p->end.family = p->remote_family;
	if (p->remote_family == 4)
		*(__u32 *)p->end.vtep = p->key.remote_ipv4;
	else
		__builtin_memcpy(p->end.vtep, p->key.remote_ipv6, 16);
	__u32 *n = bpf_map_lookup_elem(&tunnels, &p->end);
	return n ? *n : 0;
}

// nowhere tells whether an address is no single machine's that others reach: what
// desired.Nowhere has, and link-local ones.
static __always_inline int nowhere(const struct pkt *p, const struct addr *a)
{
	const __u32 *x = (const void *)a;
	if (p->ip.v6)
		return !(x[0] | x[1]) || a->b[0] == 0xff || is_link_local(a);
	return !a->b[12] || a->b[12] == 127 || a->b[12] >= 224 || (a->b[12] == 169 && a->b[13] == 254);
}

// is_outside tells whether a packet's source can be a client outside of the domain of
// the container that it is for.
static __noinline int is_outside(struct pkt *p, struct port *o)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct addr *a = &p->ip.f.src;
	if (!g || !o || nowhere(p, a) || host_at(p, a) || on_subnet(p, o, a) || (p->domain >= JOINED && subnet_at(p, a)))
		return 0;
	if (p->ip.v6 ? is_private6(g, a) : g->private_mask && (last4(a) & g->private_mask) == g->private_net)
		return 0;
	p->hk.domain = p->domain;
	p->hk.ip = *a;
	return !bpf_map_lookup_elem(&vips, &p->hk);
}

// takes_outside tells why a frame that another host's router sent is dropped; 0 = it
// is of a client outside, for a container here.
static __noinline int takes_outside(struct pkt *p)
{
	p->by = tunnel_number(p);
	if (!p->by || p->kind != KIND_IP || p->nd || p->multicast)
		return DROP_UNKNOWN_SOURCE;
	struct host *h = host_at(p, &p->ip.f.dst);
	if (!h || !h->ifindex || h->net != p->net || !same(h->mac, p->eth.dst, 6))
		return DROP_UNKNOWN_DEST;
	__u32 ifindex = h->ifindex;
	if (!is_outside(p, bpf_map_lookup_elem(&ports, &ifindex)))
		return DROP_SPOOF;
	p->way = WAY_IN;
	return 0;
}

// answers_outside tells whether a container's packet to the router answers a client
// outside that another host has led here.
static __always_inline int answers_outside(const struct pkt *p, const struct settings *g, const struct ct *c)
{
	return p->from == FROM_PORT && c && c->by && p->reply && same(p->eth.dst, g->router, 6);
}

// go_back sends an answer to the host that its client came by.
static __noinline int go_back(struct __sk_buff *skb, struct pkt *p)
{
	__u32 zero = 0, by = p->by;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct tunnel_source *end = bpf_map_lookup_elem(&tunnel_ends, &by);
	if (!g || !end || !g->vxlan || p->encap != ENCAP_VXLAN)
		return dropped(DROP_UNKNOWN_DEST);
	if (p->len > g->mtu + sizeof(struct eth)) {
		int told = tell_sender(skb, p, g->vxlan);
		if (told)
			return told;
	}
	p->end = *end;
	if (bpf_skb_store_bytes(skb, 6, g->router, 6, 0) || tunnel_key(skb, p->tag, p->end.family, p->end.vtep))
		return dropped(DROP_UNKNOWN_DEST);
	return bpf_redirect(g->vxlan, 0);
}
