// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The verdict on a connection: per tier at most two look-ups for the address
// classes and four for rules, however many rules there are.
#pragma once

#include "packet.h"

static __always_inline struct rule *better(struct pkt *p, struct rule *best, __u8 kind, __u32 peer)
{
	p->rk.kind = kind;
	p->rk.peer = peer;
	struct rule *r = bpf_map_lookup_elem(&rules, &p->rk);
	if (r && (!best || r->rank < best->rank))
		return r;
	return best;
}

// judge applies a policy set to p->orig; other is the end that is the peer.
// It returns 1 when the connection passes; p->rule says what decided.
static __noinline int judge(struct pkt *p, __u32 set, __u32 dir)
{
	p->rule = 0;
	p->judged_set = set;
	p->judged_dir = dir;
	p->judged_tier = TIERS;
	if (!set)
		return 1;
	struct policy_set *s = bpf_map_lookup_elem(&sets, &set);
	if (!s)
		return 0; // its rules are not in (any more)
	const struct addr *other = dir == DIR_IN ? &p->orig.src : &p->orig.dst;
	__u32 tiers = s->tiers[dir & 1];
	p->rk.prefixlen = RULE_BITS;
	p->rk.version = p->lk.version = s->version;
	p->rk.dir = p->lk.dir = dir;
	p->rk.pad = p->rk.pad2 = p->lk.pad = 0;
	p->rk.proto = p->orig.proto;
	p->rk.port = 0;
	if (p->orig.proto == P_TCP || p->orig.proto == P_UDP || p->orig.proto == P_SCTP)
		p->rk.port = bpf_htons(p->orig.dport);
	p->lk.ip = *other;
	const __u32 *w = (const void *)other;
	p->lk.family = (w[0] | w[1]) == 0 && w[2] == bpf_htonl(0xffff) ? 4 : 6;
	for (__u32 t = 0; t < TIERS; t++) {
		struct rule *best = 0;
		__u32 action, *class;
		if (t >= tiers)
			return 1;
		p->rk.tier = p->lk.tier = t;
		best = better(p, best, PEER_ANY, 0);
		best = better(p, best, PEER_IDENTITY, p->peer_identity);
		p->lk.prefixlen = CIDR_BITS;
		p->lk.scope = 0;
		class = bpf_map_lookup_elem(&cidrs, &p->lk);
		if (class && *class)
			best = better(p, best, PEER_CLASS, *class);
		p->lk.scope = p->net;
		class = bpf_map_lookup_elem(&cidrs, &p->lk);
		if (class && *class)
			best = better(p, best, PEER_CLASS, *class);
		action = s->defaults[dir & 1][t];
		p->rule = 0;
		if (best) {
			action = best->action;
			p->rule = best->id;
		}
		if (action == ACT_ALLOW)
			return 1;
		if (action != ACT_PASS) {
			if (!best)
				p->judged_tier = t;
			return 0;
		}
	}
	p->rule = 0;
	return 1;
}
