// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Connection tracking: one entry for both directions, by the ordered pair of ends. The entry
// says which end began.
#pragma once

#include "connshares.h"

#define SECOND 1000000000ULL

// is_closed tells whether both ends of a TCP connection sent FIN, or one sent RST.
static __always_inline int is_closed(__u8 state)
{
	return state & CT_RESET || (state & CT_FINS) == CT_FINS;
}

// timeout is how long a connection lives without packets; expired in expire.go must agree.
// Half-closed TCP lives as long as Linux's FIN_WAIT, closed TCP as its LAST_ACK.
static __always_inline __u64 timeout(__u8 proto, __u8 state)
{
	switch (proto) {
	case P_TCP:
		if (is_closed(state))
			return 30 * SECOND;
		return state & CT_OPEN && !(state & CT_FINS) ? 8 * 3600 * SECOND : 120 * SECOND;
	case P_ICMP:
	case P_ICMP6:
		return 30 * SECOND;
	}
	return state & CT_REPLIED ? 180 * SECOND : 60 * SECOND;
}

// generation_index returns the index in map turns of an address's generation;
// generationIndex in generations.go must agree.
static __always_inline __u32 generation_index(__u32 domain, const struct addr *a)
{
	const __u32 *w = (const void *)a;
	const __u64 odd = 0x9e3779b97f4a7c15ULL; // 2^64 by the golden ratio (Knuth 6.4)
	__u64 h = (((__u64)w[0] << 32 | w[1]) ^ domain) * odd;
	h = (h ^ h >> 29 ^ ((__u64)w[2] << 32 | w[3])) * odd;
	return h >> (64 - GENERATION_BITS);
}

static __always_inline __u32 generation_at(__u32 place)
{
	__u32 *n = bpf_map_lookup_elem(&turns, &place);
	return n ? *(volatile __u32 *)n : 0;
}

// owner_version_at returns the owner version of an address; 0 = no known endpoint has it.
static __always_inline __u32 owner_version_at(struct pkt *p, const struct addr *a)
{
	p->hk.domain = domain_of(p, a);
	p->hk.ip = *a;
	struct endpoint *h = bpf_map_lookup_elem(&hosts, &p->hk);
	return h ? h->owner_version : 0;
}

// same_owners tells whether the same endpoints are at a connection's ends as before. An end
// without a known endpoint matches whatever gets its address.
__noinline int same_owners(struct ct *c)
{
	struct pkt *p = current_packet();
	if (!p || !c)
		return 0;
	if (c->lo_owner_version && c->lo_owner_version != owner_version_at(p, &p->ck.lo))
		return 0;
	return !c->hi_owner_version || c->hi_owner_version == owner_version_at(p, &p->ck.hi);
}

// make_key makes p->ck the key of a flow, and p->version the version of what is looked up
// about its ends from now on; it returns whether the ends were swapped.
static __always_inline int make_key(struct pkt *p, const struct flow *f)
{
	struct ct_key *k = &p->ck;
	const __u32 *a = (const void *)&f->src, *b = (const void *)&f->dst;
	int flip = 0;
	if (a[3] != b[3])
		flip = a[3] > b[3];
	else if (a[2] != b[2])
		flip = a[2] > b[2];
	else if (a[1] != b[1])
		flip = a[1] > b[1];
	else if (a[0] != b[0])
		flip = a[0] > b[0];
	else
		flip = f->sport > f->dport;
	k->proto = f->proto;
	k->flip = 0;
	k->pad = 0;
	if (flip) {
		k->lo = f->dst;
		k->hi = f->src;
		k->lo_port = f->dport;
		k->hi_port = f->sport;
	} else {
		k->lo = f->src;
		k->hi = f->dst;
		k->lo_port = f->sport;
		k->hi_port = f->dport;
	}
	__u32 lo_space = p->relayed ? 0 : domain_of(p, &k->lo), hi_space = p->relayed ? 0 : domain_of(p, &k->hi);
	k->domain = lo_space < hi_space ? lo_space : hi_space;
	__u32 lo = generation_index(lo_space, &k->lo), hi = generation_index(hi_space, &k->hi);
	p->lo_index = lo;
	p->hi_index = hi;
	// Each only grows, so an equal sum means that nothing changed.
	p->version = p->epoch + generation_at(lo) + generation_at(hi) + p->nat_generation;
	return flip;
}

static __always_inline void set_orig(struct pkt *p, const struct flow *f, int reply)
{
	p->reply = reply;
	if (!reply) {
		p->orig = *f;
		return;
	}
	p->orig.src = f->dst;
	p->orig.dst = f->src;
	p->orig.sport = f->dport;
	p->orig.dport = f->sport;
	p->orig.proto = f->proto;
}

static __always_inline int is_alive(struct pkt *p, struct ct *c, __u64 now)
{
	if (now - c->seen > timeout(p->ck.proto, c->state) && now > c->seen)
		return 0;
	// A reply of a service does not have its whole version yet.
	if (c->state & CT_SERVICE && p->nat != NAT_REQUEST)
		return same_owners(c);
	return c->version == p->version || same_owners(c);
}

// find_conn finds the connection of p->ck. p->half_open says in which table; p->replaces says
// that there is an expired one, or one between other endpoints.
static __noinline struct ct *find_conn(struct pkt *p, __u64 now)
{
	struct ct *c = bpf_map_lookup_elem(&conns, &p->ck);
	p->half_open = p->replaces = 0;
	if (c && is_alive(p, c, now))
		return c;
	c = bpf_map_lookup_elem(&halfopen, &p->ck);
	p->half_open = 1;
	if (c && is_alive(p, c, now))
		return c;
	p->replaces = c != 0;
	return 0;
}

// find_again returns what find_conn found.
static __always_inline struct ct *find_again(struct pkt *p)
{
	return p->half_open ? bpf_map_lookup_elem(&halfopen, &p->ck) : bpf_map_lookup_elem(&conns, &p->ck);
}

// next_state is a connection's state after the packet under way.
static __always_inline __u8 next_state(const struct pkt *p, __u8 state)
{
	__u8 flags = p->ip.tcp_flags;
	if (p->error) // an error is about the connection, and no part of it
		return state;
	if (p->reply)
		state |= CT_REPLIED;
	if (p->ip.f.proto != P_TCP)
		return state & CT_REPLIED ? state | CT_OPEN : state;
	if (!p->reply && state & CT_REPLIED && !(flags & TCP_SYN))
		state |= CT_OPEN;
	if (flags & TCP_FIN)
		state |= p->reply ? CT_FIN << 1 : CT_FIN;
	if (flags & TCP_RST)
		state |= CT_RESET;
	return state;
}

// find_flow finds the connection of a flow in either direction.
static __always_inline struct ct *find_flow(struct pkt *p, const struct flow *f, __u64 now)
{
	int flip = make_key(p, f);
	if (f->proto == P_ICMP || f->proto == P_ICMP6)
		p->ck.flip = flip;
	struct ct *c = find_conn(p, now);
	if (!c && (f->proto == P_ICMP || f->proto == P_ICMP6)) {
		p->ck.flip = !flip;
		c = find_conn(p, now);
	}
	if (c)
		set_orig(p, f, flip != c->flipped);
	return c;
}

// read_quoted reads the packet that an ICMP error is about.
static __noinline int read_quoted(struct __sk_buff *skb, struct pkt *p)
{
	struct ip *h = &p->inner;
	__builtin_memset(h, 0, sizeof(*h));
	if (p->ip.v6) {
		if (read_ip6(skb, h, p->ip.l4 + 8, 1))
			return -1;
	} else if (read_ip4(skb, p, h, p->ip.l4 + 8, 1)) {
		return -1;
	}
	return h->later ? -1 : 0;
}

// set_frag_key makes p->fk the key of a fragment's datagram.
static __always_inline void set_frag_key(struct pkt *p)
{
	const struct flow *f = &p->ip.f;
	p->fk.domain = p->domain;
	p->fk.id = p->ip.frag_id;
	p->fk.src = f->src;
	p->fk.dst = f->dst;
	p->fk.proto = p->ip.v6 ? 0 : f->proto;
}

// store_frag stores p->frag as the datagram of p->fk.
static __always_inline void store_frag(struct pkt *p)
{
	if (!bpf_map_update_elem(&frags, &p->fk, &p->frag, BPF_NOEXIST))
		count_created(CREATED_FRAG);
	else
		bpf_map_update_elem(&frags, &p->fk, &p->frag, BPF_ANY);
}

struct overlap {
	struct pkt *p;
	struct frag *f;
	__u32 found;
};

static long overlap_one(__u32 i, struct overlap *o)
{
	if (i >= FRAG_PARTS)
		return 1;
	o->found |= o->p->ip.frag_from < o->f->part[i].to && o->f->part[i].from < o->p->ip.frag_to;
	return o->found;
}

// overlaps tells whether a fragment overlaps another one, or is one too many; otherwise its
// range is stored. A datagram must not depend on who reassembles it (RFC 1858, RFC 5722).
static __noinline int overlaps(struct pkt *p, struct frag *f)
{
	if (!f)
		return 1;
	__u32 n = f->parts;
	struct overlap o = { .p = p, .f = f };
	bpf_loop(n, overlap_one, &o, 0);
	if (o.found || n >= FRAG_PARTS)
		return 1;
	f->part[n].from = p->ip.frag_from;
	f->part[n].to = p->ip.frag_to;
	f->parts = n + 1;
	return 0;
}

// is_syn tells whether a packet requests a TCP connection.
static __always_inline int is_syn(const struct pkt *p)
{
	return p->ip.f.proto == P_TCP && (p->ip.tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

// lookup_connection finds the connection of a packet, and sets p->orig to its original
// direction; 0 = none is known. p->invalid is set if the packet could only be part of a
// connection that is not known.
static __noinline struct ct *lookup_connection(struct __sk_buff *skb, struct pkt *p, __u64 now)
{
	struct flow *f = &p->ip.f;
	struct ct *c;
	int flip;
	p->known = p->error = 0;
	p->invalid = 1;
	if (p->ip.fragment)
		set_frag_key(p);
	if (p->ip.later) {
		struct frag *fr = bpf_map_lookup_elem(&frags, &p->fk);
		if (!fr || !fr->parts || now - fr->seen > 30 * SECOND || overlaps(p, fr))
			return 0;
		p->orig = fr->orig;
		p->reply = fr->reply;
		flip = make_key(p, &p->orig);
		if (p->orig.proto == P_ICMP || p->orig.proto == P_ICMP6)
			p->ck.flip = flip;
		p->invalid = 0;
		c = find_conn(p, now);
		p->known = c != 0;
		return c;
	}
	if (f->proto == P_ICMP || f->proto == P_ICMP6) {
		__u8 t = p->ip.type;
		int query, answer, error;
		if ((f->proto == P_ICMP6) != p->ip.v6)
			return 0;
		if (p->ip.v6) {
			query = t == 128;
			answer = t == 129;
			error = t >= 1 && t <= 4;
		} else {
			query = t == 8 || t == 13 || t == 15 || t == 17;
			answer = t == 0 || t == 14 || t == 16 || t == 18;
			error = t == 3 || t == 4 || t == 5 || t == 11 || t == 12;
		}
		if (error) {
			if ((p->nat != NAT_REQUEST && read_quoted(skb, p)) || !same_addr(&p->inner.f.src, &f->dst))
				return 0;
			// A container is no router: it may report errors only about packets that were sent to it.
			if (p->from == FROM_PORT && !same_addr(&p->inner.f.dst, &f->src))
				return 0;
			c = find_flow(p, &p->inner.f, now);
			p->known = c != 0;
			p->reply = !p->reply; // an error goes against the packet that it quotes
			p->error = 1;
			p->invalid = !c;
			return c;
		}
		if (!query && !answer)
			return 0;
		flip = make_key(p, f);
		p->ck.flip = answer ? !flip : flip;
		set_orig(p, f, answer);
		c = find_conn(p, now);
		p->known = c != 0;
		p->invalid = !query && !c;
		return c;
	}
	c = find_flow(p, f, now);
	// A request of the end that did not begin, or after the connection has ended, begins a new
	// connection.
	if (c && is_syn(p) && (!(c->state & CT_SERVICE) || p->nat) && (p->reply || c->state & (CT_RESET | CT_FINS))) {
		c = 0;
		p->replaces = 1;
	}
	if (c) {
		p->known = 1;
		p->invalid = 0;
		return c;
	}
	if (f->proto == P_TCP) {
		// A connection may be picked up in the middle, but not by RST or SYN-ACK.
		if (p->ip.tcp_flags & TCP_RST || (p->ip.tcp_flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK))
			return 0;
	}
	set_orig(p, f, 0);
	p->invalid = 0;
	return 0;
}

static __always_inline int is_flipped(const struct pkt *p)
{
	return !(same_addr(&p->orig.src, &p->ck.lo) && p->orig.sport == p->ck.lo_port);
}

// set_owner_versions stores the owner versions of a connection's ends.
static __always_inline void set_owner_versions(struct pkt *p, struct ct *c)
{
	if (c->flipped) {
		c->lo_owner_version = p->dst_owner_version;
		c->hi_owner_version = p->src_owner_version;
	} else {
		c->lo_owner_version = p->src_owner_version;
		c->hi_owner_version = p->dst_owner_version;
	}
}

// with_marks adds to a connection's state whether it goes through the host, is of a socket of
// the host, and is translated. An error leaves the last one as it is.
static __always_inline __u8 with_marks(const struct pkt *p, __u8 state)
{
	state &= p->error ? ~(CT_VIA_HOST | CT_HOST_SOCKET) : ~(CT_VIA_HOST | CT_HOST_SOCKET | CT_SERVICE);
	return state | (p->nat ? CT_SERVICE : 0) | (p->path ? CT_VIA_HOST : 0) | (p->host_socket ? CT_HOST_SOCKET : 0);
}

// note_ingress_host stores by which host the connection's client outside comes. Packets of a
// container leave that as it is.
static __always_inline void note_ingress_host(const struct pkt *p, struct ct *c)
{
	if (p->from != FROM_PORT && c->ingress_host != p->other_host)
		c->ingress_host = p->other_host;
}

// commit stores that a packet of the connection was allowed; 0 = there was no room.
__noinline int commit(__u64 now, __u32 version, __u32 in_ifindex)
{
	struct pkt *p = current_packet();
	if (!p)
		return 0;
	struct ct *c = p->known || p->replaces ? find_again(p) : 0;
	int there = 1;
	if (c) {
		__u8 state = next_state(p, p->known ? c->state : 0);
		c->out_rule = p->out_rule;
		c->in_rule = p->rule;
		c->in_ifindex = in_ifindex;
		c->state = with_marks(p, state);
		c->seen = now;
		note_ingress_host(p, c);
		if (!p->known)
			c->flipped = is_flipped(p);
		set_owner_versions(p, c);
		c->version = version; // last: who finds the version finds the rest
		if (p->half_open && state & CT_OPEN)
			promote(c);
	} else {
		struct ct *n = &p->fresh;
		__builtin_memset(n, 0, sizeof(*n));
		n->seen = now;
		n->out_rule = p->out_rule;
		n->in_rule = p->rule;
		n->version = version;
		n->in_ifindex = in_ifindex;
		n->state = with_marks(p, next_state(p, 0));
		n->flipped = is_flipped(p);
		n->ingress_host = p->other_host;
		set_owner_versions(p, n);
		there = insert_half_open(p);
	}
	if (p->ip.fragment && p->ip.more && !p->ip.later) {
		p->frag.orig = p->orig;
		p->frag.reply = p->reply;
		p->frag.seen = now;
		p->frag.parts = 1;
		p->frag.waits = 0;
		p->frag.part[0].from = p->ip.frag_from;
		p->frag.part[0].to = p->ip.frag_to;
		store_frag(p);
	}
	return there;
}
