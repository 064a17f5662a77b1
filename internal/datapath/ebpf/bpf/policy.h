// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Policy evaluation. Each rule has entries of its own, under the exact keys of its peers and
// port prefixes, so that one rule's change touches its own entries only. Only what is in use is
// looked up: kinds of peers and prefix lengths of a tier, and lengths of port prefixes of a
// peer. The rule with the highest weight decides.
#pragma once

#include "packet.h"

// match_rule takes the rule at a key if it outranks what was found so far. It returns the
// port prefixes for which its peer has rules.
static __always_inline __u64 match_rule(struct pkt *p, struct rule_key *k)
{
	struct rule *r = bpf_map_lookup_elem(&rules, k);
	if (!r)
		return 0;
	int now = r->generation <= p->generation;
	__u32 weight = now ? r->weight[1] : r->weight[0];
	__u64 id = now ? r->id[1] : r->id[0];
	if (weight > p->weight || (weight && weight == p->weight && id < p->rule)) {
		p->weight = weight;
		p->rule = id;
	}
	return r->ports;
}

// match_peer matches all rules of the peer at p->rk. Like evaluate_policy it is a global
// function, which the verifier reads once, not for each caller. The key is on its stack: Linux
// 6.1 accepts no argument of a global function as a map key.
__noinline int match_peer(struct pkt *p)
{
	if (!p)
		return 0;
	struct rule_key k = p->rk;
	k.proto = 0;
	k.port_bits = ANY_PROTOCOL;
	k.port = 0;
	__u32 shift = p->orig.proto == P_TCP ? 0 : p->orig.proto == P_UDP ? PORT_MASK_BITS : 2 * PORT_MASK_BITS;
	__u32 ports = match_rule(p, &k) >> shift & PORT_MASK;
	k.proto = p->orig.proto;
	for (__u32 i = 0; i < PORT_MASK_BITS && ports; i++, ports >>= 1) {
		if (!(ports & 1))
			continue;
		k.port_bits = 16 - i;
		k.port = p->port >> i << i;
		match_rule(p, &k);
	}
	return 0;
}

// first_bit is the number of the lowest set bit, without branches, each of which would double
// the verifier's paths.
static __always_inline __u32 first_bit(__u64 m)
{
	__u64 n = (m & -m) - 1;
	n -= n >> 1 & 0x5555555555555555ULL;
	n = (n & 0x3333333333333333ULL) + (n >> 2 & 0x3333333333333333ULL);
	n = (n + (n >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return n * 0x0101010101010101ULL >> 56;
}

// match_prefixes matches the peer's address with each prefix length in use: those of lengths,
// counted from base. mapped is 96 for IPv4, which is held as mapped. A global function too,
// since evaluate_policy calls it for each tier and scope.
__noinline int match_prefixes(struct pkt *p, __u64 lengths, __u32 base, __u32 mapped)
{
	if (!p)
		return 0;
	for (__u32 i = 0; i < 64 && lengths; i++, lengths &= lengths - 1) {
		__u32 bits = base + first_bit(lengths), n = bits + mapped;
		p->rk.bits = bits;
		p->rk.hi = n >= 64 ? p->peer_hi : n ? p->peer_hi & ~0ULL << (64 - n) : 0;
		p->rk.lo = n > 64 ? p->peer_lo & ~0ULL << (128 - n) : 0;
		match_peer(p);
	}
	return 0;
}

// evaluate_policy applies a policy set to p->orig, whose other end is the peer. It returns 1
// if the connection is allowed; p->rule is the rule that decided.
__noinline int evaluate_policy(struct pkt *p, __u32 set, __u32 dir)
{
	if (!p)
		return 0;
	struct rule_key *k = &p->rk;
	p->rule = 0;
	p->judged_set = set;
	p->judged_dir = dir;
	p->judged_tier = TIERS;
	if (!set)
		return 1;
	struct policy_set *s = bpf_map_lookup_elem(&sets, &set);
	if (!s)
		return 0; // its rules are not written yet, or not any more
	p->audits |= s->audits;
	const struct addr *other = dir == DIR_IN ? &p->orig.src : &p->orig.dst;
	const __u32 *a = (const void *)other;
	int v4 = (a[0] | a[1]) == 0 && a[2] == bpf_htonl(0xffff);
	p->peer_hi = (__u64)bpf_ntohl(a[0]) << 32 | bpf_ntohl(a[1]);
	p->peer_lo = (__u64)bpf_ntohl(a[2]) << 32 | bpf_ntohl(a[3]);
	p->generation = s->generation;
	p->port = 0;
	if (p->orig.proto == P_TCP || p->orig.proto == P_UDP || p->orig.proto == P_SCTP)
		p->port = p->orig.dport;
	k->instance = s->instance;
	k->dir = dir;
	for (__u32 t = 0; t < TIERS; t++) {
		struct stage *g = &s->stages[dir & 1][t];
		__u32 action = g->action;
		if (t >= s->tiers[dir & 1])
			break;
		p->weight = 0;
		p->rule = 0;
		k->tier = g->tier;
		k->bits = 0;
		k->scope = 0;
		k->hi = k->lo = 0;
		if (g->kinds & 1 << PEER_ANY) {
			k->kind = PEER_ANY;
			match_peer(p);
		}
		if (g->kinds & 1 << PEER_IDENTITY) {
			k->kind = PEER_IDENTITY;
			k->lo = p->peer_identity;
			match_peer(p);
		}
		k->kind = v4 ? PEER_CIDR4 : PEER_CIDR6;
		if (g->kinds & 1 << (v4 ? PEER_CIDR4 : PEER_CIDR6)) {
			for (__u32 i = 0; i < 2 * LENGTH_WORDS; i++) {
				__u32 word = i % LENGTH_WORDS;
				if ((word == 0) != v4)
					continue;
				__u64 left = g->lengths[i];
				if (!left)
					continue;
				k->scope = i < LENGTH_WORDS ? 0 : p->peer_net;
				match_prefixes(p, left, word ? (word - 1) * 64 : 0, v4 ? 96 : 0);
			}
		}
		if (p->weight)
			action = p->weight >> ACTION_SHIFT & ACTION_MASK;
		if (action == ACT_ALLOW)
			return 1;
		if (action != ACT_PASS) {
			if (!p->weight)
				p->judged_tier = t;
			return 0;
		}
	}
	p->rule = 0;
	return 1;
}
