// SPDX-License-Identifier: (MIT OR GPL-2.0)
// IP packets: judged by the policies of both ends, and sent on.
#pragma once

#include "flood.h"
#include "route.h"

// ask_about makes whoever is at an address the peer that a policy is asked about.
static __always_inline void ask_about(struct pkt *p, const struct addr *a)
{
	struct host *h = p->way ? 0 : host_at(p, a);
	p->peer_net = h ? h->net : p->net;
	if (h)
		p->peer_identity = h->identity;
	else
		p->peer_identity = p->way || p->encap == ENCAP_VLAN; // beyond the host, or a machine of the physical network
}

// judge_ends applies the policies of both ends of p->orig that are here; 1 = passes.
static __noinline int judge_ends(struct pkt *p, __u32 target, __u32 target_set, __u32 *in_ifindex)
{
	struct host *h = host_at(p, &p->orig.src);
	p->owner = h ? charge_to(h) : 0;
	p->src_hand = h ? h->hand : 0;
	p->out_rule = 0;
	p->out_set = p->in_set = 0;
	p->asides = 0;
	*in_ifindex = 0;
	if (h && h->ifindex) {
		__u32 set = h->set;
		p->out_set = set;
		ask_about(p, &p->orig.dst);
		if (!judge(p, set, DIR_OUT))
			return 0;
		p->out_rule = p->rule;
	}
	h = host_at(p, &p->orig.dst);
	p->dst_hand = h ? h->hand : 0;
	if (!p->owner)
		p->owner = h ? charge_to(h) : NOBODY;
	__u32 set = 0;
	if (h && h->ifindex) {
		set = h->set;
		*in_ifindex = h->ifindex;
	} else if (target && same_addr(&p->orig.dst, &p->ip.f.dst)) {
		set = target_set; // nothing reaches a port unjudged
		*in_ifindex = target;
		p->stamp--; // no turn of this address tells what becomes of the port, so that the verdict is this packet's only
	}
	p->rule = 0;
	if (*in_ifindex) {
		p->in_set = set;
		ask_about(p, &p->orig.src);
		if (!judge(p, set, DIR_IN))
			return 0;
	}
	return 1;
}

static __noinline int forward_multicast(struct __sk_buff *skb, struct pkt *p, struct settings *g, __u64 now)
{
	struct host *h = host_at(p, &p->orig.src);
	p->owner = h ? charge_to(h) : NOBODY;
	p->src_hand = h ? h->hand : 0;
	p->dst_hand = 0;
	p->out_rule = p->rule = 0;
	if (!g->flood)
		return dropped(DROP_UNKNOWN_DEST);
	if (p->from == FROM_PORT) {
		ask_about(p, &p->orig.dst);
		if (!judge(p, p->set, DIR_OUT)) {
			if (p->rule)
				hit(&p->rule, p->len);
			return dropped(DROP_POLICY);
		}
		if (p->rule)
			hit(&p->rule, p->len);
	}
	ask_about(p, &p->orig.src);
	int verdict = flood(skb, p, 1);
	p->rule = 0;
	if (p->admitted)
		commit(p, now, p->stamp - 1, 0); // there is no one verdict to remember
	return verdict;
}

// deliver sends on what was let through.
static __always_inline int deliver(struct __sk_buff *skb, struct pkt *p, struct settings *g, struct station *s)
{
	if (p->way != WAY_OUT)
		return to_station(skb, p, g, s);
	if (outwards(skb, p))
		return dropped(DROP_INVALID);
	return bpf_redirect(g->host, BPF_F_INGRESS);
}

// forward judges an IP packet and sends it on.
static __noinline int forward(struct __sk_buff *skb, struct pkt *p)
{
	__u32 zero = 0, in = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	__u64 now = bpf_ktime_get_coarse_ns();
	if (!g)
		return dropped(DROP_NETWORK);
	if (p->from == FROM_PORT && !p->identity && p->encap == ENCAP_VXLAN)
		return dropped(DROP_UNKNOWN_SOURCE);
	if (p->way >= WAY_ROUTED) {
		int told = route(skb, p);
		if (told != ROUTED)
			return told;
	}
	struct ct *c = classify(skb, p, now);
	if (p->invalid)
		return dropped(DROP_INVALID);
	if (p->multicast)
		return forward_multicast(skb, p, g, now);
	struct station *s = p->way == WAY_OUT ? 0 : p->routed ? station_on(p, p->to_net, p->to_mac) : station_at(p, p->eth.dst);
	if (p->way == WAY_NOWHERE || (p->way != WAY_OUT && !reachable(p, g, s)) || (!p->way && !p->routed && astray(p)))
		return dropped(DROP_UNKNOWN_DEST);
	__u32 target = s ? s->ifindex : 0, set = s ? s->set : 0;
	if (c && !p->ip.fragment && c->stamp == p->stamp && !(c->state & CT_WAY) == !p->way && (p->reply || !target || target == c->in_ifindex)) {
		__u8 state = next_state(p, c->state);
		if (now - c->seen > SECOND)
			c->seen = now;
		if (state != c->state)
			c->state = state;
		p->out_rule = c->out_rule;
		p->rule = c->in_rule;
		if (p->half && state & CT_OPEN)
			open(p, c);
		count_rules(p);
		if (!p->way && p->resident)
			remember(p, g, s);
		return deliver(skb, p, g, s);
	}
	if (!judge_ends(p, target, set, &in)) {
		if (p->rule)
			hit(&p->rule, p->len);
		return dropped(DROP_POLICY);
	}
	count_rules(p);
	if (g->monitor && !p->known && (g->monitor & MONITOR_CONNECTIONS || has_asides(p)))
		monitor(p, DROP_NONE, g->monitor);
	commit(p, now, p->stamp, in);
	if (p->past)
		forget(p);
	return deliver(skb, p, g, s);
}
