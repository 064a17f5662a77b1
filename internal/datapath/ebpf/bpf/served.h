// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Connections to services, on the client's host: docs/design/services.md. What a
// client sends is given the addresses that it has behind its translation, then judged
// and sent on as any packet (p->ip.f says what it becomes, the frame what it was);
// what comes back is judged as what it is. The frame is rewritten last (translate.h).
#pragma once

#include "fronts.h"

#define SERVED -1
#define UNSERVED -3 // nobody is there

// vip_at tells whether an address is a service's where the packet comes from, and
// whose: first it takes down when that was, so that a later change is seen.
static __noinline __u32 *vip_at(struct pkt *p, struct addr *a)
{
	if (!a)
		return 0;
	p->vip_turn = turn_place(p->domain, a);
	p->nat_turns = turn_at(p->vip_turn);
	if (host_at(p, a)) // an endpoint has it
		return 0;
	p->hk.domain = p->domain;
	p->hk.ip = *a;
	return bpf_map_lookup_elem(&vips, &p->hk);
}

// ended_at counts the translations of a client that packets have ended: what was
// remembered of them on any processor is stale.
static __always_inline __u32 *ended_at(struct pkt *p)
{
	__u32 place = p->end_turn;
	return bpf_map_lookup_elem(&endings, &place);
}

// stamp_translation completes p->nat_turns, of the virtual address and the client.
static __always_inline void stamp_translation(struct pkt *p, const struct addr *client)
{
	p->end_turn = turn_place(p->domain, client);
	__u32 *ended = ended_at(p);
	p->nat_turns = turn_at(p->vip_turn) + (ended ? *(volatile __u32 *)ended : 0);
}

// backend_of finds the backend of the translation p->tr, while its service has it.
static __always_inline struct backend *backend_of(struct pkt *p, __u32 service)
{
	p->bk.service = service;
	p->bk.index = p->tr.index & ~FOREIGN;
	struct backend *b = bpf_map_lookup_elem(&backends, &p->bk);
	return b && b->id == p->tr.id ? b : 0;
}

// keeps tells whether the translation p->tr goes on with its service as that is now.
static __noinline int keeps(struct pkt *p)
{
	if (p->tr.front.pad == FRONT_OUTSIDE && !keeps_outside(p))
		return 0;
	p->hk.domain = p->domain;
	p->hk.ip = p->tr.front.hi;
	__u32 *number = bpf_map_lookup_elem(&vips, &p->hk);
	if (!number)
		return 0;
	struct front *f = front_of(p, *number & ~VIP_SHARED, p->tr.front.hi_port, p->tr.front.proto);
	if (!f || (p->tr.front.pad == FRONT_OUTSIDE && !f->exposed))
		return 0;
	__u32 n = f->service, port = f->port, v6 = p->ip.v6 & 1;
	struct service *s = bpf_map_lookup_elem(&services, &n);
	if (!s || s->seed != p->tr.seed)
		return 0;
	if (p->tr.front.proto != P_UDP)
		return 1;
	struct backend *b = backend_of(p, n);
	if (!b)
		return 0;
	__u16 own = v6 ? b->port6 : b->port;
	return (v6 ? b->state6 : b->state) != BACKEND_UNHEALTHY && (own ? own : port) == p->tr.backend_port;
}

// active tells whether the backend of p->tr takes new connections.
static __always_inline int active(struct pkt *p)
{
	struct front *f = front_of(p, p->vip, p->tr.front.hi_port, p->tr.front.proto);
	struct backend *b = f ? backend_of(p, f->service) : 0;
	return b && (p->ip.v6 & 1 ? b->state6 : b->state) == BACKEND_ACTIVE;
}

// drop_conn takes out the connection of p->ck, if it is a translation's.
static __noinline int drop_conn(struct pkt *p)
{
	struct ct *c = bpf_map_lookup_elem(&halfopen, &p->ck);
	if (c && c->state & CT_SERVICE) {
		__u32 owner = c->owner, slot = c->slot;
		if (!bpf_map_delete_elem(&halfopen, &p->ck))
			count_held(owner, -1, 0);
		leave_slot(p, slot, owner);
	}
	c = bpf_map_lookup_elem(&conns, &p->ck);
	if (c && c->state & CT_SERVICE) {
		__u32 owner = c->owner;
		if (!bpf_map_delete_elem(&conns, &p->ck))
			count_held(owner, 0, -1);
	}
	return 0;
}

// end_translation takes out the one whose connection is that of p->ck, which is
// p->old's; the one that was entered in its place in front stays.
static __noinline int end_translation(struct pkt *p, __u32 replaced)
{
	__u32 *ended = ended_at(p);
	bpf_map_delete_elem(&translations, &p->ck);
	if (!replaced) {
		p->tk = p->old.front;
		bpf_map_delete_elem(&translations, &p->tk);
	}
	drop_conn(p);
	if (ended)
		__sync_fetch_and_add(ended, 1);
	return 0;
}

// behind makes p->becomes what a client's packet of the translation p->tr becomes.
static __always_inline void behind(struct pkt *p)
{
	struct flow *b = &p->becomes;
	*b = p->was;
	b->dst = p->tr.backend;
	b->sport = p->tr.behind_port;
	b->dport = p->tr.backend_port;
	b->proto = p->tr.front.proto;
	p->itself = same_addr(&p->was.src, &b->dst);
	if (p->itself)
		service_addr(&b->src, p->ip.v6);
}

// lives tells whether the translation p->tr goes on.
static __noinline int lives(struct pkt *p, __u64 now)
{
	behind(p);
	make_key(p, &p->becomes);
	struct ct *c = find(p, now);
	return c && c->state & CT_SERVICE && (c->stamp == p->stamp || keeps(p));
}

#define OTHER_PORTS 64 // of a client's that are tried when its own is taken
#define FIRST_PORT 1024

struct port_search {
	struct pkt *p;
	__u64 now;
	__u32 found;
};

// try_port tells whether p->becomes is nobody's tuple, or the former one of the same
// client's connection; if not, its next port is to be tried.
static long try_port(__u32 i, struct port_search *l)
{
	struct pkt *p = l->p;
	make_key(p, &p->becomes);
	struct ct *c = find(p, l->now);
	struct translation *t = c && c->state & CT_SERVICE ? bpf_map_lookup_elem(&translations, &p->ck) : 0;
	if (!c || (c->state & CT_SERVICE && (!t || same_key(&t->front, &p->tk)))) {
		l->found = 1;
		return 1;
	}
	__u16 next = p->becomes.sport + 1;
	p->becomes.sport = next < FIRST_PORT ? FIRST_PORT : next;
	return 0;
}

// stays_with finds the place of the backend that the client of p->was stays with; NO_OWNER
// = of none, and note_affinity will remember the one that is chosen, if it has room.
static __noinline int stays_with(struct pkt *p, __u64 affinity, __u64 now)
{
	p->ak.seed = p->tr.seed;
	p->ak.client = p->was.src;
	struct affine *a = bpf_map_lookup_elem(&affines, &p->ak);
	if (!a) {
		__u32 *n = bpf_map_lookup_elem(&affine_counts, &p->ak.seed);
		return n && *n >= MAX_AFFINE ? FORGOTTEN : NO_OWNER;
	}
	if (now > a->last && now - a->last >= affinity)
		return NO_OWNER;
	p->bk.service = p->service;
	p->bk.index = a->index;
	struct backend *b = bpf_map_lookup_elem(&backends, &p->bk);
	return b && b->id == a->id && b->among >> p->choice & 1 ? (int)p->bk.index : NO_OWNER;
}

// choose begins a translation of the packet under way, whose key in front is p->tk;
// SERVED = done, UNSERVED = there is no backend.
static __noinline int choose(struct pkt *p, __u64 now)
{
	__u32 v6 = p->ip.v6 & 1;
	__u8 flags = p->ip.tcp_flags;
	if (p->was.proto == P_TCP && (flags & TCP_RST || (flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK)))
		return dropped(DROP_INVALID);
	struct front *f = front_of(p, p->vip, p->was.dport, p->was.proto);
	if (!f || (p->asks && !f->exposed))
		return UNSERVED;
	if (f->sources) {
		p->nk.bits = DOMAIN_BITS + 128;
		p->nk.domain = f->sources | (v6 ? SOURCES6 : 0);
		p->nk.ip = p->was.src;
		if (!bpf_map_lookup_elem(&sources, &p->nk))
			return dropped(DROP_NO_PROVIDER);
	}
	__u8 policy = p->asks == ASKS_HOST ? TRAFFIC_LOCAL : p->asks ? f->outside : f->inside;
	__u32 number = f->service, choice = among_of(policy) + v6;
	p->service = number;
	p->choice = choice;
	p->tr.backend_port = f->port;
	struct service *s = bpf_map_lookup_elem(&services, &number);
	if (!s)
		return UNSERVED;
	p->tr.front = p->tk;
	p->tr.seed = s->seed;
	int index = NO_OWNER;
	if (s->affinity)
		index = stays_with(p, s->affinity, now);
	if (index < 0)
		index = owner_of(number, slot_of(s, &p->was, index == FORGOTTEN), choice);
	if (index == NO_OWNER)
		return policy == TRAFFIC_SILENT && (s->among[AMONG_ALL + v6] | s->table[AMONG_ALL + v6]) ? dropped(DROP_NO_PROVIDER) : UNSERVED;
	p->bk.service = number;
	p->bk.index = p->tr.index = index;
	struct backend *b = bpf_map_lookup_elem(&backends, &p->bk);
	if (index < 0 || !b || !(b->among >> choice & 1)) // it was there a moment ago
		return dropped(DROP_INVALID);
	p->tr.id = *(volatile __u64 *)&b->id;
	p->tr.backend = v6 ? b->ip[1] : b->ip[0];
	if (b->foreign) {
		if (p->asks)
			return dropped(DROP_NO_PROVIDER); // its answer would not come by here
		p->tr.index |= FOREIGN;
	}
	__u16 own = v6 ? b->port6 : b->port;
	if (own)
		p->tr.backend_port = own;
	if (*(volatile __u64 *)&b->id != p->tr.id) // written anew meanwhile
		return dropped(DROP_INVALID);
	p->tr.behind_port = p->was.sport;
	behind(p);
	struct port_search l = { .p = p, .now = now };
	bpf_loop(OTHER_PORTS, try_port, &l, 0);
	if (!l.found)
		return dropped(DROP_INVALID);
	p->tr.behind_port = p->becomes.sport;
	p->tr.space = p->ck.domain;
	p->begun = 1;
	return SERVED;
}

// known_translation finds that of a client's packet; SERVED = it is p->tr, 0 = there is
// none yet, else what becomes of the packet.
static __noinline int known_translation(struct __sk_buff *skb, struct pkt *p, __u64 now)
{
	struct flow *f = &p->ip.f;
	struct translation *t;
	if (p->ip.later) {
		t = first_of(p, now);
	} else if (p->error) {
		t = quoted_by(skb, p);
	} else {
		if (!has_ports(f->proto))
			return dropped(DROP_NO_PROVIDER);
		name_front(p, &f->src, &f->dst, f->sport, f->dport, f->proto);
		t = bpf_map_lookup_elem(&translations, &p->tk);
	}
	if (t) {
		p->tr = *t;
		int on = lives(p, now);
		if (on && !(request(p) && !active(p)))
			return SERVED;
	}
	return p->ip.later || p->error ? dropped(DROP_INVALID) : 0;
}

// lead_out finds the way of what is translated to an address that is no endpoint's: that
// of what its client itself sends there.
static __noinline int lead_out(struct pkt *p)
{
	__u32 zero = 0, ifindex = p->ifindex;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct port *o = bpf_map_lookup_elem(&ports, &ifindex);
	if (!g || !o || host_at(p, &p->ip.f.dst)) // an endpoint is another backend
		return dropped(DROP_UNKNOWN_DEST);
	p->way = p->domain >= JOINED ? route_of(p, g, o) : way_of(p, g, o);
	return p->way == WAY_NONE || p->way == WAY_NOWHERE ? dropped(DROP_UNKNOWN_DEST) : SERVED;
}

// serve takes what a container, or a client outside, sends to a virtual address; SERVED = it goes on, as
// what it becomes, UNSERVED = nobody is there.
static __noinline int serve(struct __sk_buff *skb, struct pkt *p, __u64 now)
{
	struct flow *f = &p->ip.f;
	p->way = WAY_NONE;
	if (!p->at_home)
		return dropped(DROP_UNKNOWN_SOURCE); // no backend elsewhere could answer it
	p->was = *f;
	p->nat = NAT_THERE;
	stamp_translation(p, &p->was.src);
	p->error = is_error(p);
	int told = known_translation(skb, p, now);
	if (!told)
		told = choose(p, now);
	if (told != SERVED)
		return told;
	f->src = p->becomes.src;
	f->dst = p->becomes.dst;
	if (p->error) {
		p->quoted = p->inner.f;
		p->inner.f.src = p->becomes.dst;
		p->inner.f.dst = p->becomes.src;
		p->inner.f.sport = p->becomes.dport;
		p->inner.f.dport = p->becomes.sport;
		p->requoted = p->inner.f;
	} else if (!p->ip.later) {
		f->sport = p->becomes.sport;
		f->dport = p->becomes.dport;
	}
	if (p->tr.index & FOREIGN)
		return lead_out(p);
	if (p->itself)
		return SERVED;
	struct host *h = host_at(p, &f->dst);
	if (!h)
		return dropped(DROP_UNKNOWN_DEST);
	if (p->from == FROM_HOST) {
		int told = lead_on(p, h);
		return told == ROUTED ? SERVED : told;
	}
	if (h->net == p->net) {
		__builtin_memcpy(p->eth.dst, h->mac, 6);
		return SERVED;
	}
	if (h->stray)
		return dropped(DROP_UNKNOWN_DEST);
	p->to_net = h->net;
	__builtin_memcpy(p->to_mac, h->mac, 6);
	p->way = WAY_ROUTED;
	return SERVED;
}

#define AGAIN -2

// come_back takes a packet of the connection c of a translation that is none of a
// client's to its service: SERVED = it goes on, AGAIN = there is no such connection
// any more, else what becomes of it.
static __noinline int come_back(struct pkt *p, struct ct *c)
{
	struct translation *t = bpf_map_lookup_elem(&translations, &p->ck);
	// The same client of a service here, whom another host leads to the backend itself.
	if (p->from == FROM_TUNNEL && p->way == WAY_IN && (!t || t->front.pad == FRONT_OUTSIDE))
		return SERVED;
	if (!c || !t)
		return dropped(DROP_INVALID);
	p->tr = *t;
	p->itself = is_service_addr(&p->orig.src);
	p->vip_turn = turn_place(p->domain, &p->tr.front.hi);
	stamp_translation(p, &p->tr.front.lo);
	p->stamp += p->nat_turns;
	// A closed one gives its tuple up to a request.
	if ((request(p) && !p->error && !p->ip.later && closed(c->state)) || (c->stamp != p->stamp && !keeps(p))) {
		p->old = p->tr;
		end_translation(p, 0);
		p->nat_turns = 0;
		p->itself = 0;
		return AGAIN;
	}
	if (p->error && !p->reply)
		return SERVED; // the client, to the backend by its own address
	if (!p->reply || (request(p) && !p->error && !p->ip.later))
		return dropped(DROP_INVALID); // the tuple is the translation's
	if (p->tr.front.pad == FRONT_OUTSIDE) {
		if (p->multicast)
			return dropped(DROP_UNKNOWN_DEST);
		p->way = WAY_HOME;
	}
	struct flow *b = &p->becomes;
	p->nat = NAT_BACK;
	p->was = p->ip.f;
	*b = p->was;
	b->dst = p->tr.front.lo;
	if (same_addr(&p->was.src, &p->tr.backend))
		b->src = p->tr.front.hi;
	b->sport = p->tr.front.hi_port;
	b->dport = p->tr.front.lo_port;
	if (p->error) {
		p->quoted = p->requoted = p->inner.f;
		p->requoted.src = p->tr.front.lo;
		p->requoted.dst = p->tr.front.hi;
		p->requoted.sport = p->tr.front.lo_port;
		p->requoted.dport = p->tr.front.hi_port;
	}
	return SERVED;
}

// note_affinity remembers to whom a client's new connection went.
static __noinline int note_affinity(struct pkt *p, __u64 now)
{
	__u32 number = p->service, one = 1;
	struct service *s = bpf_map_lookup_elem(&services, &number);
	if (!s || !s->affinity)
		return 0;
	p->ak.seed = p->tr.seed;
	p->ak.client = p->tr.front.lo;
	p->affine.id = p->tr.id;
	p->affine.index = p->tr.index & ~FOREIGN;
	p->affine.last = now;
	p->affine.pad = 0;
	if (!bpf_map_update_elem(&affines, &p->ak, &p->affine, BPF_EXIST))
		return 0;
	__u32 *n = bpf_map_lookup_elem(&affine_counts, &p->ak.seed);
	if (n && *n >= MAX_AFFINE)
		return 0;
	if (bpf_map_update_elem(&affines, &p->ak, &p->affine, BPF_NOEXIST))
		return 0;
	made(MADE_AFFINE);
	if (n)
		__sync_fetch_and_add(n, 1);
	else
		bpf_map_update_elem(&affine_counts, &p->ak.seed, &one, BPF_NOEXIST);
	return 0;
}

// keep enters the new translation of a packet that was let through, once its
// connection is entered; entered = it is. It comes last: p->ck is another one then.
static __noinline int keep(struct pkt *p, __u64 now, __u32 entered)
{
	if (p->ip.fragment && p->ip.more && !p->ip.later) { // as commit has noted it behind
		p->fk.src = p->was.src;
		p->fk.dst = p->was.dst;
		note_datagram(p);
	}
	if (!p->begun)
		return 0;
	note_affinity(p, now);
	if (!entered || bpf_map_update_elem(&translations, &p->ck, &p->tr, BPF_ANY)) {
		p->begun = 0;
		return 0;
	}
	p->tk = p->tr.front;
	struct translation *former = bpf_map_lookup_elem(&translations, &p->tk);
	int had = former != 0;
	if (former)
		p->old = *former;
	if (bpf_map_update_elem(&translations, &p->tk, &p->tr, BPF_ANY))
		return 0;
	if (!had || (same_addr(&p->old.backend, &p->tr.backend) && p->old.behind_port == p->tr.behind_port && p->old.backend_port == p->tr.backend_port))
		return 0;
	__u16 port = p->old.behind_port;
	struct flow *b = &p->requoted;
	b->src = p->old.front.lo;
	b->dst = p->old.backend;
	b->sport = port;
	b->dport = p->old.backend_port;
	b->proto = p->old.front.proto;
	if (same_addr(&b->src, &b->dst))
		service_addr(&b->src, p->ip.v6);
	make_key(p, b);
	return end_translation(p, 1);
}

// by_link_local has what a container answers to itself come from its address; 0 = done.
// A socket that is bound to no address answers by the link-local one (RFC 6724 rule 2).
static __noinline int by_link_local(struct __sk_buff *skb, struct pkt *p, struct port *o)
{
	if (!p->ip.v6 || !is_link_local(&p->ip.f.src) || !o || zero_addr(&o->ip6))
		return 0;
	p->becomes.src = o->ip6;
	if (readdress_one(skb, p, IP6_SRC, &p->ip.f.src, &p->becomes.src))
		return -1;
	p->ip.f.src = p->becomes.src;
	return 0;
}

// to_itself delivers to a container what it has sent to a service whose backend it
// is, or what it has answered to itself. No policy is asked.
static __noinline int to_itself(struct __sk_buff *skb, struct pkt *p, struct settings *g, __u64 now)
{
	if (!g || !p->nat)
		return dropped(DROP_UNKNOWN_DEST);
	struct host *h = host_at(p, &p->tr.backend);
	p->owner = h ? charge_to(h) : NOBODY;
	p->src_hand = 0;
	p->dst_hand = h ? h->hand : 0;
	p->out_rule = p->rule = 0;
	int entered = commit(p, now, p->stamp, p->ifindex);
	if (p->nat == NAT_THERE)
		keep(p, now, entered);
	count_served(p);
	if (rewrite(skb, p))
		return dropped(DROP_INVALID);
	__builtin_memcpy(p->eth.dst, p->eth.src, 6);
	__builtin_memcpy(p->eth.src, g->router, 6);
	if (bpf_skb_store_bytes(skb, 0, &p->eth, 12, 0))
		return dropped(DROP_INVALID);
	return to_port(skb, p, p->ifindex);
}
