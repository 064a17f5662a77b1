// SPDX-License-Identifier: (MIT OR GPL-2.0)
// IP packets: policy of both ends, and delivery.
#pragma once

#include "flood.h"
#include "fragments.h"
#include "externalclients.h"

// set_peer makes an endpoint, h = 0 if none is known, the peer that policy matches.
static __always_inline void set_peer(struct pkt *p, const struct endpoint *h)
{
	if (p->path)
		h = 0;
	p->peer_net = h ? h->net : p->net;
	if (h)
		p->peer_identity = h->identity;
	else
		p->peer_identity = p->path || p->encap == ENCAP_VLAN; // beyond the host, or on the physical network
}

// evaluate_policies applies the policies of both ends of p->orig that are here; 1 = allowed.
static __noinline int evaluate_policies(struct pkt *p, __u32 target, __u32 *in_ifindex)
{
	struct endpoint *h = endpoint_at(p, &p->orig.src), *to = endpoint_at(p, &p->orig.dst);
	p->owner = h ? share_owner_of(h) : to ? share_owner_of(to) : OWNER_UNKNOWN;
	p->src_owner_version = h ? h->owner_version : 0;
	p->dst_owner_version = to ? to->owner_version : 0;
	p->out_rule = 0;
	p->out_set = p->in_set = 0;
	p->audits = 0;
	*in_ifindex = 0;
	if (h && h->ifindex) {
		__u32 set = h->set;
		p->out_set = set;
		set_peer(p, to);
		if (!evaluate_policy(p, set, DIR_OUT))
			return 0;
		p->out_rule = p->rule;
	}
	p->rule = 0;
	if (to && to->ifindex) {
		__u32 set = to->set;
		*in_ifindex = to->ifindex;
		p->in_set = set;
		set_peer(p, h);
		if (!p->host_socket && !evaluate_policy(p, set, DIR_IN)) // connections of the host's own sockets are exempt
			return 0;
	} else if (target && same_addr(&p->orig.dst, &p->ip.f.dst)) {
		return 0; // no packet reaches a port without a verdict
	}
	return 1;
}

static __noinline int forward_multicast(struct __sk_buff *skb, struct pkt *p, struct settings *g, __u64 now)
{
	struct endpoint *h = endpoint_at(p, &p->orig.src);
	p->owner = h ? share_owner_of(h) : OWNER_UNKNOWN;
	p->src_owner_version = h ? h->owner_version : 0;
	p->dst_owner_version = 0;
	p->out_rule = p->rule = 0;
	if (!g->flood && !is_grouped(&p->ip.f.dst))
		return dropped(DROP_UNKNOWN_DEST);
	if (p->from == FROM_PORT) {
		set_peer(p, endpoint_at(p, &p->orig.dst));
		if (!evaluate_policy(p, p->set, DIR_OUT)) {
			if (p->rule)
				hit(p->rule, p->len);
			return dropped(DROP_POLICY);
		}
		if (p->rule)
			hit(p->rule, p->len);
	}
	set_peer(p, h);
	int verdict = flood(skb, p, 1);
	p->rule = 0;
	if (p->admitted)
		commit(now, p->version - 1, 0); // receivers differ, so there is no one verdict to remember
	return verdict;
}

// deliver_hairpin delivers a container's packet to a service whose backend it is itself, or its
// reply. Policy does not judge it.
static __noinline int deliver_hairpin(struct __sk_buff *skb, struct pkt *p, struct settings *g, __u64 now)
{
	if (!g || !p->nat)
		return dropped(DROP_UNKNOWN_DEST);
	struct endpoint *h = endpoint_at(p, &p->tr.backend);
	p->owner = h ? share_owner_of(h) : OWNER_UNKNOWN;
	p->src_owner_version = 0;
	p->dst_owner_version = h ? h->owner_version : 0;
	p->out_rule = p->rule = 0;
	int entered = commit(now, p->version, p->ifindex);
	if (p->nat == NAT_REQUEST)
		store_translation(now, entered);
	count_service(p);
	if (apply_nat(skb))
		return dropped(DROP_INVALID);
	__builtin_memcpy(p->eth.dst, p->eth.src, 6);
	__builtin_memcpy(p->eth.src, g->router, 6);
	if (bpf_skb_store_bytes(skb, 0, &p->eth, 12, 0))
		return dropped(DROP_INVALID);
	return to_port(skb, p, p->ifindex);
}

// deliver sends an allowed packet.
static __always_inline int deliver(struct __sk_buff *skb, struct pkt *p, struct settings *g, struct station *s)
{
	if (p->path == PATH_OTHER_HOST)
		return send_to_other_host(skb, p);
	if (p->path == PATH_EXTERNAL_CLIENT)
		return send_to_external_client(skb, p, g);
	if (p->path != PATH_TO_HOST)
		return to_station(skb, p, g, s);
	if ((p->nat && apply_nat(skb)) || snat_to_host(skb, p))
		return dropped(DROP_INVALID);
	return bpf_redirect(g->host, BPF_F_INGRESS);
}

// forward decides about an IP packet and sends it.
static __noinline int forward(struct __sk_buff *skb, struct pkt *p)
{
	__u32 zero = 0, in = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	__u64 now = bpf_ktime_get_coarse_ns();
	if (!g)
		return dropped(DROP_NETWORK);
	if (p->from == FROM_PORT && !p->identity && p->encap == ENCAP_VXLAN)
		return dropped(DROP_UNKNOWN_SOURCE);
	if (p->ip.fragment && p->from != FROM_HOST) { // the host's stack sends them in order
		int ret = order_fragments(skb, p, now);
		if (ret != IN_ORDER)
			return ret;
	}
	if (p->path == PATH_SERVICE) {
		int ret = translate_request(skb, p, now);
		if (ret == NO_BACKEND)
			return reject_no_backend(skb, p);
		if (ret != SERVICE_OK)
			return ret;
	} else if (p->path == PATH_HAIRPIN) {
		p->hairpin = 1;
		p->path = PATH_NONE;
	}
	if (p->path >= PATH_ROUTED && p->path < PATH_OTHER_HOST && p->path != PATH_NO_ROUTE) {
		int ret = route(skb, p);
		if (ret != ROUTED)
			return ret;
	}
	struct ct *c = lookup_connection(skb, p, now);
	set_host_socket(p, c);
	if (is_reply_to_external(p, g, c)) {
		p->path = PATH_OTHER_HOST;
		p->other_host = c->ingress_host;
	} else if (p->path == PATH_OTHER_HOST && is_reply_to_host(p, c)) {
		p->path = PATH_TO_HOST; // the stack may have translated the request
		p->other_host = 0;
	} else if (c && c->state & CT_SERVICE && !p->nat) {
		int ret = translate_reply(p, c);
		if (ret == CONNECTION_GONE)
			c = lookup_connection(skb, p, now);
		else if (ret != SERVICE_OK)
			return ret;
	}
	if (p->path == PATH_EXTERNAL_CLIENT && !p->nat && !is_for_host(p, c))
		return dropped(DROP_UNKNOWN_DEST);
	if (p->path == PATH_NO_ROUTE)
		return route(skb, p);
	if (p->invalid)
		return dropped(p->hairpin && !p->nat ? DROP_UNKNOWN_DEST : DROP_INVALID);
	if (p->hairpin)
		return deliver_hairpin(skb, p, g, now);
	if (p->multicast)
		return forward_multicast(skb, p, g, now);
	int leaves = p->path == PATH_TO_HOST || p->path >= PATH_OTHER_HOST; // the domain
	struct station *s = leaves ? 0 : p->routed ? station_on(p, p->to_net, p->to_mac) : station_at(p, p->eth.dst);
	if (p->path == PATH_UNREACHABLE || (!leaves && !reachable(p, g, s)) || (!p->path && !p->routed && has_wrong_mac(p, s != 0)))
		return dropped(DROP_UNKNOWN_DEST);
	__u32 target = s ? s->ifindex : 0;
	if (c && !p->ip.fragment && c->version == p->version && !(c->state & CT_VIA_HOST) == !p->path && !(c->state & CT_HOST_SOCKET) == !p->host_socket && (p->reply || !target || target == c->in_ifindex)) {
		__u8 state = next_state(p, c->state);
		if (now - c->seen > SECOND)
			c->seen = now;
		if (state != c->state)
			c->state = state;
		note_ingress_host(p, c);
		p->out_rule = c->out_rule;
		p->rule = c->in_rule;
		if (p->half_open && state & CT_OPEN)
			promote(c);
		count_rules(p);
		if (p->nat)
			count_service(p);
		if (!p->path && p->dst_is_endpoint)
			cache_decision(g, s, c->in_ifindex, state & CT_OPEN);
		return deliver(skb, p, g, s);
	}
	if (!evaluate_policies(p, target, &in)) {
		if (p->rule)
			hit(p->rule, p->len);
		return dropped(DROP_POLICY);
	}
	count_rules(p);
	if (g->monitor && !p->known && (g->monitor & MONITOR_CONNECTIONS || has_audits(p)))
		monitor(p, DROP_NONE, g->monitor);
	int entered = commit(now, p->version, in);
	if (p->replaces)
		invalidate_fast(p);
	if (p->nat == NAT_REQUEST)
		store_translation(now, entered);
	if (p->nat)
		count_service(p);
	return deliver(skb, p, g, s);
}
