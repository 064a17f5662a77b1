// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Services, and the choice of a backend: docs/design/services.md, ADR 0019. The driver writes
// these maps; internal/datapath/desired/choice.go must choose alike.
#pragma once

#include "maps.h"

#define BACKEND_ACTIVE 0
#define BACKEND_UNHEALTHY 2

#define MAX_COMPARED 32 // so many backends are compared; with more there is a table

// Traffic policies, as internal/datapath/desired has them.
#define TRAFFIC_LOCAL 1
#define TRAFFIC_LOCAL_DROP 2
#define TRAFFIC_NEAREST 3

// Pools of backends, by traffic policy, and + 1 for IPv6.
#define POOL_ALL 0
#define POOL_LOCAL 2
#define POOL_NEAREST 4
#define POOLS 6

// Kinds of clients, which decide about the traffic policy.
#define CLIENT_INTERNAL 0
#define CLIENT_EXTERNAL 1
#define CLIENT_HOST 2 // from its own NAT address, which no other host can answer

// service is the header of a service. It is replaced by one write.
struct service {
	__u64 generation; // changes with each write of any service
	__u64 seed; // its number, the same on every host and at every start
	__u64 affinity; // ns; 0 = none
	__u64 pools; // pools that are stored, a bit each
	__u32 candidates[POOLS]; // which of ids are in a pool, a bit each
	__u32 slot_table[POOLS]; // tables of slots; 0 = ids are compared
	__u64 ids[MAX_COMPARED]; // numbers of backends
	__u16 at[MAX_COMPARED]; // their indexes in backends
};

// frontend_key is a port of a virtual address.
struct frontend_key {
	__u32 vip;
	__u16 port;
	__u8 proto, pad;
};

// frontend is where such a port leads.
struct frontend {
	__u32 service;
	__u16 port; // of backends without a port of their own
	__u8 inside, outside; // traffic policies for clients inside and outside
	__u32 sources; // number of the client prefixes that are allowed; 0 = all
	__u8 exposed; // clients outside may use it
	__u8 pad[3];
};

// A virtual address whose number has VIP_SHARED is a node's: other ports there are not for
// services. With VIP_OWN the number is of this node's address alone; a port without a frontend
// under it may have one under the number of all nodes, which the family's unspecified address
// in domain | ALL_NODES has.
#define VIP_SHARED 0x80000000u
#define VIP_OWN 0x40000000u
#define ALL_NODES 0x80000000u
#define SOURCES6 0x80000000u // with the number of prefixes: those of IPv6

struct backend_key {
	__u32 service, index;
};

struct backend {
	__u64 id;
	struct addr ip[2]; // IPv4 and IPv6
	__u8 state; // by IPv4
	__u8 in_pools; // pools that it is in, a bit each
	__u16 port; // for IPv4; 0 = the frontend's
	__u8 external; // it is no endpoint
	__u8 state6;
	__u16 port6;
};

// exposed_key is a port of an address for clients outside, or (port and protocol 0) all ports
// of it without an entry. The unspecified address stands for the nodes' addresses.
struct exposed_key {
	struct addr ip;
	__u16 port;
	__u8 proto, pad;
};

#define EXPOSED_PORTS 1 // services of several domains share the address: its ports have entries
#define EXPOSED_NODE 2 // it is a node's address, and ports of all nodes' addresses have entries

// exposed is the network of an exposed service, and its subnets.
struct exposed {
	__u32 net, domain;
	__be32 subnet, mask; // as in struct port
	struct addr subnet6, mask6;
	__u32 ports; // of an address: EXPOSED_PORTS, EXPOSED_NODE
};

#define OWNERS_IN_ROW 64

// owners are the backends of consecutive slots: indexes in backends.
struct owners {
	__u16 of[OWNERS_IN_ROW];
};

struct affine_key {
	__u64 seed; // of the service
	struct addr client;
};

struct affine {
	__u64 id;
	__u64 last; // new connection, coarse monotonic clock, ns
	__u32 index, pad;
};

#define MAX_AFFINE 16384 // clients of a service that are remembered

MAP(sources, BPF_MAP_TYPE_LPM_TRIE, struct subnet_key, __u32, 65536, BPF_F_NO_PREALLOC); // by the frontend's number in place of a domain
MAP(vips, BPF_MAP_TYPE_HASH, struct domain_addr, __u32, 65536, BPF_F_NO_PREALLOC); // number of the service, or of a shared address, by domain and address; 0 = a link-local service address
MAP(exposed, BPF_MAP_TYPE_HASH, struct exposed_key, struct exposed, 65536, BPF_F_NO_PREALLOC);
MAP(services, BPF_MAP_TYPE_HASH, __u32, struct service, 24576, BPF_F_NO_PREALLOC);
MAP(service_ports, BPF_MAP_TYPE_HASH, struct frontend_key, struct frontend, 131072, BPF_F_NO_PREALLOC);
MAP(backends, BPF_MAP_TYPE_HASH, struct backend_key, struct backend, 262144, BPF_F_NO_PREALLOC);
MAP(affines, BPF_MAP_TYPE_LRU_HASH, struct affine_key, struct affine, 65536, 0);
MAP(affine_counts, BPF_MAP_TYPE_HASH, __u64, __u32, 24576, BPF_F_NO_PREALLOC); // by seed; each sweep corrects it

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(max_entries, 65536 / OWNERS_IN_ROW);
			__uint(key_size, sizeof(__u32));
			__uint(value_size, sizeof(struct owners));
		});
} choices SEC(".maps");

static __always_inline int is_service_addr(const struct addr *a)
{
	const __u32 *x = (const void *)a;
	if (x[2] == bpf_htonl(0xffff) && !(x[0] | x[1]))
		return x[3] == bpf_htonl(0xa9fe0102); // 169.254.1.2
	return x[0] == bpf_htonl(0xfe800000) && !(x[1] | x[2]) && x[3] == bpf_htonl(0x00530001); // fe80::53:1
}

// any_node makes an address the one that stands for all nodes' of its family.
static __always_inline void any_node(struct addr *a, __u32 v6)
{
	__u32 *x = (void *)a;
	x[0] = x[1] = x[3] = 0;
	x[2] = v6 ? 0 : bpf_htonl(0xffff);
}

static __always_inline void service_addr(struct addr *a, __u32 v6)
{
	__u32 *x = (void *)a;
	x[0] = v6 ? bpf_htonl(0xfe800000) : 0;
	x[1] = 0;
	x[2] = v6 ? 0 : bpf_htonl(0xffff);
	x[3] = v6 ? bpf_htonl(0x00530001) : bpf_htonl(0xa9fe0102);
}

// scramble is Mix of choice.go (SplitMix64's finaliser).
static __always_inline __u64 scramble(__u64 x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

// slot_of is the slot of a connection, or of its client alone.
static __always_inline __u32 slot_of(const struct service *s, const struct flow *f, int client)
{
	const __u32 *a = (const void *)&f->src;
	__u64 h = scramble(s->seed ^ ((__u64)bpf_ntohl(a[0]) << 32 | bpf_ntohl(a[1])));
	h = scramble(h ^ ((__u64)bpf_ntohl(a[2]) << 32 | bpf_ntohl(a[3])));
	if (!client)
		h = scramble(h ^ ((__u64)f->proto << 32 | (__u32)f->sport << 16 | f->dport));
	return h & 0xffff;
}

static __always_inline __u32 pool_of(__u8 policy)
{
	return policy == TRAFFIC_NEAREST ? POOL_NEAREST : policy ? POOL_LOCAL : POOL_ALL;
}

#define NO_INDEX -1
#define RACED -2 // the service was rewritten meanwhile
#define AFFINITY_FULL -3 // no room to store the client's affinity

// backend_of_slot returns the index of the backend of a slot. A global function, which the
// verifier reads once.
__noinline int backend_of_slot(__u32 number, __u32 slot, __u32 choice)
{
	struct service *s = bpf_map_lookup_elem(&services, &number);
	if (!s)
		return RACED;
	__u64 generation = *(volatile __u64 *)&s->generation;
	if (choice >= POOLS)
		return RACED;
	__u32 table = s->slot_table[choice];
	if (table) {
		void *rows = bpf_map_lookup_elem(&choices, &table);
		__u32 row = slot / OWNERS_IN_ROW;
		if (!rows)
			return RACED;
		struct owners *o = bpf_map_lookup_elem(rows, &row);
		return o ? o->of[slot & (OWNERS_IN_ROW - 1)] : RACED;
	}
	__u32 among = s->candidates[choice];
	__u64 key = scramble((__u64)slot + 1), best = 0, best_id = 0;
	int chosen = NO_INDEX;
	for (__u32 i = 0; i < MAX_COMPARED && among >> i; i++) {
		if (!(among >> i & 1))
			continue;
		__u64 id = s->ids[i], now = scramble(key ^ id);
		if (chosen < 0 || now > best || (now == best && id < best_id)) {
			best = now;
			best_id = id;
			chosen = s->at[i];
		}
	}
	return *(volatile __u64 *)&s->generation == generation ? chosen : RACED;
}
