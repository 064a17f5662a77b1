// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Shares of the connection tables. A connection is half open until both ends take part, and
// is in a table of its own until then, so that half-open connections never evict open ones.
// Slots of half-open connections form a ring, oldest first. If the next slot is taken, some
// others are examined, and the oldest connection of the largest holder is evicted. The
// driver evicts open connections. While their table is nearly full, an owner gets no more
// than its share, and further connections stay half open. Without a driver the LRU evicts.
// This costs something when a connection begins and when it opens, and nothing per packet.
#pragma once

#include "packet.h"

// Set when the programs are loaded.
volatile const __u32 half_slots = 65536; // entries of slots and halfopen
volatile const __u32 half_pressure = 52428; // more half-open connections than this are too many
volatile const __u32 conns_pressure = 104857; // more open connections than this are too many
volatile const __u32 conns_share = 8192; // of one owner, once there are too many

#define SLOT_TAKEN 0xffffffff
#define NO_SLOT 0xffffffff
#define SLOTS_NEXT 16 // slots that are examined: next in the ring, and at random
#define SLOTS_ANYWHERE 48

volatile const __u64 owner_seed = 0; // so that no sender can choose its owner

#define DRIVER_AWAY (60 * 1000000000ULL) // no sweep for so long, ns

static __u32 next_slot; // of the ring

// share_owner_of returns the owner that an endpoint's connections are charged to. Two
// endpoints may share one.
static __always_inline __u32 share_owner_of(const struct endpoint *h)
{
	const __u16 *m = (const void *)h->mac;
	__u64 v = (__u64)m[0] << 32 | (__u32)m[1] << 16 | m[2];
	v = (v ^ (__u64)h->net << 40 ^ owner_seed) * 0x9e3779b97f4a7c15ULL;
	return 2 + (__u32)((v >> 32) * (OWNERS - 2) >> 32);
}

#define OWNER_UNKNOWN 1 // owner of connections that no known endpoint takes part in

static __always_inline __u32 half_open_count(__u32 owner)
{
	struct share *s = bpf_map_lookup_elem(&spent, &owner), *g = bpf_map_lookup_elem(&given, &owner);
	if (!s || !g)
		return 0;
	__s32 n = s->half - g->half;
	return n < 0 ? 0 : n;
}

static __always_inline __u32 open_count(__u32 owner)
{
	struct share *s = bpf_map_lookup_elem(&spent, &owner), *g = bpf_map_lookup_elem(&given, &owner);
	if (!s || !g)
		return 0;
	__s32 n = s->open - g->open;
	return n < 0 ? 0 : n;
}

// count_owned adds to the connections of an owner, and to those of all.
static __noinline int count_owned(__u32 owner, __u32 half, __u32 open)
{
	__u32 all = 0;
	struct share *s = bpf_map_lookup_elem(&spent, &owner), *t = bpf_map_lookup_elem(&spent, &all);
	if (!s || !t)
		return 0;
	if (half) {
		__sync_fetch_and_add(&s->half, half);
		__sync_fetch_and_add(&t->half, half);
	}
	if (open) {
		__sync_fetch_and_add(&s->open, open);
		__sync_fetch_and_add(&t->open, open);
	}
	return 0;
}

static __always_inline int same_key(const struct ct_key *a, const struct ct_key *b)
{
	const __u32 *x = (const void *)a, *y = (const void *)b;
	__u32 d = 0;
#pragma unroll
	for (int i = 0; i < sizeof(*a) / 4; i++)
		d |= x[i] ^ y[i];
	return d == 0;
}

static __always_inline int acquire_slot(struct slot *s, __u32 owner)
{
	return __sync_val_compare_and_swap(&s->owner, owner, SLOT_TAKEN) == owner;
}

// delete_translation deletes the translation of the connection of p->victim, if it has one.
static __noinline int delete_translation(struct pkt *p)
{
	struct translation *t = bpf_map_lookup_elem(&translations, &p->victim);
	if (!t)
		return 0;
	p->tk = t->client_key;
	bpf_map_delete_elem(&translations, &p->victim);
	return bpf_map_delete_elem(&translations, &p->tk);
}

struct slot_search {
	__u32 at, far; // next slots to examine, in the ring and at random
	__u32 all; // half-open connections
	__u32 slot, owner, most; // of the largest holder; owner 0 = the slot was free, and is claimed
};

static long probe_slot(__u32 n, struct slot_search *l)
{
	l->far = l->far * 1664525 + 1013904223; // Knuth 3.3.4
	__u32 i = n < SLOTS_NEXT ? (l->at + n) % half_slots : (__u32)((__u64)l->far * half_slots >> 32);
	struct slot *s = bpf_map_lookup_elem(&slots, &i);
	if (!s)
		return 1;
	__u32 owner = s->owner;
	if (owner == SLOT_TAKEN || (!owner && !acquire_slot(s, 0)))
		return 0;
	__u32 waiting_fragments = owner ? half_open_count(owner) + 1 : ~0;
	if (waiting_fragments > l->most) {
		l->most = waiting_fragments;
		l->slot = i;
		l->owner = owner;
	}
	// This owner has more than half, and there is little room; or the slot was free.
	return !owner || (l->most > l->all / 2 && l->all > half_pressure);
}

// allocate_slot returns a slot for a half-open connection, free or evicted; NO_SLOT =
// another processor was faster. It examines the next slots in the ring, which are the
// oldest, and some at random: neighbouring slots often have one owner, which need not be
// the largest holder.
static __noinline __u32 allocate_slot(struct pkt *p)
{
	struct slot_search l = { .at = __sync_fetch_and_add(&next_slot, 1) % half_slots };
	l.far = l.slot = l.at;
	struct slot *s = bpf_map_lookup_elem(&slots, &l.slot);
	if (s && !s->owner && acquire_slot(s, 0))
		return l.slot;
	l.all = half_open_count(0);
	l.slot = NO_SLOT;
	bpf_loop(SLOTS_NEXT + SLOTS_ANYWHERE, probe_slot, &l, 0);
	s = bpf_map_lookup_elem(&slots, &l.slot);
	if (!s || (l.owner && !acquire_slot(s, l.owner)))
		return NO_SLOT;
	if (!l.owner)
		return l.slot;
	p->victim = s->key;
	if (!bpf_map_delete_elem(&halfopen, &p->victim)) {
		count_owned(l.owner, -1, 0);
		count_created(EVICTED_HALF);
		delete_translation(p);
	}
	return l.slot;
}

// release_slot frees the slot of the connection of p->ck.
static __always_inline void release_slot(struct pkt *p, __u32 slot, __u32 owner)
{
	struct slot *s = bpf_map_lookup_elem(&slots, &slot);
	if (s && s->owner == owner && same_key(&s->key, &p->ck))
		__sync_val_compare_and_swap(&s->owner, owner, 0);
}

// insert_half_open inserts p->fresh as a half-open connection of p->owner; 1 = done.
static __noinline int insert_half_open(struct pkt *p)
{
	__u32 owner = p->owner, slot = allocate_slot(p);
	struct slot *s = bpf_map_lookup_elem(&slots, &slot);
	if (!s)
		return 0;
	p->fresh.slot = slot;
	p->fresh.owner = owner;
	s->key = p->ck;
	if (bpf_map_update_elem(&halfopen, &p->ck, &p->fresh, BPF_NOEXIST)) {
		*(volatile __u32 *)&s->owner = 0;
		return 0;
	}
	*(volatile __u32 *)&s->owner = owner; // last: from now on it may be evicted
	count_owned(owner, 1, 0);
	return 1;
}

static __always_inline int driver_away(void)
{
	__u32 zero = 0;
	__u64 *at = bpf_map_lookup_elem(&swept, &zero), now = bpf_ktime_get_coarse_ns();
	return !at || (now > *at && now - *at > DRIVER_AWAY);
}

// promote moves the half-open connection c of p->ck to the open ones, if there is room.
__noinline int promote(struct ct *c)
{
	struct pkt *p = current_packet();
	if (!p || !c)
		return 0;
	__u32 owner = c->owner, slot = c->slot, all = 0;
	if (open_count(all) >= conns_pressure && open_count(owner) >= conns_share && !driver_away())
		return 0;
	p->fresh = *c;
	int old = bpf_map_update_elem(&conns, &p->ck, &p->fresh, BPF_NOEXIST);
	if (old && bpf_map_update_elem(&conns, &p->ck, &p->fresh, BPF_EXIST)) // an expired one
		return 0;
	count_owned(owner, bpf_map_delete_elem(&halfopen, &p->ck) ? 0 : -1, !old);
	release_slot(p, slot, owner);
	return 1;
}
