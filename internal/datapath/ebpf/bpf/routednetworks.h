// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Native networks, between their endpoints and the stacks of hosts: docs/design/native.md.
#pragma once

#include "servicenat.h"

#define HOST_MARK 0xc0ff2e77 // desired.OwnMark

static __noinline int is_external(struct pkt *p);
static __always_inline int is_host_addr(const struct pkt *p, const struct settings *g);

// is_from_its_node tells whether the machine of a number may send from a packet's source:
// from an address of the cluster's machines only the one that has it, and from no native
// network's.
static __noinline int is_from_its_node(struct pkt *p, __u32 number)
{
	if (routed_network_at(p, &p->ip.f.src))
		return 0;
	__u32 node = node_at(p, &p->ip.f.src);
	return node == NO_NODE || node == number;
}

// accept_to_routed tells why what the host's stack sends to an address of a native network is
// dropped; 0 = it goes on. own: a socket of the host sends it.
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
		return DROP_SPOOF; // its host would not believe that
	p->path = PATH_FROM_HOST;
	p->multicast = 0;
	p->to_routed = 1;
	p->host_socket = own;
	return bpf_skb_store_bytes(skb, 0, &p->eth, 12, 0) ? DROP_INVALID : 0;
}

// set_host_socket decides whether the connection c of the packet under way is one of the host's own
// sockets: only packets of its client tell.
static __always_inline void set_host_socket(struct pkt *p, const struct ct *c)
{
	if (p->from != FROM_HOST || p->reply || p->error || p->ip.later)
		p->host_socket = c && c->state & CT_HOST_SOCKET;
}

// is_reply_to_host tells whether a packet answers in a connection that this host's stack has
// begun, or whoever it led here.
static __always_inline int is_reply_to_host(const struct pkt *p, const struct ct *c)
{
	return c && p->reply && c->state & CT_VIA_HOST && !c->ingress_host;
}

// is_for_host tells whether the stack gets what an endpoint elsewhere sends to this host's
// router.
static __noinline int is_for_host(struct pkt *p, struct ct *c)
{
	struct segment *at = routed_network_at(p, &p->ip.f.src);
	return at && at->net == p->net && (p->invalid || is_reply_to_host(p, c) || node_at(p, &p->ip.f.dst) == NODE_LOCAL);
}
