// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Sending a frame: to a port, through the tunnel, to the uplink, or back as an answer.
#pragma once

#include "count.h"
#include "mtu.h"
#include "translate.h"
#include "underlay.h"

#define MARK 0xc0ffee76 // of frames that the programs send out of a port

// redirect_by_queue sends a frame to a port's interface, through the queue if it has one.
static __always_inline int redirect_by_queue(struct __sk_buff *skb, __u32 ifindex)
{
	skb->mark = MARK;
	return bpf_redirect(ifindex, 0);
}

static __always_inline struct endpoint *endpoint_at(struct pkt *p, const struct addr *a)
{
	p->hk.domain = domain_of(p, a);
	p->hk.ip = *a;
	return bpf_map_lookup_elem(&hosts, &p->hk);
}

static __always_inline struct station *station_on(struct pkt *p, __u32 net, const __u8 *mac)
{
	p->sk.net = net;
	__builtin_memcpy(p->sk.mac, mac, 6);
	return bpf_map_lookup_elem(&stations, &p->sk);
}

static __always_inline struct station *station_at(struct pkt *p, const __u8 *mac)
{
	return station_on(p, p->net, mac);
}

// has_wrong_mac tells whether the destination address and MAC of a unicast frame are of
// different endpoints: policy would judge one, and the other would get the frame. station =
// an endpoint has the MAC.
static __noinline int has_wrong_mac(struct pkt *p, __u32 station)
{
	struct endpoint *h = endpoint_at(p, &p->ip.f.dst);
	if (is_to_mapped(p))
		h = 0;
	p->dst_is_endpoint = h != 0;
	if (!h && station)
		return 1;
	if (!h && p->from == FROM_PORT) { // only the router forwards to a virtual address
		__u32 zero = 0;
		struct settings *g = bpf_map_lookup_elem(&settings, &zero);
		p->hk.domain = p->domain;
		__u32 *vip = g && g->services ? bpf_map_lookup_elem(&vips, &p->hk) : 0;
		return vip && !(*vip & VIP_SHARED);
	}
	return h && (h->net != p->net || !same(h->mac, p->eth.dst, 6));
}

// decrement_ttl decrements the TTL or hop limit, which is above 1.
static __always_inline int decrement_ttl(struct __sk_buff *skb, __u32 v6)
{
	__u8 was[2], now[2];
	if (v6) {
		if (bpf_skb_load_bytes(skb, 14 + 7, was, 1))
			return -1;
		was[0]--;
		return bpf_skb_store_bytes(skb, 14 + 7, was, 1, BPF_F_RECOMPUTE_CSUM);
	}
	if (bpf_skb_load_bytes(skb, 14 + 8, was, 2))
		return -1;
	now[0] = was[0] - 1;
	now[1] = was[1];
	if (bpf_l3_csum_replace(skb, 14 + 10, *(__u16 *)was, *(__u16 *)now, 2))
		return -1;
	return bpf_skb_store_bytes(skb, 14 + 8, now, 1, 0);
}

// next_hop writes MACs, TTL and NAT of a routed or translated packet. A local container gets it
// from the router's MAC, except requests to a service on its own network; others get it from
// the sender's MAC.
static __noinline int next_hop(struct __sk_buff *skb, struct pkt *p, __u32 local)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	if (!g || (!p->routed && !local && !p->nat))
		return 0;
	if (p->nat && apply_nat(skb))
		return -1;
	if (p->routed) {
		if (decrement_ttl(skb, p->ip.v6))
			return -1;
		__builtin_memcpy(p->eth.dst, p->to_mac, 6);
	}
	if (local && (p->routed || p->cross_network || p->nat == NAT_REPLY))
		__builtin_memcpy(p->eth.src, g->router, 6);
	return bpf_skb_store_bytes(skb, 0, &p->eth, 12, 0);
}

static __always_inline int rewrite_next_hop(struct __sk_buff *skb, struct pkt *p, __u32 local)
{
	return !(p->routed | p->cross_network | p->nat) || !next_hop(skb, p, local);
}

static __always_inline int tunnel_key(struct __sk_buff *skb, __u32 vni, __u32 family, const __u8 *vtep, __u32 tos)
{
	struct bpf_tunnel_key k = {};
	__u32 zero = 0;
	struct tunnel_source *own = bpf_map_lookup_elem(&tunnel_source, &zero);
	k.tunnel_id = vni;
	k.tunnel_ttl = 64;
	k.tunnel_tos = tos; // the device adds ECN's bits
	// Receivers accept no other address of this host.
	if (own && own->family == family)
		__builtin_memcpy(k.local_ipv6, own->vtep, 16);
	if (family == 4) {
		k.remote_ipv4 = *(const __u32 *)vtep;
		return bpf_skb_set_tunnel_key(skb, &k, sizeof(k), BPF_F_ZERO_CSUM_TX);
	}
	__builtin_memcpy(k.remote_ipv6, vtep, 16);
	return bpf_skb_set_tunnel_key(skb, &k, sizeof(k), BPF_F_TUNINFO_IPV6);
}

// encap_to_station encapsulates an IPv4 frame that fits for another host, as the fast path
// does; negative = the VXLAN device has to.
static __noinline int encap_to_station(struct __sk_buff *skb, struct pkt *p, struct settings *g, const struct station *s)
{
	struct forward_entry *l = &p->cache_entry.forward;
	l->underlay = underlay_to(g, s);
	if (!l->underlay)
		return -1;
	l->tag = p->tag;
	__builtin_memcpy(l->vtep, s->vtep, 4);
	l->tos = p->tos;
	__builtin_memcpy(l->macs, &p->eth, 12);
	return encapsulate(skb, l, g);
}

// tunnel_to is tunnel_key in a function of its own, where stack is short: before Linux 6.8 the
// stack of a call chain counts in steps of 32 bytes, up to 512.
static __noinline int tunnel_to(struct __sk_buff *skb, __u32 vni, const struct station *s, __u32 tos)
{
	return s ? tunnel_key(skb, vni, s->vtep_family, s->vtep, tos) : -1;
}

static __always_inline int to_port(struct __sk_buff *skb, struct pkt *p, __u32 ifindex)
{
	if (count_rx(ifindex, p->len) || p->from == FROM_HOST) // bpf_redirect_peer works on ingress only
		return redirect_by_queue(skb, ifindex);
	return bpf_redirect_peer(ifindex, 0);
}

// send_back returns an answer to where its request came from.
static __always_inline int send_back(struct __sk_buff *skb, struct pkt *p, __u32 len)
{
	if (p->from == FROM_HOST)
		return bpf_redirect(p->ifindex, BPF_F_INGRESS);
	if (p->from == FROM_PORT) {
		count_rx(p->ifindex, len);
		skb->mark = MARK;
	} else if (bpf_skb_vlan_push(skb, bpf_htons(0x8100), p->tag)) {
		return TC_DROP;
	}
	return bpf_redirect(p->ifindex, 0);
}

// send_too_big answers a packet that exceeds a device's MTU; 0 = it may be sent.
static __noinline int send_too_big(struct __sk_buff *skb, struct pkt *p, __u32 ifindex)
{
	int ret = p->from == FROM_PORT || p->from == FROM_HOST ? make_too_big(skb, ifindex) : 0;
	if (!ret)
		return 0;
	dropped(DROP_TOO_BIG);
	return ret < 0 ? TC_DROP : send_back(skb, p, ret);
}

static __always_inline int to_uplink(struct __sk_buff *skb, struct pkt *p, struct settings *g)
{
	if (p->len > g->uplink_mtu + sizeof(struct eth)) {
		int ret = send_too_big(skb, p, g->uplink);
		if (ret)
			return ret;
	}
	if (!g->uplink || !rewrite_next_hop(skb, p, 0) || bpf_skb_vlan_push(skb, bpf_htons(0x8100), p->tag))
		return dropped(DROP_UNKNOWN_DEST);
	return bpf_redirect(g->uplink, 0);
}

// may_host_tunnel tells whether a packet of the host's stack, to a service or to a routed
// network, may go through the tunnel.
static __always_inline int may_host_tunnel(const struct pkt *p)
{
	return p->from == FROM_HOST && (p->nat == NAT_REQUEST || p->to_routed) && p->encap == ENCAP_VXLAN;
}

// to_station sends a frame to s (0 = none), after reachable has allowed it.
static __always_inline int to_station(struct __sk_buff *skb, struct pkt *p, struct settings *g, struct station *s)
{
	if (s && s->ifindex && s->ifindex != p->ifindex)
		return rewrite_next_hop(skb, p, 1) ? to_port(skb, p, s->ifindex) : dropped(DROP_INVALID);
	if ((p->from != FROM_PORT || p->path) && !may_host_tunnel(p))
		return dropped(DROP_UNKNOWN_DEST);
	if (s && s->ifindex)
		return dropped(DROP_UNKNOWN_DEST);
	if (p->encap == ENCAP_VLAN)
		return to_uplink(skb, p, g);
	if (!s || !s->vtep_family || !g->vxlan)
		return dropped(DROP_UNKNOWN_DEST);
	int in_mtu = p->len <= g->mtu + sizeof(struct eth);
	if (!in_mtu) {
		int ret = send_too_big(skb, p, g->vxlan);
		if (ret)
			return ret;
	}
	if (!rewrite_next_hop(skb, p, 0))
		return dropped(DROP_UNKNOWN_DEST);
	if (in_mtu && p->kind == KIND_IP && !p->ip.v6 && p->from == FROM_PORT) {
		int ret = encap_to_station(skb, p, g, s);
		if (ret >= 0)
			return ret;
	}
	if (tunnel_to(skb, p->tag, s, p->tos))
		return dropped(DROP_UNKNOWN_DEST);
	return bpf_redirect(g->vxlan, 0);
}

static __always_inline int reachable(struct pkt *p, struct settings *g, struct station *s)
{
	if (s && s->ifindex && s->ifindex != p->ifindex)
		return 1;
	if (s && s->ifindex)
		return 0;
	return p->from == FROM_PORT ? p->encap == ENCAP_VLAN || s : s && may_host_tunnel(p);
}
