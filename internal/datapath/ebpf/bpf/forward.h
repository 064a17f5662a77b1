// SPDX-License-Identifier: (MIT OR GPL-2.0)
// IP packets: judged by the policies of both ends, and sent on.
#pragma once

#include "flood.h"
#include "held.h"
#include "outside.h"

// ask_about makes an end, h = nobody that this host knows, the peer that a policy is
// asked about.
static __always_inline void ask_about(struct pkt *p, const struct host *h)
{
	if (p->way)
		h = 0;
	p->peer_net = h ? h->net : p->net;
	if (h)
		p->peer_identity = h->identity;
	else
		p->peer_identity = p->way || p->encap == ENCAP_VLAN; // beyond the host, or a machine of the physical network
}

// judge_ends applies the policies of both ends of p->orig that are here; 1 = passes.
static __noinline int judge_ends(struct pkt *p, __u32 target, __u32 *in_ifindex)
{
	struct host *h = host_at(p, &p->orig.src), *to = host_at(p, &p->orig.dst);
	p->owner = h ? charge_to(h) : to ? charge_to(to) : NOBODY;
	p->src_hand = h ? h->hand : 0;
	p->dst_hand = to ? to->hand : 0;
	p->out_rule = 0;
	p->out_set = p->in_set = 0;
	p->asides = 0;
	*in_ifindex = 0;
	if (h && h->ifindex) {
		__u32 set = h->set;
		p->out_set = set;
		ask_about(p, to);
		if (!judge(p, set, DIR_OUT))
			return 0;
		p->out_rule = p->rule;
	}
	p->rule = 0;
	if (to && to->ifindex) {
		__u32 set = to->set;
		*in_ifindex = to->ifindex;
		p->in_set = set;
		ask_about(p, h);
		if (!p->own && !judge(p, set, DIR_IN)) // what the host itself begins is not asked about
			return 0;
	} else if (target && same_addr(&p->orig.dst, &p->ip.f.dst)) {
		return 0; // nothing reaches a port unjudged
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
	if (!g->flood && !is_grouped(&p->ip.f.dst))
		return dropped(DROP_UNKNOWN_DEST);
	if (p->from == FROM_PORT) {
		ask_about(p, host_at(p, &p->orig.dst));
		if (!judge(p, p->set, DIR_OUT)) {
			if (p->rule)
				hit(&p->rule, p->len);
			return dropped(DROP_POLICY);
		}
		if (p->rule)
			hit(&p->rule, p->len);
	}
	ask_about(p, h);
	int verdict = flood(skb, p, 1);
	p->rule = 0;
	if (p->admitted)
		commit(p, now, p->stamp - 1, 0); // there is no one verdict to remember
	return verdict;
}

// deliver sends on what was let through.
static __always_inline int deliver(struct __sk_buff *skb, struct pkt *p, struct settings *g, struct station *s)
{
	if (p->way == WAY_BACK)
		return go_back(skb, p);
	if (p->way == WAY_HOME)
		return go_home(skb, p, g);
	if (p->way != WAY_OUT)
		return to_station(skb, p, g, s);
	if ((p->nat && rewrite(skb, p)) || outwards(skb, p))
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
	if (p->ip.fragment && p->from != FROM_HOST) { // whose stack sends them in order
		int told = in_order(skb, p, now);
		if (told != IN_ORDER)
			return told;
	}
	if (p->way == WAY_SERVICE) {
		int told = serve(skb, p, now);
		if (told == UNSERVED)
			return no_provider(skb, p);
		if (told != SERVED)
			return told;
	} else if (p->way == WAY_ITSELF) {
		p->itself = 1;
		p->way = WAY_NONE;
	}
	if (p->way >= WAY_ROUTED && p->way < WAY_BACK && p->way != WAY_UNROUTED) {
		int told = route(skb, p);
		if (told != ROUTED)
			return told;
	}
	struct ct *c = classify(skb, p, now);
	owns(p, c);
	if (answers_outside(p, g, c)) {
		p->way = WAY_BACK;
		p->by = c->by;
	} else if (p->way == WAY_BACK && of_stack(p, c)) {
		p->way = WAY_OUT; // where the stack may have translated what it answers
		p->by = 0;
	} else if (c && c->state & CT_SERVICE && !p->nat) {
		int told = come_back(p, c);
		if (told == AGAIN)
			c = classify(skb, p, now);
		else if (told != SERVED)
			return told;
	}
	if (p->way == WAY_HOME && !p->nat && !comes_home(p, c))
		return dropped(DROP_UNKNOWN_DEST);
	if (p->way == WAY_UNROUTED)
		return route(skb, p);
	if (p->invalid)
		return dropped(p->itself && !p->nat ? DROP_UNKNOWN_DEST : DROP_INVALID);
	if (p->itself)
		return to_itself(skb, p, g, now);
	if (p->multicast)
		return forward_multicast(skb, p, g, now);
	int leaves = p->way == WAY_OUT || p->way >= WAY_BACK; // the domain
	struct station *s = leaves ? 0 : p->routed ? station_on(p, p->to_net, p->to_mac) : station_at(p, p->eth.dst);
	if (p->way == WAY_NOWHERE || (!leaves && !reachable(p, g, s)) || (!p->way && !p->routed && astray(p, s != 0)))
		return dropped(DROP_UNKNOWN_DEST);
	__u32 target = s ? s->ifindex : 0;
	if (c && !p->ip.fragment && c->stamp == p->stamp && !(c->state & CT_WAY) == !p->way && !(c->state & CT_OWN) == !p->own && (p->reply || !target || target == c->in_ifindex)) {
		__u8 state = next_state(p, c->state);
		if (now - c->seen > SECOND)
			c->seen = now;
		if (state != c->state)
			c->state = state;
		came_by(p, c);
		p->out_rule = c->out_rule;
		p->rule = c->in_rule;
		if (p->half && state & CT_OPEN)
			open(p, c);
		count_rules(p);
		if (p->nat)
			count_served(p);
		if (!p->way && p->resident)
			remember(p, g, s, c->in_ifindex, state & CT_OPEN);
		return deliver(skb, p, g, s);
	}
	if (!judge_ends(p, target, &in)) {
		if (p->rule)
			hit(&p->rule, p->len);
		return dropped(DROP_POLICY);
	}
	count_rules(p);
	if (g->monitor && !p->known && (g->monitor & MONITOR_CONNECTIONS || has_asides(p)))
		monitor(p, DROP_NONE, g->monitor);
	int entered = commit(p, now, p->stamp, in);
	if (p->past)
		forget(p);
	if (p->nat == NAT_THERE)
		keep(p, now, entered);
	if (p->nat)
		count_served(p);
	return deliver(skb, p, g, s);
}
