// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Sending a frame on: to a port, through the tunnel, to the uplink, or back with
// an answer.
#pragma once

#include "count.h"
#include "mtu.h"

#define MARK 0xc0ffee76 // of frames that the programs send out of a port

static __always_inline struct host *host_at(struct pkt *p, const struct addr *a)
{
	p->hk.domain = space_of(p, a);
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

// astray tells whether a unicast frame's IP destination is an endpoint's and its
// MAC is not that endpoint's: it would get to somebody for whom nobody was asked.
static __noinline int astray(struct pkt *p)
{
	struct host *h = host_at(p, &p->ip.f.dst);
	p->resident = h != 0;
	return h && !same(h->mac, p->eth.dst, 6);
}

static __always_inline int tunnel_key(struct __sk_buff *skb, __u32 vni, __u32 family, const __u8 *vtep)
{
	struct bpf_tunnel_key k = {};
	__u32 zero = 0;
	struct tunnel_source *own = bpf_map_lookup_elem(&tunnel_source, &zero);
	k.tunnel_id = vni;
	k.tunnel_ttl = 64;
	// Receivers take nothing from another address of this host.
	if (own && own->family == family)
		__builtin_memcpy(k.local_ipv6, own->vtep, 16);
	if (family == 4) {
		k.remote_ipv4 = *(const __u32 *)vtep;
		return bpf_skb_set_tunnel_key(skb, &k, sizeof(k), BPF_F_ZERO_CSUM_TX);
	}
	__builtin_memcpy(k.remote_ipv6, vtep, 16);
	return bpf_skb_set_tunnel_key(skb, &k, sizeof(k), BPF_F_TUNINFO_IPV6);
}

// tunnel_to is tunnel_key with a stack of its own, for where there is little left:
// before Linux 6.8 or so all frames of a chain of calls count in steps of 32
// bytes, up to 512.
static __noinline int tunnel_to(struct __sk_buff *skb, __u32 vni, const struct station *s)
{
	return s ? tunnel_key(skb, vni, s->vtep_family, s->vtep) : -1;
}

static __always_inline int to_port(struct __sk_buff *skb, struct pkt *p, __u32 ifindex)
{
	count_rx(ifindex, p->len);
	if (p->from == FROM_HOST) { // on its way out of an interface, where there is no other way in
		skb->mark = MARK;
		return bpf_redirect(ifindex, 0);
	}
	return bpf_redirect_peer(ifindex, 0);
}

// send_back returns an answer to where its question came from.
static __always_inline int send_back(struct __sk_buff *skb, struct pkt *p, __u32 len)
{
	if (p->from == FROM_PORT) {
		count_rx(p->ifindex, len);
		skb->mark = MARK;
	} else if (bpf_skb_vlan_push(skb, bpf_htons(0x8100), p->tag)) {
		return TC_DROP;
	}
	return bpf_redirect(p->ifindex, 0);
}

// tell_sender answers a packet that is too big for a device; 0 = it may go there.
static __noinline int tell_sender(struct __sk_buff *skb, struct pkt *p, __u32 ifindex)
{
	int told = p->from == FROM_PORT ? exceeds(skb, p, ifindex) : 0;
	if (!told)
		return 0;
	dropped(DROP_TOO_BIG);
	return told < 0 ? TC_DROP : send_back(skb, p, told);
}

static __always_inline int to_uplink(struct __sk_buff *skb, struct pkt *p, struct settings *g)
{
	if (p->len > g->uplink_mtu + sizeof(struct eth)) {
		int told = tell_sender(skb, p, g->uplink);
		if (told)
			return told;
	}
	if (!g->uplink || bpf_skb_vlan_push(skb, bpf_htons(0x8100), p->tag))
		return dropped(DROP_UNKNOWN_DEST);
	return bpf_redirect(g->uplink, 0);
}

// to_station sends a frame to s (which may be none), where it was found that it may go.
static __always_inline int to_station(struct __sk_buff *skb, struct pkt *p, struct settings *g, struct station *s)
{
	if (s && s->ifindex && s->ifindex != p->ifindex)
		return to_port(skb, p, s->ifindex);
	if (p->from != FROM_PORT || (s && s->ifindex) || p->way)
		return dropped(DROP_UNKNOWN_DEST);
	if (p->encap == ENCAP_VLAN)
		return to_uplink(skb, p, g);
	if (!s || !s->vtep_family || !g->vxlan)
		return dropped(DROP_UNKNOWN_DEST);
	if (p->len > g->mtu + sizeof(struct eth)) {
		int told = tell_sender(skb, p, g->vxlan);
		if (told)
			return told;
	}
	if (tunnel_to(skb, p->tag, s))
		return dropped(DROP_UNKNOWN_DEST);
	return bpf_redirect(g->vxlan, 0);
}

static __always_inline int reachable(struct pkt *p, struct settings *g, struct station *s)
{
	if (s && s->ifindex && s->ifindex != p->ifindex)
		return 1;
	if (p->from != FROM_PORT || (s && s->ifindex))
		return 0;
	return p->encap == ENCAP_VLAN || s;
}
