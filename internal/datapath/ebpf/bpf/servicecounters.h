// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Counters of connections to services, on the client's host: by service, port, family and
// backend (docs/design/services.md, Counters). The slow path finds a counter's index, and the
// fast path stores it.
#pragma once

#include "packet.h"

#define SERVICE_COUNTERS 16384
#define SERVICE_COUNTER_PROBES 8

// service_counter_owner is what an index counts. The rest is written after the id; the driver
// recomputes the id (servedcounts.go) to see whether it is complete.
struct service_counter_owner {
	__u64 id; // 0 = free
	__u64 seed, backend; // numbers of the service and the backend
	__u64 what; // SERVICE_COUNTER_KEY
};
#define SERVICE_COUNTER_KEY(port, proto, v6) ((__u64)(port) << 16 | (__u64)(proto) << 8 | !!(v6))

struct service_counter {
	struct counter out, in; // as the client sees it
	__u64 begun;
};

MAP(counted, BPF_MAP_TYPE_ARRAY, __u32, struct service_counter_owner, SERVICE_COUNTERS, 0); // index 0 is unused
MAP(served_counters, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct service_counter, SERVICE_COUNTERS, 0);

// service_counter_index finds an index or takes one; 0 = none near is free, and nothing is
// counted. A global function, which the verifier reads once.
__noinline int service_counter_index(__u64 seed, __u64 backend, __u64 what)
{
	__u64 id = scramble(seed ^ scramble(backend ^ scramble(what)));
	if (!id)
		id = 1;
	for (__u32 i = 0; i < SERVICE_COUNTER_PROBES; i++) {
		__u32 at = (__u32)(id + i) & (SERVICE_COUNTERS - 1);
		struct service_counter_owner *c = bpf_map_lookup_elem(&counted, &at);
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

// count_service_packet counts a packet; place is its index, twice, + 1 for a reply.
static __always_inline void count_service_packet(__u32 place, __u64 bytes)
{
	__u32 at = place >> 1;
	struct service_counter *c = at ? bpf_map_lookup_elem(&served_counters, &at) : 0;
	if (!c)
		return;
	struct counter *n = place & 1 ? &c->in : &c->out;
	n->packets++;
	n->bytes += bytes;
}

// count_service counts the translated packet, and the connection if it begins one. Errors are
// not counted: they are about a connection and no part of it.
static __noinline int count_service(struct pkt *p)
{
	const struct ct_key *f = &p->tr.client_key;
	__u32 v6 = p->ip.v6;
	p->counted = 0;
	if (p->error)
		return 0;
	__u32 at = service_counter_index(p->tr.seed, p->tr.id, SERVICE_COUNTER_KEY(f->hi_port, f->proto, v6));
	p->counted = at << 1 | (p->nat == NAT_REPLY);
	count_service_packet(p->counted, p->len);
	struct service_counter *c = at && p->new_translation ? bpf_map_lookup_elem(&served_counters, &at) : 0;
	if (c)
		c->begun++;
	return 0;
}
