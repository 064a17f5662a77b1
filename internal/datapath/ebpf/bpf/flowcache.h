// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The caches of the fast path: forward entries, verdict entries of connections, and entries
// of translated connections, each in an array of small sets. Each processor has its own sets,
// so no other one writes there, and a set is found without a helper call. A live entry is
// overwritten in one case of four; otherwise flows in turn would evict each other forever. The
// arrays are not pinned in maps/: programs of another version begin with empty ones. They
// begin at a page (BPF_F_MMAPABLE), so that a verdict entry is one cache line.
#pragma once

#include "conntrack.h"

// Set when the programs are loaded: lifetime of an entry in ticks, and numbers of sets of each
// processor as powers of two. The maps have as many.
const volatile __u32 fast_ticks = 1000, forward_bits = 10, verdict_bits = 11, nat_bits = 10;

#define IDLE_TICKS (10 * (__u64)fast_ticks) // of a rule's tally without hits: its packets take the slow path more often

#define FORWARD_WAYS 2
#define VERDICT_WAYS 4
#define NAT_WAYS 2

struct forward_set {
	struct forward_entry way[FORWARD_WAYS];
};

struct verdict_set {
	struct verdict_entry way[VERDICT_WAYS];
};

struct nat_set {
	struct nat_entry way[NAT_WAYS];
};

#define FLOW_CACHE(NAME, SET)                         \
	struct {                                  \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__type(key, __u32);               \
		__type(value, struct SET);        \
		__uint(max_entries, 1);           \
		__uint(map_flags, BPF_F_MMAPABLE); \
	} NAME SEC(".maps")

FLOW_CACHE(forward_cache, forward_set);
FLOW_CACHE(verdict_cache, verdict_set);
FLOW_CACHE(nat_cache, nat_set);

// spread hashes two numbers.
static __always_inline __u64 spread(__u64 a, __u64 b)
{
	const __u64 odd = 0x9e3779b97f4a7c15ULL; // 2^64 by the golden ratio (Knuth 6.4)
	__u64 h = (a ^ a >> 29) * odd + b;
	return (h ^ h >> 32) * odd;
}

static __always_inline int is_live(__u64 until, __u64 now)
{
	return (__s64)(until - now) >= 0;
}

// pick_victim returns which live entry of a set is overwritten; negative = none.
static __always_inline int pick_victim(__u32 ways)
{
	__u32 any = bpf_get_prandom_u32();
	return any & 3 ? -1 : (int)(any >> 2 & (ways - 1));
}

static __always_inline struct forward_set *forward_set(__u32 cpu, __u64 addrs, __u64 from)
{
	__u32 i = cpu << forward_bits | spread(addrs, from) >> (64 - forward_bits);
	return bpf_map_lookup_elem(&forward_cache, &i);
}

static __always_inline int is_forward_entry(const struct forward_entry *l, __u64 addrs, __u64 from)
{
	return l->addrs == addrs && l->from == from;
}

// find_forward finds a forward entry; 0 = there is none.
static __always_inline struct forward_entry *find_forward(__u32 cpu, __u64 addrs, __u64 from)
{
	struct forward_set *s = forward_set(cpu, addrs, from);
	if (!s)
		return 0;
	if (is_forward_entry(&s->way[0], addrs, from))
		return &s->way[0];
	return is_forward_entry(&s->way[1], addrs, from) ? &s->way[1] : 0;
}

// place_forward finds a forward entry, or the place for it; 0 = there is none.
static __always_inline struct forward_entry *place_forward(__u32 cpu, __u64 addrs, __u64 from, __u64 now)
{
	struct forward_set *s = forward_set(cpu, addrs, from);
	struct forward_entry *l = find_forward(cpu, addrs, from);
	if (l || !s)
		return l;
	if (!is_live(s->way[0].until, now))
		return &s->way[0];
	if (!is_live(s->way[1].until, now))
		return &s->way[1];
	int any = pick_victim(FORWARD_WAYS);
	return any < 0 ? 0 : &s->way[any & (FORWARD_WAYS - 1)];
}

// is_reversed tells whether a packet goes from the higher end to the lower one.
static __always_inline int is_reversed(__u64 addrs, __u32 ports)
{
	__u32 src = addrs, dst = addrs >> 32;
	return src == dst ? (__u16)ports > ports >> 16 : src > dst;
}

static __always_inline __u64 ordered_addrs(__u64 addrs, __u32 ports)
{
	return is_reversed(addrs, ports) ? addrs << 32 | addrs >> 32 : addrs;
}

static __always_inline __u32 ordered_ports(__u64 addrs, __u32 ports)
{
	return is_reversed(addrs, ports) ? ports << 16 | ports >> 16 : ports;
}

struct verdict_key {
	__u64 addrs, id;
	__u32 proto, first; // index of the entry that is compared first
};

static __always_inline struct verdict_set *verdict_set(struct verdict_key *k, __u32 cpu, __u64 addrs, __u32 ports, __u32 domain, __u32 proto)
{
	k->addrs = ordered_addrs(addrs, ports);
	k->id = (__u64)domain << 32 | ordered_ports(addrs, ports);
	k->proto = proto;
	__u64 h = spread(k->addrs, k->id);
	__u32 i = cpu << verdict_bits | h >> (64 - verdict_bits);
	k->first = h >> (62 - verdict_bits) & (VERDICT_WAYS - 1);
	return bpf_map_lookup_elem(&verdict_cache, &i);
}

static __always_inline struct verdict_entry *verdict_in(struct verdict_set *s, const struct verdict_key *k)
{
#pragma unroll
	for (__u32 i = 0; i < VERDICT_WAYS; i++) {
		struct verdict_entry *c = &s->way[(k->first + i) & (VERDICT_WAYS - 1)];
		if (c->addrs == k->addrs && c->id == k->id && c->proto == k->proto)
			return c;
	}
	return 0;
}

// find_verdict finds a connection's verdict entry; 0 = it has none.
static __always_inline struct verdict_entry *find_verdict(__u32 cpu, __u64 addrs, __u32 ports, __u32 domain, __u32 proto)
{
	struct verdict_key k;
	struct verdict_set *s = verdict_set(&k, cpu, addrs, ports, domain, proto);
	return s ? verdict_in(s, &k) : 0;
}

// place_verdict finds a connection's verdict entry, or the place for it; 0 = there is none.
static __always_inline struct verdict_entry *place_verdict(__u32 cpu, __u64 addrs, __u32 ports, __u32 domain, __u32 proto, __u64 now)
{
	struct verdict_key k;
	struct verdict_set *s = verdict_set(&k, cpu, addrs, ports, domain, proto);
	if (!s)
		return 0;
	struct verdict_entry *c = verdict_in(s, &k);
	if (c)
		return c;
#pragma unroll
	for (__u32 i = 0; i < VERDICT_WAYS; i++) {
		c = &s->way[(k.first + i) & (VERDICT_WAYS - 1)];
		if (!is_live(c->until, now))
			return c;
	}
	int any = pick_victim(VERDICT_WAYS);
	return any < 0 ? 0 : &s->way[any & (VERDICT_WAYS - 1)];
}

static __always_inline struct nat_set *nat_set(__u32 cpu, __u64 addrs, __u64 from, __u32 ports)
{
	__u32 i = cpu << nat_bits | spread(addrs, (__u64)ports << 32 ^ from) >> (64 - nat_bits);
	return bpf_map_lookup_elem(&nat_cache, &i);
}

static __always_inline int is_nat_entry(const struct nat_entry *s, __u64 addrs, __u64 from, __u32 ports, __u32 proto)
{
	return is_forward_entry(&s->forward, addrs, from) && s->ports == ports && s->proto == proto;
}

// find_nat finds the entry of one direction of a translated connection; 0 = there is none.
static __always_inline struct nat_entry *find_nat(__u32 cpu, __u64 addrs, __u64 from, __u32 ports, __u32 proto)
{
	struct nat_set *s = nat_set(cpu, addrs, from, ports);
	if (!s)
		return 0;
	if (is_nat_entry(&s->way[0], addrs, from, ports, proto))
		return &s->way[0];
	return is_nat_entry(&s->way[1], addrs, from, ports, proto) ? &s->way[1] : 0;
}

// place_nat finds that entry, or the place for it; 0 = there is none.
static __always_inline struct nat_entry *place_nat(__u32 cpu, __u64 addrs, __u64 from, __u32 ports, __u32 proto, __u64 now)
{
	struct nat_set *s = nat_set(cpu, addrs, from, ports);
	struct nat_entry *f = find_nat(cpu, addrs, from, ports, proto);
	if (f || !s)
		return f;
	if (!is_live(s->way[0].forward.until, now))
		return &s->way[0];
	if (!is_live(s->way[1].forward.until, now))
		return &s->way[1];
	int any = pick_victim(NAT_WAYS);
	return any < 0 ? 0 : &s->way[any & (NAT_WAYS - 1)];
}
