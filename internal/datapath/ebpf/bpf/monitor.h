// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Events for a monitor: drops and new connections. Packets that differ in their source port
// only make one event a second, with their number. A processor sends at most EVENTS_PER_SECOND;
// the rest is counted. Connections that the driver evaluates further (policies with rules that
// log, or audited ones) have a limit of their own, of which each endpoint has a share.
#pragma once

#include "packet.h"

#define MONITOR_DROPS 1
#define MONITOR_CONNECTIONS 2
#define MONITOR_LISTENS 4

#define EVENTS_PER_SECOND 1000
#define EVENT_SLOTS 1024
#define EVENT_SHARES 64
#define EVENTS_PER_SHARE 100

#define NANOSECONDS 1000000000ULL

struct event {
	__u64 time; // coarse monotonic clock, ns
	__u64 hash; // of all that is compared
	__u64 out_rule, in_rule; // that decided; 0 = none
	struct addr src, dst; // all zero = not IP
	__u32 net, ifindex; // ifindex of the local port that it came from, 0 = none
	__u32 out_set, in_set; // policy sets that were evaluated; 0 = none
	__u32 count, slot, cpu;
	__u16 sport, dport;
	__u8 proto, type;
	__u8 reason; // enum drop_reason; 0 = a connection
	__u8 tier; // that denied by default; TIERS = none did
	__u8 src_mac[6], dst_mac[6];
	__u8 arp; // src and dst are sender and target of an ARP message
	__u8 audits; // it would begin a connection that the driver evaluates further
	__u8 path; // it goes to or comes from the host
	__u8 plain; // it is an event of its own, and not only for audits
	__u32 replaced; // suppressed packets of other events, which had the slot
};

// event_slot suppresses similar events.
struct event_slot {
	__u64 hash, last_reported; // time of the last event
	__u64 suppressed; // packets since then; the reader knows how many of them it has reported
};

struct event_budget {
	__u64 second; // that used counts for
	__u64 used, lost;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} events SEC(".maps");
MAP(event_slots, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct event_slot, EVENT_SLOTS, 0);
// The first is of plain events, the second of those with audits, the others of their shares.
MAP(event_budgets, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct event_budget, 2 + EVENT_SHARES, 0);

static __always_inline __u64 mix(__u64 h, __u64 v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

// has_audits tells whether the packet would begin a connection that the driver evaluates
// further.
static __always_inline int has_audits(struct pkt *p)
{
	return p->audits && !p->known && !p->multicast && !p->ip.later;
}

static __always_inline struct event_budget *budget(__u32 i, __u64 now)
{
	struct event_budget *b = bpf_map_lookup_elem(&event_budgets, &i);
	if (b && b->second != now / NANOSECONDS) {
		b->second = now / NANOSECONDS;
		b->used = 0;
	}
	return b;
}

// monitor sends an event about the packet: reason is why it was dropped, 0 = it began a
// connection; on says what the monitor wants.
__noinline int monitor(struct pkt *p, __u32 reason, __u32 on)
{
	if (!p)
		return 0;
	__u64 now = bpf_ktime_get_coarse_ns(), h;
	__u8 type = 0, plain = !!(on & (reason ? MONITOR_DROPS : MONITOR_CONNECTIONS)), audits = (!reason || reason == DROP_POLICY) && has_audits(p);
	struct event_budget *b = budget(audits, now), *share = b;
	int ip = p->kind == KIND_IP;
	if (audits)
		share = budget(2 + (p->owner & (EVENT_SHARES - 1)), now);
	if (!b || !share)
		return 0;
	h = mix(mix(reason | audits << 8 | plain << 9 | p->path << 16, p->net), p->from == FROM_PORT ? p->ifindex : 0);
	if (ip) {
		if (!p->ip.later && (p->ip.f.proto == P_ICMP || p->ip.f.proto == P_ICMP6))
			type = p->ip.type;
		const __u64 *a = (const void *)&p->ip.f.src, *d = (const void *)&p->ip.f.dst;
		h = mix(mix(mix(mix(h, a[0]), a[1]), d[0]), d[1]);
		h = mix(h, (__u64)p->ip.f.proto << 32 | (__u32)type << 16 | p->ip.f.dport);
	}
	if (p->kind == KIND_ARP)
		h = mix(mix(h, *(__u32 *)p->arp.sip), (__u64)*(__u32 *)p->arp.tip << 32 | 1);
	__u32 slot = h & (EVENT_SLOTS - 1);
	struct event_slot *s = bpf_map_lookup_elem(&event_slots, &slot);
	if (!s)
		return 0;
	int alike = s->hash == h;
	if (alike && now - s->last_reported < NANOSECONDS) {
		s->suppressed++;
		return 0;
	}
	struct event *e = 0;
	if (b->used < EVENTS_PER_SECOND && (!audits || share->used < EVENTS_PER_SHARE))
		e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		b->lost++;
		return 0;
	}
	b->used++;
	if (audits)
		share->used++;
	__builtin_memset(e, 0, sizeof(*e));
	e->time = now;
	e->hash = h;
	e->count = 1 + (alike ? s->suppressed : 0);
	e->replaced = alike ? 0 : s->suppressed;
	s->hash = h;
	s->last_reported = now;
	s->suppressed = 0;
	e->slot = slot;
	e->cpu = bpf_get_smp_processor_id();
	e->net = p->net;
	e->reason = reason;
	e->tier = TIERS;
	e->audits = audits;
	e->path = p->path;
	e->plain = plain;
	if (p->from == FROM_PORT)
		e->ifindex = p->ifindex;
	if (p->eth.proto) {
		__builtin_memcpy(e->src_mac, p->eth.src, 6);
		__builtin_memcpy(e->dst_mac, p->eth.dst, 6);
	}
	if (ip) {
		e->src = p->ip.f.src;
		e->dst = p->ip.f.dst;
		e->sport = p->ip.f.sport;
		e->dport = p->ip.f.dport;
		e->proto = p->ip.f.proto;
		e->type = type;
	}
	if (p->kind == KIND_ARP) {
		e->arp = 1;
		map_ipv4(&e->src, p->arp.sip);
		map_ipv4(&e->dst, p->arp.tip);
	}
	if (reason == DROP_POLICY) {
		if (p->judged_dir == DIR_OUT) {
			e->out_set = p->judged_set;
			e->out_rule = p->rule;
		} else {
			e->in_set = p->judged_set;
			e->in_rule = p->rule;
			if (audits) { // the other end has allowed it
				e->out_set = p->out_set;
				e->out_rule = p->out_rule;
			}
		}
		e->tier = p->judged_tier;
	} else if (!reason) {
		e->out_set = p->out_set;
		e->out_rule = p->out_rule;
		e->in_set = p->in_set;
		e->in_rule = p->rule;
	}
	bpf_ringbuf_submit(e, 0);
	return 0;
}
