// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The router between the networks of a domain, on the sender's host:
// docs/design/routing.md.
#pragma once

#include "hostegress.h"
#include "send.h"

// subnet_at finds the network of a joined domain whose subnets have an address; 0 = none.
static __always_inline __u32 subnet_at(struct pkt *p, const struct addr *a)
{
	p->nk.bits = DOMAIN_BITS + 128;
	p->nk.domain = p->domain;
	p->nk.ip = *a;
	__u32 *net = bpf_map_lookup_elem(&subnets, &p->nk);
	return net ? *net : 0;
}

// route_path is the path of an IP packet to the router of a joined network. The network's own
// subnets come first.
static __noinline int route_path(struct pkt *p, struct settings *g, struct port *o)
{
	if (!p || !g || !o)
		return PATH_UNREACHABLE;
	p->src_in_subnets = in_own_subnets(p, o, &p->ip.f.src);
	int own = in_own_subnets(p, o, &p->ip.f.dst);
	if (!own && !is_to_mapped(p)) {
		struct endpoint *h = endpoint_at(p, &p->ip.f.dst);
		if (h && h->net != p->net && !h->outside_subnets) {
			p->to_net = h->net;
			__builtin_memcpy(p->to_mac, h->mac, 6);
			return PATH_ROUTED;
		}
		if (subnet_at(p, &p->ip.f.dst))
			return PATH_NO_ENDPOINT;
	}
	int path = g->host ? egress_path(p, g, o) : PATH_UNREACHABLE;
	return path == PATH_TO_HOST || path == PATH_OTHER_HOST || own ? path : PATH_NO_ROUTE;
}

#define REPLIES_PER_SECOND 1000 // to one port, or to the host, by one processor
#define HOST_REPLIES 4096 // index of the host, after those of ports

struct reply_budget {
	__u64 second; // that used counts for
	__u64 used;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct reply_budget);
	__uint(max_entries, HOST_REPLIES + 1);
} answers SEC(".maps");

// is_reply_allowed limits the cost of replies to a port.
static __always_inline int is_reply_allowed(const struct pkt *p)
{
	__u32 i = p->from == FROM_HOST ? HOST_REPLIES : p->slot & (HOST_REPLIES - 1);
	struct reply_budget *a = bpf_map_lookup_elem(&answers, &i);
	__u64 now = bpf_ktime_get_coarse_ns() / NANOSECONDS;
	if (!a)
		return 0;
	if (a->second != now) {
		a->second = now;
		a->used = 0;
	}
	return a->used++ < REPLIES_PER_SECOND;
}

// is_unroutable tells whether no single machine has an address.
static __always_inline int is_unroutable(const struct pkt *p, const struct addr *a)
{
	const __u32 *w = (const void *)a;
	if (!p->ip.v6)
		return a->b[12] == 0 || a->b[12] == 127 || a->b[12] >= 224 || (a->b[12] == 169 && a->b[13] == 254);
	return a->b[0] == 0xff || (!(w[0] | w[1] | w[2]) && (w[3] & bpf_htonl(~1)) == 0) || is_link_local(a);
}

// may_get_error tells whether a packet may be answered with an ICMP error (RFC 1122 3.2.2,
// RFC 4443 2.4).
static __always_inline int may_get_error(const struct pkt *p)
{
	if (p->ip.later || !p->src_in_subnets || is_unroutable(p, &p->ip.f.dst))
		return 0;
	if (p->ip.f.proto == P_ICMP && is_error4(p->ip.type))
		return 0;
	return p->ip.f.proto != P_ICMP6 || p->ip.type >= 128;
}

// Types and codes of the router's errors (RFC 792, RFC 4443).
#define TIME_EXCEEDED4 (11 << 8)
#define TIME_EXCEEDED6 (3 << 8)
#define NO_ROUTE4 (3 << 8)
#define NO_ROUTE6 (1 << 8)
#define NO_HOST4 (3 << 8 | 1)
#define NO_HOST6 (1 << 8 | 3)

// reject drops a packet, and answers it with an error if that is allowed.
static __noinline int reject(struct __sk_buff *skb, struct pkt *p, __u32 reason, __u32 kind4, __u32 kind6)
{
	__u32 zero = 0, ifindex = p->ifindex;
	int len;
	dropped(reason);
	struct port *o = bpf_map_lookup_elem(&ports, &ifindex);
	union icmp_error *b = bpf_map_lookup_elem(&icmp_error, &zero);
	if (!o || !b || !may_get_error(p) || !is_reply_allowed(p))
		return TC_DROP;
	if (p->ip.v6)
		len = make_icmp_error6(skb, p, &b->v6, kind6, 0, &o->router_ip6);
	else
		len = make_icmp_error4(skb, p, &b->v4, kind4, 0, (void *)&o->router_ip);
	return len < 0 ? TC_DROP : send_back(skb, p, len);
}

#define ROUTED -1

// route handles a packet to the router; ROUTED = it goes on, to another network.
static __noinline int route(struct __sk_buff *skb, struct pkt *p)
{
	__u8 path = p->path, hops = p->ip.v6 ? p->h6.hops : p->h4.ttl;
	__u32 net = p->to_net;
	p->path = PATH_NONE;
	if (path == PATH_NO_ROUTE)
		return reject(skb, p, DROP_UNKNOWN_DEST, NO_ROUTE4, NO_ROUTE6);
	if (!p->identity || !p->src_in_subnets)
		return dropped(DROP_UNKNOWN_SOURCE); // there it would be unknown, or could not be answered
	if (hops == 1)
		return reject(skb, p, DROP_TTL, TIME_EXCEEDED4, TIME_EXCEEDED6);
	if (path == PATH_NO_ENDPOINT)
		return reject(skb, p, DROP_UNKNOWN_DEST, NO_HOST4, NO_HOST6);
	struct network *n = bpf_map_lookup_elem(&networks, &net);
	if (!n)
		return dropped(DROP_NETWORK);
	p->encap = n->encap;
	p->tag = n->tag;
	p->routed = p->dst_is_endpoint = 1;
	return ROUTED;
}

// forward_to_backend addresses a packet of a client outside to its backend, on any network; the
// host's stack has decremented the TTL. ROUTED = it goes on.
static __always_inline int forward_to_backend(struct pkt *p, struct endpoint *h)
{
	__u32 net = h->net;
	struct network *n = bpf_map_lookup_elem(&networks, &net);
	if (!n)
		return dropped(DROP_NETWORK);
	p->net = net;
	p->encap = n->encap;
	p->tag = n->tag;
	__builtin_memcpy(p->eth.dst, h->mac, 6);
	p->path = PATH_FROM_HOST;
	return ROUTED;
}

// exposed_at finds the entry of a port of the address in p->xk.
static __always_inline struct exposed *exposed_at(struct pkt *p, __u16 port, __u8 proto)
{
	p->xk.port = port;
	p->xk.proto = proto;
	return bpf_map_lookup_elem(&exposed, &p->xk);
}

// lookup_exposed finds the entry of a port of an address for clients outside. Port and
// protocol 0 mean the entry of all ports without their own.
static __noinline struct exposed *lookup_exposed(struct pkt *p, const struct addr *a, __u16 port, __u8 proto)
{
	if (!a)
		return 0;
	p->xk.ip = *a;
	struct exposed *x = exposed_at(p, 0, 0), *by_port;
	if (!x || !x->ports || !port)
		return x;
	by_port = exposed_at(p, port, proto);
	if (!by_port && x->ports & EXPOSED_NODE) {
		any_node(&p->xk.ip, p->ip.v6);
		by_port = exposed_at(p, port, proto);
	}
	return by_port ? by_port : x;
}

// is_still_exposed tells whether the service of the translation p->tr is exposed, and its
// client no endpoint.
static __always_inline int is_still_exposed(struct pkt *p)
{
	if (endpoint_at(p, &p->tr.client_key.lo))
		return 0;
	struct exposed *x = lookup_exposed(p, &p->tr.client_key.hi, p->tr.client_key.hi_port, p->tr.client_key.proto);
	return x && x->domain == p->domain;
}
