// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Flooding, and multicast.
#pragma once

#include "policy.h"
#include "send.h"

struct flooding {
	struct __sk_buff *skb;
	struct pkt *p;
	__u32 vxlan, kind, judged;
	__u32 group; // only to members of the group that the frame is addressed to
};

static long flood_one(__u32 i, struct flooding *f)
{
	struct pkt *p = f->p;
	struct __sk_buff *skb = f->skb;
	p->mk.net = p->net;
	p->mk.kind = f->kind;
	p->mk.index = i;
	struct station *s = bpf_map_lookup_elem(&members, &p->mk);
	if (!s)
		return 0;
	if (f->kind) {
		if (f->vxlan && !tunnel_to(skb, p->tag, s, p->tos) && !bpf_clone_redirect(skb, f->vxlan, 0))
			p->admitted++;
		return 0;
	}
	if (s->ifindex == p->ifindex)
		return 0;
	if (f->group) {
		p->jk.ifindex = s->ifindex;
		p->jk.group = p->ip.f.dst;
		if (!bpf_map_lookup_elem(&joined, &p->jk))
			return 0;
	}
	if (f->judged) {
		int pass = evaluate_policy(p, s->set, DIR_IN);
		if (p->rule)
			hit(p->rule, p->len);
		if (!pass) {
			p->refused++;
			return 0;
		}
	}
	count_rx(s->ifindex, p->len);
	skb->mark = MARK;
	bpf_clone_redirect(skb, s->ifindex, 0);
	p->admitted++;
	return 0;
}

// flood sends a frame to all of its network, or to members of its group; frames from other
// hosts go to local ports only.
static __noinline int flood(struct __sk_buff *skb, struct pkt *p, __u32 judged)
{
	__u32 zero = 0, mark = skb->mark, net = p->net;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct network *n = bpf_map_lookup_elem(&networks, &net);
	struct flooding f = { .skb = skb, .p = p, .judged = judged, .group = judged && is_grouped(&p->ip.f.dst) };
	if (!g || !n)
		return dropped(DROP_NETWORK);
	p->admitted = p->refused = 0;
	bpf_loop(n->ports, flood_one, &f, 0);
	skb->mark = mark;
	if (p->from == FROM_PORT && p->encap == ENCAP_VLAN) {
		p->admitted++;
		return to_uplink(skb, p, g);
	}
	if (p->from == FROM_PORT) {
		f.kind = 1;
		f.vxlan = g->vxlan;
		bpf_loop(n->vteps, flood_one, &f, 0);
	}
	if (!p->admitted)
		return dropped(p->refused ? DROP_POLICY : DROP_UNKNOWN_DEST);
	return TC_DROP; // the frame itself is not needed any more
}
