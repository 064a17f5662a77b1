// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Routed networks, between endpoints and hosts' stacks: docs/design/native.md.
#pragma once

#include "servicenat.h"

#define HOST_MARK 0xc0ff2e77 // desired.OwnMark

static __noinline int is_external(struct pkt *p);
static __always_inline int is_host_addr(const struct pkt *p, const struct settings *g);

// is_from_its_node tells whether the node of a number may send from a packet's source: a node's
// address is its own, and no node has an address of a routed network.
static __noinline int is_from_its_node(struct pkt *p, __u32 number)
{
	if (routed_network_at(p, &p->ip.f.src))
		return 0;
	__u32 node = node_at(p, &p->ip.f.src);
	return node == NO_NODE || node == number;
}

// accept_to_routed returns why a packet of the host's stack to a routed network is dropped;
// 0 = it goes on. own: a socket of the host sent it.
static __noinline int accept_to_routed(struct __sk_buff *skb, struct pkt *p, struct segment *at, __u32 own)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	int bad = read_frame(skb, p);
	if (bad)
		return bad;
	if (!g || !at || p->kind != KIND_IP)
		return DROP_NOT_IP;
	__u32 net = p->net = at->net;
	p->domain = at->domain;
	int private = is_host_addr(p, g);
	if (p->nd || (!private && (routed_network_at(p, &p->ip.f.src) || !is_external(p))))
		return DROP_SPOOF;
	struct network *n = bpf_map_lookup_elem(&networks, &net);
	struct endpoint *h = endpoint_at(p, &p->ip.f.dst);
	if (!n || !h || h->net != net)
		return DROP_UNKNOWN_DEST;
	p->encap = n->encap;
	p->tag = n->tag;
	__builtin_memcpy(p->eth.dst, h->mac, 6);
	__builtin_memcpy(p->eth.src, g->router, 6);
	if (!h->ifindex && (private || !is_from_its_node(p, NODE_LOCAL)))
		return DROP_SPOOF; // its host would drop it
	p->path = PATH_FROM_HOST;
	p->multicast = 0;
	p->to_routed = 1;
	p->host_socket = own;
	return bpf_skb_store_bytes(skb, 0, &p->eth, 12, 0) ? DROP_INVALID : 0;
}

// set_host_socket sets whether the connection c is of the host's own sockets: only packets of
// its client say so.
static __always_inline void set_host_socket(struct pkt *p, const struct ct *c)
{
	if (p->from != FROM_HOST || p->reply || p->error || p->ip.later)
		p->host_socket = c && c->state & CT_HOST_SOCKET;
}

// is_reply_to_host tells whether a packet is a reply in a connection that this host's stack
// has begun or forwarded.
static __always_inline int is_reply_to_host(const struct pkt *p, const struct ct *c)
{
	return c && p->reply && c->state & CT_VIA_HOST && !c->ingress_host;
}

// is_for_host tells whether a remote endpoint's packet to this host's router is for the host's
// stack.
static __noinline int is_for_host(struct pkt *p, struct ct *c)
{
	struct segment *at = routed_network_at(p, &p->ip.f.src);
	return at && at->net == p->net && (p->invalid || is_reply_to_host(p, c) || node_at(p, &p->ip.f.dst) == NODE_LOCAL);
}
