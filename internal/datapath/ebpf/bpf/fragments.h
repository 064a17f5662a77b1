// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Fragments that arrive before the first one of their datagram, which alone has the ports.
// They wait in a map, and enter the interface again behind the first one.
#pragma once

#include "hostegress.h"

#define WAITING_SLOTS 256 // frames that wait on this host; more overwrite the oldest
#define WAITING_BYTES 9216 // of a frame
#define REINJECT_MARK 0xc0de0000 // of a frame that enters again, with its slot

struct waiting_fragment {
	struct frag_key key;
	__u32 tag, remote_family; // where it came from, if by tunnel
	__u8 remote[16];
	__u32 len;
	__u8 frame[WAITING_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct waiting_fragment);
	__uint(max_entries, WAITING_SLOTS);
} waiting_fragments SEC(".maps");

static __u32 next_waiting;

// take_reinjected finds where a reinjected frame came from, by its mark.
static __noinline int take_reinjected(struct __sk_buff *skb, struct pkt *p)
{
	__u32 slot = skb->mark ^ REINJECT_MARK;
	struct waiting_fragment *h = bpf_map_lookup_elem(&waiting_fragments, &slot);
	if (!h)
		return 0;
	skb->mark = 0;
	p->reinjected = 1;
	p->tag = h->tag;
	p->remote_family = h->remote_family;
	__builtin_memcpy(p->key.remote_ipv6, h->remote, sizeof(h->remote));
	return 1;
}

// is_reinjected reports whether a frame has waited. Nearly all have not, and cost no call.
static __always_inline int is_reinjected(struct __sk_buff *skb, struct pkt *p)
{
	return (skb->mark ^ REINJECT_MARK) < WAITING_SLOTS ? take_reinjected(skb, p) : 0;
}

// store_fragment stores the frame of p->fk; it returns the slot, negative = there is none.
static __noinline int store_fragment(struct __sk_buff *skb, struct pkt *p)
{
	__u32 slot = __sync_fetch_and_add(&next_waiting, 1) % WAITING_SLOTS, len = skb->len;
	struct waiting_fragment *h = bpf_map_lookup_elem(&waiting_fragments, &slot);
	BETWEEN(len, 34, WAITING_BYTES);
	if (!h || bpf_skb_load_bytes(skb, 0, h->frame, len))
		return -1;
	h->key = p->fk;
	h->tag = p->tag;
	h->remote_family = p->remote_family;
	__builtin_memcpy(h->remote, p->key.remote_ipv6, sizeof(h->remote));
	h->len = len;
	return slot;
}

// reinject sends a stored frame into the interface again, in place of the present one.
static __noinline int reinject(struct __sk_buff *skb, struct pkt *p, __u32 slot)
{
	struct waiting_fragment *h = bpf_map_lookup_elem(&waiting_fragments, &slot);
	if (!h || !same(&h->key, &p->fk, sizeof(p->fk)))
		return -1;
	__u32 len = h->len;
	BETWEEN(len, 34, WAITING_BYTES);
	if (bpf_skb_change_tail(skb, len, 0) || bpf_skb_store_bytes(skb, 0, h->frame, len, BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH))
		return -1;
	skb->mark = REINJECT_MARK | slot;
	return bpf_clone_redirect(skb, p->ifindex, BPF_F_INGRESS);
}

struct reinjection {
	struct __sk_buff *skb;
	struct pkt *p;
};

static long reinject_one(__u32 i, struct reinjection *b)
{
	if (i >= FRAG_PARTS)
		return 1;
	reinject(b->skb, b->p, b->p->frag.part[i].from);
	return 0;
}

#define IN_ORDER -1

// wait_for_first stores a later fragment; f = its datagram, 0 = unknown.
static __noinline int wait_for_first(struct __sk_buff *skb, struct pkt *p, struct frag *f, __u64 now)
{
	__u32 n = f ? f->waits : 0;
	int slot = n < FRAG_PARTS ? store_fragment(skb, p) : -1;
	if (slot < 0)
		return IN_ORDER;
	if (f && n < FRAG_PARTS) {
		f->part[n].from = slot;
		f->waits = n + 1;
		return TC_DROP;
	}
	__builtin_memset(&p->frag, 0, sizeof(p->frag));
	p->frag.seen = now;
	p->frag.waits = 1;
	p->frag.part[0].from = slot;
	store_frag(p);
	return TC_DROP;
}

// reinject_all sends a first fragment into the interface again, then the later ones that wait.
static __noinline int reinject_all(struct __sk_buff *skb, struct pkt *p, struct frag *f)
{
	struct reinjection b = { .skb = skb, .p = p };
	if (!f)
		return IN_ORDER;
	__u32 n = f->waits;
	p->frag = *f;
	f->waits = 0;
	int slot = store_fragment(skb, p);
	if (slot < 0)
		return IN_ORDER;
	if (p->from == FROM_UPLINK && bpf_skb_vlan_push(skb, bpf_htons(0x8100), p->tag))
		return dropped(DROP_INVALID);
	reinject(skb, p, slot);
	bpf_loop(n, reinject_one, &b, 0);
	return TC_DROP;
}

// order_fragments stores later fragments until the first one is there, and then sends them
// behind it. IN_ORDER = the frame itself goes on.
static __noinline int order_fragments(struct __sk_buff *skb, struct pkt *p, __u64 now)
{
	if (p->path == PATH_UNREACHABLE || p->path == PATH_NO_ENDPOINT || p->path == PATH_NO_ROUTE)
		return IN_ORDER; // it will be dropped or refused in any case
	set_frag_key(p);
	struct frag *f = bpf_map_lookup_elem(&frags, &p->fk);
	if (f && now - f->seen > 30 * SECOND)
		f = 0;
	if (p->reinjected || (f && f->parts))
		return IN_ORDER;
	if (p->ip.later)
		return wait_for_first(skb, p, f, now);
	return f && f->waits ? reinject_all(skb, p, f) : IN_ORDER;
}
