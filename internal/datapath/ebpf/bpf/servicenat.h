// SPDX-License-Identifier: (MIT OR GPL-2.0)
// NAT of connections to services, on the client's host: docs/design/services.md. A client's
// packet gets its addresses after NAT in p->ip.f, is judged by these and forwarded like any
// other; the frame still has those before NAT. A reply is judged by its own addresses. The
// frame is rewritten last (translate.h).
#pragma once

#include "relay.h"

#define NO_BACKEND -3 // there is no backend

// lookup_vip finds the number of a virtual address in the packet's domain; 0 = it is none. The
// generation is read first, so that a later change is noticed.
static __noinline __u32 *lookup_vip(struct pkt *p, struct addr *a)
{
	if (!a)
		return 0;
	p->vip_index = generation_index(p->domain, a);
	p->nat_generation = generation_at(p->vip_index);
	if (endpoint_at(p, a)) // an endpoint has it
		return 0;
	p->hk.domain = p->domain;
	p->hk.ip = *a;
	return bpf_map_lookup_elem(&vips, &p->hk);
}

// endings_of counts the ended translations of a client: what the fast path has of them on any
// processor is stale.
static __always_inline __u32 *endings_of(struct pkt *p)
{
	__u32 place = p->client_index;
	return bpf_map_lookup_elem(&endings, &place);
}

// set_nat_generation sets p->nat_generation, of the virtual address and the client.
static __always_inline void set_nat_generation(struct pkt *p, const struct addr *client)
{
	p->client_index = generation_index(p->domain, client);
	__u32 *ended = endings_of(p);
	p->nat_generation = generation_at(p->vip_index) + (ended ? *(volatile __u32 *)ended : 0);
}

// backend_of finds the backend of the translation p->tr, while the service has it.
static __always_inline struct backend *backend_of(struct pkt *p, __u32 service)
{
	p->bk.service = service;
	p->bk.index = p->tr.index & ~EXTERNAL_BACKEND;
	struct backend *b = bpf_map_lookup_elem(&backends, &p->bk);
	return b && b->id == p->tr.id ? b : 0;
}

// is_translation_valid tells whether the translation p->tr may continue with the service as it
// is now.
static __noinline int is_translation_valid(struct pkt *p)
{
	if (p->tr.client_key.pad == CLIENT_SIDE_EXTERNAL && !is_still_exposed(p))
		return 0;
	p->hk.domain = p->domain;
	p->hk.ip = p->tr.client_key.hi;
	__u32 *number = bpf_map_lookup_elem(&vips, &p->hk);
	if (!number)
		return 0;
	struct frontend *f = frontend_of(p, *number & ~VIP_SHARED, p->tr.client_key.hi_port, p->tr.client_key.proto);
	if (!f || (p->tr.client_key.pad == CLIENT_SIDE_EXTERNAL && !f->exposed))
		return 0;
	__u32 n = f->service, port = f->port, v6 = p->ip.v6 & 1;
	struct service *s = bpf_map_lookup_elem(&services, &n);
	if (!s || s->seed != p->tr.seed)
		return 0;
	if (p->tr.client_key.proto != P_UDP)
		return 1;
	struct backend *b = backend_of(p, n);
	if (!b)
		return 0;
	__u16 own = v6 ? b->port6 : b->port;
	return (v6 ? b->state6 : b->state) != BACKEND_UNHEALTHY && (own ? own : port) == p->tr.backend_port;
}

// is_backend_active tells whether the backend of p->tr takes new connections.
static __always_inline int is_backend_active(struct pkt *p)
{
	struct frontend *f = frontend_of(p, p->vip, p->tr.client_key.hi_port, p->tr.client_key.proto);
	struct backend *b = f ? backend_of(p, f->service) : 0;
	return b && (p->ip.v6 & 1 ? b->state6 : b->state) == BACKEND_ACTIVE;
}

// drop_conn deletes the connection of p->ck, if it is translated.
static __noinline int drop_conn(struct pkt *p)
{
	struct ct *c = bpf_map_lookup_elem(&halfopen, &p->ck);
	if (c && c->state & CT_SERVICE) {
		__u32 owner = c->owner, slot = c->slot;
		if (!bpf_map_delete_elem(&halfopen, &p->ck))
			count_owned(owner, -1, 0);
		release_slot(p, slot, owner);
	}
	c = bpf_map_lookup_elem(&conns, &p->ck);
	if (c && c->state & CT_SERVICE) {
		__u32 owner = c->owner;
		if (!bpf_map_delete_elem(&conns, &p->ck))
			count_owned(owner, 0, -1);
	}
	return 0;
}

// end_translation deletes the translation p->old with the connection of p->ck. replaced = a
// new one already has its client key.
static __noinline int end_translation(struct pkt *p, __u32 replaced)
{
	__u32 *ended = endings_of(p);
	bpf_map_delete_elem(&translations, &p->ck);
	if (!replaced) {
		p->tk = p->old.client_key;
		bpf_map_delete_elem(&translations, &p->tk);
	}
	drop_conn(p);
	if (ended)
		__sync_fetch_and_add(ended, 1);
	return 0;
}

// set_post_nat sets p->post_nat for a client's packet of the translation p->tr.
static __always_inline void set_post_nat(struct pkt *p)
{
	struct flow *b = &p->post_nat;
	*b = p->pre_nat;
	b->dst = p->tr.backend;
	b->sport = p->tr.nat_port;
	b->dport = p->tr.backend_port;
	b->proto = p->tr.client_key.proto;
	set_nat_source(p, &p->tr, b);
}

// is_translation_alive tells whether the translation p->tr continues.
static __noinline int is_translation_alive(struct pkt *p, __u64 now)
{
	set_post_nat(p);
	make_key(p, &p->post_nat);
	struct ct *c = find_conn(p, now);
	return c && c->state & CT_SERVICE && (c->version == p->version || is_translation_valid(p));
}

#define OTHER_PORTS 64 // source ports that are tried when the client's own is taken
#define FIRST_PORT 1024

struct port_search {
	struct pkt *p;
	__u64 now;
	__u32 found;
};

// try_port tells whether the tuple p->post_nat is free, or belongs to the same client's
// previous connection; if not, it sets the next port.
static long try_port(__u32 i, struct port_search *l)
{
	struct pkt *p = l->p;
	make_key(p, &p->post_nat);
	struct ct *c = find_conn(p, l->now);
	struct translation *t = c && c->state & CT_SERVICE ? bpf_map_lookup_elem(&translations, &p->ck) : 0;
	if (!c || (c->state & CT_SERVICE && (!t || same_key(&t->client_key, &p->tk)))) {
		l->found = 1;
		return 1;
	}
	__u16 next = p->post_nat.sport + 1;
	p->post_nat.sport = next < FIRST_PORT ? FIRST_PORT : next;
	return 0;
}

// affinity_backend finds the index of the backend that the client of p->pre_nat stays with;
// NO_INDEX = none, AFFINITY_FULL = and the new one will not be stored.
static __noinline int affinity_backend(struct pkt *p, __u64 affinity, __u64 now)
{
	p->ak.seed = p->tr.seed;
	p->ak.client = p->pre_nat.src;
	struct affine *a = bpf_map_lookup_elem(&affines, &p->ak);
	if (!a) {
		__u32 *n = bpf_map_lookup_elem(&affine_counts, &p->ak.seed);
		return n && *n >= MAX_AFFINE ? AFFINITY_FULL : NO_INDEX;
	}
	if (now > a->last && now - a->last >= affinity)
		return NO_INDEX;
	p->bk.service = p->service;
	p->bk.index = a->index;
	struct backend *b = bpf_map_lookup_elem(&backends, &p->bk);
	return b && b->id == a->id && b->in_pools >> p->pool & 1 ? (int)p->bk.index : NO_INDEX;
}

// choose_backend begins a translation of the packet, with client key p->tk; SERVICE_OK = done,
// NO_BACKEND = there is none.
static __noinline int choose_backend(struct pkt *p, __u64 now)
{
	__u32 v6 = p->ip.v6 & 1;
	__u8 flags = p->ip.tcp_flags;
	if (p->pre_nat.proto == P_TCP && (flags & TCP_RST || (flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK)))
		return dropped(DROP_INVALID);
	struct frontend *f = frontend_of(p, p->vip, p->pre_nat.dport, p->pre_nat.proto);
	if (!f || (p->client_kind && !f->exposed))
		return NO_BACKEND;
	if (f->sources) {
		p->nk.bits = DOMAIN_BITS + 128;
		p->nk.domain = f->sources | (v6 ? SOURCES6 : 0);
		p->nk.ip = p->pre_nat.src;
		if (!bpf_map_lookup_elem(&sources, &p->nk))
			return dropped(DROP_NO_PROVIDER);
	}
	__u8 policy = p->client_kind == CLIENT_HOST ? TRAFFIC_LOCAL : p->client_kind ? f->outside : f->inside;
	__u32 number = f->service, choice = pool_of(policy) + v6;
	p->service = number;
	p->pool = choice;
	p->tr.backend_port = f->port;
	struct service *s = bpf_map_lookup_elem(&services, &number);
	if (!s)
		return NO_BACKEND;
	p->tr.client_key = p->tk;
	p->tr.seed = s->seed;
	int index = NO_INDEX;
	if (s->affinity)
		index = affinity_backend(p, s->affinity, now);
	if (index < 0)
		index = backend_of_slot(number, slot_of(s, &p->pre_nat, index == AFFINITY_FULL), choice);
	if (index == NO_INDEX)
		return policy == TRAFFIC_LOCAL_DROP && (s->candidates[POOL_ALL + v6] | s->slot_table[POOL_ALL + v6]) ? dropped(DROP_NO_PROVIDER) : NO_BACKEND;
	p->bk.service = number;
	p->bk.index = p->tr.index = index;
	struct backend *b = bpf_map_lookup_elem(&backends, &p->bk);
	if (index < 0 || !b || !(b->in_pools >> choice & 1)) // it has just left
		return dropped(DROP_INVALID);
	p->tr.id = *(volatile __u64 *)&b->id;
	p->tr.backend = v6 ? b->ip[1] : b->ip[0];
	if (b->external)
		p->tr.index |= EXTERNAL_BACKEND;
	__u16 own = v6 ? b->port6 : b->port;
	if (own)
		p->tr.backend_port = own;
	if (*(volatile __u64 *)&b->id != p->tr.id) // overwritten meanwhile
		return dropped(DROP_INVALID);
	p->tr.nat_port = p->pre_nat.sport;
	set_post_nat(p);
	struct port_search l = { .p = p, .now = now };
	bpf_loop(OTHER_PORTS, try_port, &l, 0);
	if (!l.found)
		return dropped(DROP_INVALID);
	p->tr.nat_port = p->post_nat.sport;
	p->tr.conn_domain = p->ck.domain;
	p->new_translation = 1;
	return SERVICE_OK;
}

// find_translation finds the translation of a client's packet; SERVICE_OK = it is in p->tr,
// 0 = there is none, else the program's result.
static __noinline int find_translation(struct __sk_buff *skb, struct pkt *p, __u64 now)
{
	struct flow *f = &p->ip.f;
	struct translation *t;
	if (p->ip.later) {
		t = translation_of_fragment(p, now);
	} else if (p->error) {
		t = translation_of_error(skb, p);
	} else {
		if (!has_ports(f->proto))
			return dropped(DROP_NO_PROVIDER);
		set_client_key(p, &f->src, &f->dst, f->sport, f->dport, f->proto);
		t = bpf_map_lookup_elem(&translations, &p->tk);
	}
	if (t) {
		p->tr = *t;
		int on = is_translation_alive(p, now);
		if (on && !(is_syn(p) && !is_backend_active(p)))
			return SERVICE_OK;
	}
	return p->ip.later || p->error ? dropped(DROP_INVALID) : 0;
}

// forward_to_external_backend sets the path of a packet to a backend that is no endpoint: as if
// the client had sent it there itself.
static __noinline int forward_to_external_backend(struct pkt *p)
{
	if (p->from == FROM_HOST)
		return forward_to_relay(p);
	__u32 zero = 0, ifindex = p->ifindex;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct port *o = bpf_map_lookup_elem(&ports, &ifindex);
	if (!g || !o || endpoint_at(p, &p->ip.f.dst)) // an endpoint is another backend
		return dropped(DROP_UNKNOWN_DEST);
	p->path = p->domain >= JOINED ? route_path(p, g, o) : egress_path(p, g, o);
	return p->path == PATH_NONE || p->path == PATH_UNREACHABLE ? dropped(DROP_UNKNOWN_DEST) : SERVICE_OK;
}

// translate_request translates a packet to a virtual address; SERVICE_OK = it continues,
// NO_BACKEND = there is none.
static __noinline int translate_request(struct __sk_buff *skb, struct pkt *p, __u64 now)
{
	struct flow *f = &p->ip.f;
	p->path = PATH_NONE;
	if (!p->src_in_subnets)
		return dropped(DROP_UNKNOWN_SOURCE); // a remote backend could not answer it
	p->pre_nat = *f;
	p->nat = NAT_REQUEST;
	set_nat_generation(p, &p->pre_nat.src);
	p->error = is_error(p);
	int ret = find_translation(skb, p, now);
	if (!ret)
		ret = choose_backend(p, now);
	if (ret != SERVICE_OK)
		return ret;
	f->src = p->post_nat.src;
	f->dst = p->post_nat.dst;
	if (p->error) {
		p->quoted_pre_nat = p->inner.f;
		p->inner.f.src = p->post_nat.dst;
		p->inner.f.dst = p->post_nat.src;
		p->inner.f.sport = p->post_nat.dport;
		p->inner.f.dport = p->post_nat.sport;
		p->quoted_post_nat = p->inner.f;
	} else if (!p->ip.later) {
		f->sport = p->post_nat.sport;
		f->dport = p->post_nat.dport;
	}
	if (p->tr.index & EXTERNAL_BACKEND)
		return forward_to_external_backend(p);
	if (p->hairpin)
		return SERVICE_OK;
	struct endpoint *h = endpoint_at(p, &f->dst);
	if (!h)
		return dropped(DROP_UNKNOWN_DEST);
	if (p->from == FROM_HOST) {
		int ret = forward_to_backend(p, h);
		return ret == ROUTED ? SERVICE_OK : ret;
	}
	if (h->net == p->net) {
		__builtin_memcpy(p->eth.dst, h->mac, 6);
		return SERVICE_OK;
	}
	if (h->outside_subnets)
		return dropped(DROP_UNKNOWN_DEST);
	p->to_net = h->net;
	__builtin_memcpy(p->to_mac, h->mac, 6);
	p->path = PATH_ROUTED;
	return SERVICE_OK;
}

#define CONNECTION_GONE -2

// translate_reply handles other packets of a translated connection c: SERVICE_OK = it
// continues, CONNECTION_GONE = the connection has ended, else the program's result.
static __noinline int translate_reply(struct pkt *p, struct ct *c)
{
	struct translation *t = bpf_map_lookup_elem(&translations, &p->ck);
	// A client that also uses a service here, and that another host leads to the backend itself.
	if (p->from == FROM_TUNNEL && p->path == PATH_FROM_HOST && (!t || t->client_key.pad == CLIENT_SIDE_EXTERNAL))
		return SERVICE_OK;
	if (!c || !t)
		return dropped(DROP_INVALID);
	p->tr = *t;
	if (p->relayed)
		p->domain = p->tr.client_key.domain;
	p->hairpin = is_service_addr(&p->orig.src);
	p->vip_index = generation_index(p->domain, &p->tr.client_key.hi);
	set_nat_generation(p, &p->tr.client_key.lo);
	p->version += p->nat_generation;
	// A closed connection gives its tuple up to a new request.
	if ((is_syn(p) && !p->error && !p->ip.later && is_closed(c->state)) || (c->version != p->version && !is_translation_valid(p))) {
		p->old = p->tr;
		end_translation(p, 0);
		p->nat_generation = 0;
		p->hairpin = 0;
		return CONNECTION_GONE;
	}
	if (p->error && !p->reply)
		return SERVICE_OK; // from the client to the backend's own address
	if (!p->reply || (is_syn(p) && !p->error && !p->ip.later))
		return dropped(DROP_INVALID); // the tuple belongs to the translation
	if (p->tr.client_key.pad == CLIENT_SIDE_EXTERNAL) {
		if (p->multicast)
			return dropped(DROP_UNKNOWN_DEST);
		p->path = PATH_EXTERNAL_CLIENT;
	}
	struct flow *b = &p->post_nat;
	p->nat = NAT_REPLY;
	p->pre_nat = p->ip.f;
	*b = p->pre_nat;
	b->dst = p->tr.client_key.lo;
	if (same_addr(&p->pre_nat.src, &p->tr.backend))
		b->src = p->tr.client_key.hi;
	b->sport = p->tr.client_key.hi_port;
	b->dport = p->tr.client_key.lo_port;
	if (p->error) {
		p->quoted_pre_nat = p->quoted_post_nat = p->inner.f;
		p->quoted_post_nat.src = p->tr.client_key.lo;
		p->quoted_post_nat.dst = p->tr.client_key.hi;
		p->quoted_post_nat.sport = p->tr.client_key.lo_port;
		p->quoted_post_nat.dport = p->tr.client_key.hi_port;
	}
	return SERVICE_OK;
}

// note_affinity stores which backend a client's new connection has.
static __noinline int note_affinity(struct pkt *p, __u64 now)
{
	__u32 number = p->service, one = 1;
	struct service *s = bpf_map_lookup_elem(&services, &number);
	if (!s || !s->affinity)
		return 0;
	p->ak.seed = p->tr.seed;
	p->ak.client = p->tr.client_key.lo;
	p->affine.id = p->tr.id;
	p->affine.index = p->tr.index & ~EXTERNAL_BACKEND;
	p->affine.last = now;
	p->affine.pad = 0;
	if (!bpf_map_update_elem(&affines, &p->ak, &p->affine, BPF_EXIST))
		return 0;
	__u32 *n = bpf_map_lookup_elem(&affine_counts, &p->ak.seed);
	if (n && *n >= MAX_AFFINE)
		return 0;
	if (bpf_map_update_elem(&affines, &p->ak, &p->affine, BPF_NOEXIST))
		return 0;
	count_created(CREATED_AFFINE);
	if (n)
		__sync_fetch_and_add(n, 1);
	else
		bpf_map_update_elem(&affine_counts, &p->ak.seed, &one, BPF_NOEXIST);
	return 0;
}

// store_translation stores the new translation of an allowed packet, after its connection;
// entered = the connection is stored. It comes last, since it changes p->ck.
__noinline int store_translation(__u64 now, __u32 entered)
{
	struct pkt *p = current_packet();
	if (!p)
		return 0;
	if (p->ip.fragment && p->ip.more && !p->ip.later) { // commit has stored it with the addresses after NAT
		p->fk.src = p->pre_nat.src;
		p->fk.dst = p->pre_nat.dst;
		store_frag(p);
	}
	if (!p->new_translation)
		return 0;
	note_affinity(p, now);
	if (!entered || bpf_map_update_elem(&translations, &p->ck, &p->tr, BPF_ANY)) {
		p->new_translation = 0;
		return 0;
	}
	p->tk = p->tr.client_key;
	struct translation *previous = bpf_map_lookup_elem(&translations, &p->tk);
	int had = previous != 0;
	if (previous)
		p->old = *previous;
	if (bpf_map_update_elem(&translations, &p->tk, &p->tr, BPF_ANY))
		return 0;
	if (!had || (same_addr(&p->old.backend, &p->tr.backend) && p->old.nat_port == p->tr.nat_port && p->old.backend_port == p->tr.backend_port))
		return 0;
	__u16 port = p->old.nat_port;
	struct flow *b = &p->quoted_post_nat;
	b->src = p->old.client_key.lo;
	b->dst = p->old.backend;
	b->sport = port;
	b->dport = p->old.backend_port;
	b->proto = p->old.client_key.proto;
	set_nat_source(p, &p->old, b);
	make_key(p, b);
	return end_translation(p, 1);
}

// fix_link_local_source gives a container's reply to itself its own address as source; 0 = done.
// A socket without a bound address replies from the link-local one (RFC 6724 rule 2).
static __noinline int fix_link_local_source(struct __sk_buff *skb, struct pkt *p, struct port *o)
{
	if (!p->ip.v6 || !is_link_local(&p->ip.f.src) || !o || zero_addr(&o->ip6))
		return 0;
	p->post_nat.src = o->ip6;
	if (rewrite_packet_addr(skb, p, IP6_SRC, &p->ip.f.src, &p->post_nat.src))
		return -1;
	p->ip.f.src = p->post_nat.src;
	return 0;
}
