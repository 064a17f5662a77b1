// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Clients outside of services whose backend is no endpoint: the host's relay address
// (desired.HostNAT.Relay) asks the backend in their place. What the backend answers shows no
// domain, so the connection's key is in domain 0.
#pragma once

#include "frontends.h"

#define SERVICE_OK -1

// set_nat_source sets the source of a client's packet after NAT, whose destination is set.
static __noinline int set_nat_source(struct pkt *p, struct translation *t, struct flow *f)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	if (!t || !f || !g)
		return 0;
	p->relayed = t->index & EXTERNAL_BACKEND && t->client_key.pad == CLIENT_SIDE_EXTERNAL;
	p->hairpin = !p->relayed && same_addr(&f->src, &f->dst);
	if (p->hairpin)
		service_addr(&f->src, p->ip.v6);
	if (!p->relayed)
		return 0;
	if (p->ip.v6)
		f->src = g->private6;
	else
		any_node(&f->src, 0);
	__be32 ip = relay_ip(g);
	__builtin_memcpy(&f->src.b[12], &ip, sizeof(ip));
	return 0;
}

// forward_to_relay sets the path of a packet of a client outside to a backend that is no
// endpoint: to the host's stack.
static __noinline int forward_to_relay(struct pkt *p)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct exposed *x = lookup_exposed(p, &p->tr.client_key.hi, p->tr.client_key.hi_port, p->tr.client_key.proto);
	struct addr *a = &p->ip.f.dst;
	const __u32 *w = (const void *)a;
	if (!g || !g->host || !x || endpoint_at(p, a) || routed_network_at(p, a) || in_subnets(p, a, x->subnet, x->mask, &x->subnet6, &x->mask6) || (p->domain >= JOINED && subnet_at(p, a)))
		return dropped(DROP_UNKNOWN_DEST);
	__u8 first = a->b[12];
	int own = last4(a) == g->host_ip && (!p->ip.v6 || is_private6(g, a));
	int never = p->ip.v6 ? zero_addr(&g->private6) || is_private6(g, a) || !(w[0] | w[1]) || a->b[0] == 0xff || is_link_local(a)
			     : !first || first == 127 || first >= 224 || (last4(a) & g->private_mask) == g->private_net;
	int tunnel = !p->ip.later && p->ip.f.proto == P_UDP && bpf_htons(p->ip.f.dport) == g->vxlan_port;
	if ((never && !own) || tunnel || bpf_ntohl(g->private_mask) > 0xfffffff8)
		return dropped(DROP_UNKNOWN_DEST);
	p->path = PATH_EXTERNAL_CLIENT;
	return SERVICE_OK;
}

// accept_relayed returns why a packet of the host's stack to the relay address is dropped; 0 = it may be
// the reply of a backend.
static __noinline int accept_relayed(struct __sk_buff *skb, struct pkt *p)
{
	int bad = read_frame(skb, p);
	if (bad)
		return bad;
	if (p->kind != KIND_IP)
		return DROP_NOT_IP;
	if (p->nd)
		return DROP_INVALID;
	p->relayed = 1;
	p->multicast = 0;
	p->path = PATH_EXTERNAL_CLIENT;
	return 0;
}
