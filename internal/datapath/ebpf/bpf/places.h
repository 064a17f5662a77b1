// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Where what short ways need stands: lanes, the passes of connections, and translated
// connections, each in an array of sets of a few places. Each processor has its own,
// so that nobody else writes there, and a set is found without the kernel's help. Others
// that live are left alone, three times of four, or connections in turn would take their
// places from each other without end. Not pinned: programs of another version begin with
// empty ones. The arrays begin at a page (BPF_F_MMAPABLE), so that a pass is one line of
// the cache.
#pragma once

#include "conntrack.h"

// Set when the programs are loaded: how long a place counts, in ticks, and of the number
// of sets that each processor has, of which the maps are as big.
const volatile __u32 fast_ticks = 1000, lane_bits = 10, pass_bits = 11, served_bits = 10;

#define IDLE_TICKS (10 * (__u64)fast_ticks) // of a rule that nothing hits: packets take the long way more often

#define LANES 2
#define PASSES 4
#define SERVED_WAYS 2

struct lane_set {
	struct lane way[LANES];
};

struct pass_set {
	struct pass way[PASSES];
};

struct served_set {
	struct served way[SERVED_WAYS];
};

#define PLACES(NAME, SET)                         \
	struct {                                  \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__type(key, __u32);               \
		__type(value, struct SET);        \
		__uint(max_entries, 1);           \
		__uint(map_flags, BPF_F_MMAPABLE); \
	} NAME SEC(".maps")

PLACES(lanes, lane_set);
PLACES(passes, pass_set);
PLACES(served, served_set);

// spread makes a number of which each bit depends on all of two.
static __always_inline __u64 spread(__u64 a, __u64 b)
{
	const __u64 odd = 0x9e3779b97f4a7c15ULL; // 2^64 by the golden ratio (Knuth 6.4)
	__u64 h = (a ^ a >> 29) * odd + b;
	return (h ^ h >> 32) * odd;
}

static __always_inline int lives_on(__u64 until, __u64 now)
{
	return (__s64)(until - now) >= 0;
}

// given_up tells which place of a set somebody new gets from somebody who lives;
// negative = none.
static __always_inline int given_up(__u32 ways)
{
	__u32 any = bpf_get_prandom_u32();
	return any & 3 ? -1 : (int)(any >> 2 & (ways - 1));
}

static __always_inline struct lane_set *lane_set(__u32 cpu, __u64 ends, __u64 from)
{
	__u32 i = cpu << lane_bits | spread(ends, from) >> (64 - lane_bits);
	return bpf_map_lookup_elem(&lanes, &i);
}

static __always_inline int is_lane(const struct lane *l, __u64 ends, __u64 from)
{
	return l->ends == ends && l->from == from;
}

// lane_of finds a lane; 0 = there is none.
static __always_inline struct lane *lane_of(__u32 cpu, __u64 ends, __u64 from)
{
	struct lane_set *s = lane_set(cpu, ends, from);
	if (!s)
		return 0;
	if (is_lane(&s->way[0], ends, from))
		return &s->way[0];
	return is_lane(&s->way[1], ends, from) ? &s->way[1] : 0;
}

// lane_place finds where a lane stands, or may; 0 = nowhere.
static __always_inline struct lane *lane_place(__u32 cpu, __u64 ends, __u64 from, __u64 now)
{
	struct lane_set *s = lane_set(cpu, ends, from);
	struct lane *l = lane_of(cpu, ends, from);
	if (l || !s)
		return l;
	if (!lives_on(s->way[0].until, now))
		return &s->way[0];
	if (!lives_on(s->way[1].until, now))
		return &s->way[1];
	int any = given_up(LANES);
	return any < 0 ? 0 : &s->way[any & (LANES - 1)];
}

// backwards tells whether a packet goes from the higher end to the lower one.
static __always_inline int backwards(__u64 ends, __u32 ports)
{
	__u32 src = ends, dst = ends >> 32;
	return src == dst ? (__u16)ports > ports >> 16 : src > dst;
}

static __always_inline __u64 ordered_ends(__u64 ends, __u32 ports)
{
	return backwards(ends, ports) ? ends << 32 | ends >> 32 : ends;
}

static __always_inline __u32 ordered_ports(__u64 ends, __u32 ports)
{
	return backwards(ends, ports) ? ports << 16 | ports >> 16 : ports;
}

struct pass_look {
	__u64 ends, id;
	__u32 proto, first; // place of the set that is looked at first
};

static __always_inline struct pass_set *pass_set(struct pass_look *k, __u32 cpu, __u64 ends, __u32 ports, __u32 domain, __u32 proto)
{
	k->ends = ordered_ends(ends, ports);
	k->id = (__u64)domain << 32 | ordered_ports(ends, ports);
	k->proto = proto;
	__u64 h = spread(k->ends, k->id);
	__u32 i = cpu << pass_bits | h >> (64 - pass_bits);
	k->first = h >> (62 - pass_bits) & (PASSES - 1);
	return bpf_map_lookup_elem(&passes, &i);
}

static __always_inline struct pass *pass_in(struct pass_set *s, const struct pass_look *k)
{
#pragma unroll
	for (__u32 i = 0; i < PASSES; i++) {
		struct pass *c = &s->way[(k->first + i) & (PASSES - 1)];
		if (c->ends == k->ends && c->id == k->id && c->proto == k->proto)
			return c;
	}
	return 0;
}

// pass_of finds a connection's pass; 0 = it has none.
static __always_inline struct pass *pass_of(__u32 cpu, __u64 ends, __u32 ports, __u32 domain, __u32 proto)
{
	struct pass_look k;
	struct pass_set *s = pass_set(&k, cpu, ends, ports, domain, proto);
	return s ? pass_in(s, &k) : 0;
}

// pass_place finds where a connection's pass stands, or may; 0 = nowhere.
static __always_inline struct pass *pass_place(__u32 cpu, __u64 ends, __u32 ports, __u32 domain, __u32 proto, __u64 now)
{
	struct pass_look k;
	struct pass_set *s = pass_set(&k, cpu, ends, ports, domain, proto);
	if (!s)
		return 0;
	struct pass *c = pass_in(s, &k);
	if (c)
		return c;
#pragma unroll
	for (__u32 i = 0; i < PASSES; i++) {
		c = &s->way[(k.first + i) & (PASSES - 1)];
		if (!lives_on(c->until, now))
			return c;
	}
	int any = given_up(PASSES);
	return any < 0 ? 0 : &s->way[any & (PASSES - 1)];
}

static __always_inline struct served_set *served_set(__u32 cpu, __u64 ends, __u64 from, __u32 ports)
{
	__u32 i = cpu << served_bits | spread(ends, (__u64)ports << 32 ^ from) >> (64 - served_bits);
	return bpf_map_lookup_elem(&served, &i);
}

static __always_inline int is_served(const struct served *s, __u64 ends, __u64 from, __u32 ports, __u32 proto)
{
	return is_lane(&s->lane, ends, from) && s->ports == ports && s->proto == proto;
}

// served_of finds a translated connection's direction; 0 = it is not there.
static __always_inline struct served *served_of(__u32 cpu, __u64 ends, __u64 from, __u32 ports, __u32 proto)
{
	struct served_set *s = served_set(cpu, ends, from, ports);
	if (!s)
		return 0;
	if (is_served(&s->way[0], ends, from, ports, proto))
		return &s->way[0];
	return is_served(&s->way[1], ends, from, ports, proto) ? &s->way[1] : 0;
}

// served_place finds where it stands, or may; 0 = nowhere.
static __always_inline struct served *served_place(__u32 cpu, __u64 ends, __u64 from, __u32 ports, __u32 proto, __u64 now)
{
	struct served_set *s = served_set(cpu, ends, from, ports);
	struct served *f = served_of(cpu, ends, from, ports, proto);
	if (f || !s)
		return f;
	if (!lives_on(s->way[0].lane.until, now))
		return &s->way[0];
	if (!lives_on(s->way[1].lane.until, now))
		return &s->way[1];
	int any = given_up(SERVED_WAYS);
	return any < 0 ? 0 : &s->way[any & (SERVED_WAYS - 1)];
}
