// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Counters: drops by reason, rules by hits, ports by direction.
#pragma once

#include "fastpath.h"
#include "monitor.h"

static __noinline int dropped(__u32 reason)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&drops, &reason);
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	if (n)
		*n += 1;
	if (g && (g->monitor & MONITOR_DROPS || (g->monitor && reason == DROP_POLICY))) {
		struct pkt *p = current_packet();
		if (p && (g->monitor & MONITOR_DROPS || has_audits(p)))
			monitor(p, reason, g->monitor);
	}
	return TC_DROP;
}

// hit_all counts in map hits.
static __noinline int hit_all(__u64 *id, struct counter *n)
{
	if (!id || !n)
		return 0;
	struct counter *c = bpf_map_lookup_elem(&hits, id);
	if (c) {
		c->packets += n->packets;
		c->bytes += n->bytes;
	} else if (!bpf_map_update_elem(&hits, id, n, BPF_NOEXIST)) {
		count_created(CREATED_HIT);
	}
	return 0;
}

static __always_inline struct tally *tally(__u64 id)
{
	__u32 i = id & (TALLIES - 1);
	return bpf_map_lookup_elem(&tallies, &i);
}

// hit_again counts for a rule that hit has counted for before.
static __always_inline void hit_again(__u64 *id, __u64 bytes)
{
	struct tally *t = tally(*id);
	if (t && t->id == *id) {
		t->n.packets++;
		t->n.bytes += bytes;
	} else {
		struct counter one = { 1, bytes };
		hit_all(id, &one);
	}
}

// hit counts for a rule. The rule takes its place among the tallies if that is free or its
// owner is idle.
__noinline int hit(__u64 id, __u64 bytes)
{
	__u64 now = bpf_jiffies64();
	struct tally *t = tally(id);
	if (t && t->id != id && (!t->id || (__s64)(now - t->seen) > (__s64)IDLE_TICKS)) {
		if (t->id)
			hit_all(&t->id, &t->n);
		t->id = id;
		t->n.packets = t->n.bytes = 0;
	}
	if (t && t->id == id)
		t->seen = now;
	hit_again(&id, bytes);
	return 0;
}

static __always_inline void count_slot_rx(__u32 slot, __u64 bytes)
{
	struct port_counter *c = bpf_map_lookup_elem(&port_counters, &slot);
	if (c) {
		c->rx.packets++;
		c->rx.bytes += bytes;
	}
}

static __always_inline void count_slot_tx(__u32 slot, __u64 bytes)
{
	struct port_counter *c = bpf_map_lookup_elem(&port_counters, &slot);
	if (c) {
		c->tx.packets++;
		c->tx.bytes += bytes;
	}
}

// count_rx counts what a port receives; it returns whether the port has a queue.
static __always_inline int count_rx(__u32 ifindex, __u64 bytes)
{
	struct port *o = bpf_map_lookup_elem(&ports, &ifindex);
	if (!o)
		return 0;
	count_slot_rx(o->slot, bytes);
	return o->queued;
}

// count_allowed counts for the rules of a packet on the fast path.
static __always_inline void count_allowed(struct allowing_rules *by, __u32 len)
{
	if (by->out)
		hit_again(&by->out, len);
	if (by->in)
		hit_again(&by->in, len);
}

static __always_inline void count_rules(struct pkt *p)
{
	if (p->out_rule)
		hit(p->out_rule, p->len);
	if (p->rule)
		hit(p->rule, p->len);
}
