// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Counting of connections to services, where their clients are: by service, port,
// family and backend (docs/design/services.md, Counters). Each such has a place, which
// a packet of the long way finds, and the short one remembers.
#pragma once

#include "packet.h"

#define COUNTED 16384
#define COUNTED_PROBES 8

// counted is who has a place. Its owner is written after its id; the driver, which
// knows how the one follows from the other (servedcounts.go), tells when it is whole.
struct counted {
	__u64 id; // 0 = free
	__u64 seed, backend; // numbers of the service and the backend
	__u64 what; // COUNTED_WHAT
};
#define COUNTED_WHAT(port, proto, v6) ((__u64)(port) << 16 | (__u64)(proto) << 8 | !!(v6))

struct served_counter {
	struct counter out, in; // of the client
	__u64 begun;
};

MAP(counted, BPF_MAP_TYPE_ARRAY, __u32, struct counted, COUNTED, 0); // 0 is nobody's
MAP(served_counters, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct served_counter, COUNTED, 0);

// counted_at finds a place or takes one; 0 = there is none near, and it is not
// counted. A global function, which the verifier reads once.
__noinline int counted_at(__u64 seed, __u64 backend, __u64 what)
{
	__u64 id = scramble(seed ^ scramble(backend ^ scramble(what)));
	if (!id)
		id = 1;
	for (__u32 i = 0; i < COUNTED_PROBES; i++) {
		__u32 at = (__u32)(id + i) & (COUNTED - 1);
		struct counted *c = bpf_map_lookup_elem(&counted, &at);
		if (!at || !c)
			continue;
		__u64 has = *(volatile __u64 *)&c->id;
		if (!has) {
			has = __sync_val_compare_and_swap(&c->id, 0, id);
			if (!has) {
				c->seed = seed;
				c->backend = backend;
				c->what = what;
				return at;
			}
		}
		if (has == id)
			return at;
	}
	return 0;
}

// count_way counts a packet; way is its place, twice, and one more if it comes back.
static __always_inline void count_way(__u32 way, __u64 bytes)
{
	__u32 at = way >> 1;
	struct served_counter *c = at ? bpf_map_lookup_elem(&served_counters, &at) : 0;
	if (!c)
		return;
	struct counter *n = way & 1 ? &c->in : &c->out;
	n->packets++;
	n->bytes += bytes;
}

// count_served counts the translated packet under way, and the connection that it
// begins. Errors are not counted: they are about a connection and no part of it.
static __noinline int count_served(struct pkt *p)
{
	const struct ct_key *f = &p->tr.front;
	__u32 v6 = p->ip.v6;
	p->counted = 0;
	if (p->error)
		return 0;
	__u32 at = counted_at(p->tr.seed, p->tr.id, COUNTED_WHAT(f->hi_port, f->proto, v6));
	p->counted = at << 1 | (p->nat == NAT_BACK);
	count_way(p->counted, p->len);
	struct served_counter *c = at && p->begun ? bpf_map_lookup_elem(&served_counters, &at) : 0;
	if (c)
		c->begun++;
	return 0;
}
