// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Clients outside of all networks ("From outside" of docs/design/services.md). What the
// host's stack sends to an exposed service is translated here. Frames to backends on other
// hosts, and their replies, have the router's MAC as source. Replies to a client that another
// host forwarded go back to that host.
#pragma once

#include "routednetworks.h"

// is_from_router tells whether a frame has the router's MAC as source.
static __always_inline int is_from_router(const struct pkt *p)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	return g && same(p->eth.src, g->router, 6);
}

// is_from_vtep tells whether a tunnel endpoint sent a frame.
static __always_inline int is_from_vtep(const struct pkt *p, __u32 family, const __u8 *vtep)
{
	if (family != p->remote_family)
		return 0;
	return family == 4 ? p->key.remote_ipv4 == *(const __u32 *)vtep : same(p->key.remote_ipv6, vtep, 16);
}

// tunnel_host returns the number of the host that sent a frame; 0 = an unknown host.
static __always_inline __u32 tunnel_host(struct pkt *p)
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

// is_blackhole tells whether an address is one of desired.Blackhole or link-local: no single
// machine has it.
static __always_inline int is_blackhole(const struct pkt *p, const struct addr *a)
{
	const __u32 *x = (const void *)a;
	if (p->ip.v6)
		return !(x[0] | x[1]) || a->b[0] == 0xff || is_link_local(a);
	return !a->b[12] || a->b[12] == 127 || a->b[12] >= 224 || (a->b[12] == 169 && a->b[13] == 254);
}

// is_external tells whether a source outside the network's subnets is outside the domain.
static __noinline int is_external(struct pkt *p)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct addr *a = &p->ip.f.src;
	if (!g || is_blackhole(p, a) || endpoint_at(p, a) || (p->domain >= JOINED && subnet_at(p, a)))
		return 0;
	if (p->ip.v6 ? is_private6(g, a) : g->private_mask && (last4(a) & g->private_mask) == g->private_net)
		return 0;
	p->hk.domain = p->domain;
	p->hk.ip = *a;
	__u32 *vip = bpf_map_lookup_elem(&vips, &p->hk);
	return !vip || *vip & VIP_SHARED;
}

// is_host_addr tells whether the source is the host's own NAT address, which is valid on
// this host only.
static __always_inline int is_host_addr(const struct pkt *p, const struct settings *g)
{
	return last4(&p->ip.f.src) == g->host_ip && (!p->ip.v6 || is_private6(g, &p->ip.f.src));
}

// read_destination sets p->mapped to the destination of a frame of the host's stack; 0 = no IP.
static __noinline int read_destination(struct __sk_buff *skb, struct pkt *p)
{
	__builtin_memset(&p->mapped, 0, sizeof(p->mapped));
	if (skb->vlan_present)
		return 0;
	if (skb->protocol == bpf_htons(ETH_IP6)) {
		if (bpf_skb_load_bytes(skb, 14 + IP6_DST, &p->mapped, sizeof(p->mapped)))
			return 0;
	} else {
		if (skb->protocol != bpf_htons(ETH_IP) || bpf_skb_load_bytes(skb, 14 + IP_DST, p->buf, 4))
			return 0;
		map_ipv4(&p->mapped, p->buf);
	}
	return 1;
}

// exposed_by_port finds the entry of the port that a packet of the host's stack concerns: its
// own, its first fragment's, or the one that a client's ICMP error quotes.
static __noinline struct exposed *exposed_by_port(struct __sk_buff *skb, struct pkt *p)
{
	__u16 port = p->ip.f.dport;
	__u8 proto = p->ip.f.proto;
	if (p->ip.fragment) {
		set_frag_key(p); // in domain 0: its own is not known yet
		struct frag *first = p->ip.later ? bpf_map_lookup_elem(&frags, &p->fk) : 0;
		if (first) {
			port = first->orig.dport;
			proto = first->orig.proto;
		} else if (!p->ip.later) {
			p->frag.orig = p->ip.f;
			p->frag.parts = p->frag.waits = 0;
			p->frag.seen = bpf_ktime_get_coarse_ns();
			store_frag(p);
		}
	} else if (is_error(p) && read_client_error(skb, p)) {
		port = p->inner.f.sport;
		proto = p->inner.f.proto;
	}
	return lookup_exposed(p, &p->ip.f.dst, port, proto);
}

#define NOT_FOR_SERVICE -1 // it is for a port of a node's address without a service

// accept_exposed returns why a packet of the host's stack to an exposed service is dropped;
// 0 = it goes to the service.
static __noinline int accept_exposed(struct __sk_buff *skb, struct pkt *p, struct exposed *x)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	int bad = read_frame(skb, p);
	if (bad)
		return bad;
	if (x && x->ports)
		x = exposed_by_port(skb, p);
	if (!g || !x || p->kind != KIND_IP)
		return DROP_NOT_IP;
	p->net = x->net;
	p->domain = x->domain;
	int own = is_host_addr(p, g);
	__u32 *service = lookup_vip(p, &p->ip.f.dst);
	p->vip = service ? *service & ~VIP_SHARED : 0;
	if (service && *service & VIP_SHARED && (p->nd || !is_for_service(skb, p))) {
		p->nat_generation = 0;
		return NOT_FOR_SERVICE;
	}
	if (p->nd)
		return DROP_SPOOF;
	if (!own && (in_subnets(p, &p->ip.f.src, x->subnet, x->mask, &x->subnet6, &x->mask6) || !is_external(p)))
		return DROP_SPOOF;
	if (!p->vip)
		return DROP_UNKNOWN_DEST;
	p->client_kind = own ? CLIENT_HOST : CLIENT_EXTERNAL;
	p->src_in_subnets = 1;
	p->multicast = 0;
	__builtin_memcpy(p->eth.src, g->router, 6);
	__builtin_memcpy(p->eth.dst, g->router, 6);
	p->path = PATH_SERVICE;
	return 0;
}

// accept_backend_reply returns why a frame between routers is dropped; 0 = it may be the reply
// of a backend on the sending host to a client outside.
static __noinline int accept_backend_reply(struct pkt *p)
{
	struct endpoint *h = endpoint_at(p, &p->sender);
	if (!h || h->ifindex || !h->identity || h->net != p->net)
		return DROP_UNKNOWN_SOURCE;
	struct station *s = station_on(p, p->net, h->mac);
	if (!s || s->ifindex || !is_from_vtep(p, s->vtep_family, s->vtep))
		return DROP_UNKNOWN_SOURCE;
	p->other_host = 0; // only clients have one
	p->path = PATH_EXTERNAL_CLIENT;
	return 0;
}

// accept_external returns why a frame of another host's router is dropped; 0 = it is of a
// client outside, for a container here.
static __noinline int accept_external(struct pkt *p)
{
	p->other_host = tunnel_host(p);
	if (!p->other_host || p->kind != KIND_IP || p->nd || p->multicast)
		return DROP_UNKNOWN_SOURCE;
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	if (g && same(p->eth.dst, g->router, 6))
		return accept_backend_reply(p);
	struct endpoint *h = endpoint_at(p, &p->ip.f.dst);
	if (!h || !h->ifindex || h->net != p->net || !same(h->mac, p->eth.dst, 6))
		return DROP_UNKNOWN_DEST;
	__u32 ifindex = h->ifindex;
	struct port *o = bpf_map_lookup_elem(&ports, &ifindex);
	if (!o || in_own_subnets(p, o, &p->ip.f.src) || !is_external(p) || (o->routed && !is_from_its_node(p, p->other_host)))
		return DROP_SPOOF;
	p->path = PATH_FROM_HOST;
	return 0;
}

// is_reply_to_external tells whether a container's packet to the router is a reply to a client
// outside that another host forwarded.
static __always_inline int is_reply_to_external(const struct pkt *p, const struct settings *g, const struct ct *c)
{
	return p->from == FROM_PORT && c && c->ingress_host && p->reply && same(p->eth.dst, g->router, 6);
}

// send_to_other_host sends a packet, from the router's MAC, to the host of number p->other_host.
static __noinline int send_to_other_host(struct __sk_buff *skb, struct pkt *p)
{
	__u32 zero = 0, by = p->other_host;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct tunnel_source *end = bpf_map_lookup_elem(&tunnel_ends, &by);
	if (!g || !end || !g->vxlan || p->encap != ENCAP_VXLAN)
		return dropped(DROP_UNKNOWN_DEST);
	if (p->len > g->mtu + sizeof(struct eth)) {
		int ret = send_too_big(skb, p, g->vxlan);
		if (ret)
			return ret;
	}
	p->end = *end;
	if ((p->nat && apply_nat(skb)) || bpf_skb_store_bytes(skb, 6, g->router, 6, 0) || tunnel_key(skb, p->tag, p->end.family, p->end.vtep, p->tos))
		return dropped(DROP_UNKNOWN_DEST);
	return bpf_redirect(g->vxlan, 0);
}

// send_to_external_client gives a backend's reply to a client outside to the host's stack.
static __noinline int send_to_external_client(struct __sk_buff *skb, struct pkt *p, struct settings *g)
{
	if (!g || !g->host || (p->nat && apply_nat(skb)))
		return dropped(DROP_INVALID);
	__builtin_memcpy(p->eth.src, g->router, 6);
	__builtin_memcpy(p->eth.dst, g->router, 6);
	if (bpf_skb_store_bytes(skb, 0, &p->eth, 12, 0))
		return dropped(DROP_INVALID);
	return bpf_redirect(g->host, BPF_F_INGRESS);
}
