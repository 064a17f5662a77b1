// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The programs of a host's data plane. They have the same steps in the same order as
// internal/datapath/reference.
#include "forward.h"
#include "membership.h"
#include "neighbour.h"
#include "probe.h"
#include "queue.h"
#include "underlay.h"

// passes_port_security tells whether a container sends with its own addresses only.
static __noinline int passes_port_security(struct __sk_buff *skb, struct pkt *p, struct port *o)
{
	if (!same(p->eth.src, o->mac, 6))
		return 0;
	link_local(&p->mapped, o->mac);
	// An IPv4-mapped address, by which the maps hold IPv4, is no address of IPv6.
	int own = p->has_sender && ((!p->ip.v6 && same_addr(&p->sender, &o->ip4)) || same_addr(&p->sender, &o->ip6) ||
				    same_addr(&p->sender, &p->mapped));
	if (p->kind == KIND_ARP)
		return same(p->arp.smac, o->mac, 6) && (own || (!p->has_sender && p->arp.op == bpf_htons(1)));
	if (p->kind != KIND_IP || !p->nd)
		return p->kind != KIND_IP || own;
	__u32 off = p->ip.l4 + (p->nd == 133 ? 8 : 24);
	__u8 *b = p->buf;
	switch (p->nd) {
	case 133:
	case 135:
		if (!own && p->has_sender)
			return 0;
		break;
	case 136:
		if (!own || !(same_addr(&p->target, &o->ip6) || same_addr(&p->target, &p->mapped)))
			return 0;
		break;
	default:
		return 0; // no endpoint is a router
	}
	for (int i = 0; i < 6; i++) {
		if (off >= skb->len)
			return 1;
		if (bpf_skb_load_bytes(skb, off, b, 8))
			return skb->len - off < 8 && skb->len <= 60; // padding of a short frame
		if (b[0] == 0 && b[1] == 0)
			return skb->len <= 60;
		if (!b[1] || ((b[0] == 1 || b[0] == 2) && (b[1] != 1 || !same(b + 2, o->mac, 6))))
			return 0;
		off += b[1] * 8;
	}
	return 0;
}

// policy_epoch is read before anything that a verdict depends on.
static __always_inline __u32 policy_epoch(void)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	return g ? *(volatile __u32 *)&g->epoch : 0;
}

// forward_fast sends a packet as the fast path's entry says; rewritten = its headers have
// been rewritten. SLOW_PATH = it does not fit there.
static __always_inline int forward_fast(struct __sk_buff *skb, struct fast_decision *f, struct settings *g, __u32 rewritten)
{
	struct forward_entry *l = f->forward;
	__u32 out = l->to, len = skb->len, changed = needs_rewrite(f);
	note_fin(f);
	if (l->tag) {
		if (!is_within_mtu(skb, g->mtu) || (changed && rewrite_fast(skb, f)))
			return SLOW_PATH;
		if (l->underlay) {
			int ret = encapsulate(skb, l, g);
			if (ret >= 0) {
				count_allowed(f->by, len);
				return ret;
			}
		}
		if (tunnel_key(skb, l->tag, l->vtep_family, l->vtep, l->tos))
			return changed ? dropped(DROP_UNKNOWN_DEST) : SLOW_PATH;
		count_allowed(f->by, len);
		return bpf_redirect(out, 0);
	}
	if (!rewritten && changed && rewrite_fast(skb, f))
		return SLOW_PATH;
	count_allowed(f->by, len);
	count_slot_rx(l->rx_slot, len);
	return l->underlay ? redirect_by_queue(skb, out) : bpf_redirect_peer(out, 0);
}

static __always_inline struct pkt *begin_packet(struct __sk_buff *skb, __u8 from, __u32 epoch)
{
	__u32 zero = 0;
	struct pkt *p = bpf_map_lookup_elem(&scratch, &zero);
	if (!p)
		return 0;
	p->epoch = epoch;
	p->remote_family = p->other_host = 0;
	p->kind = p->nd = p->has_sender = p->multicast = 0;
	p->from = from;
	p->ifindex = skb->ifindex;
	p->len = skb->len;
	p->identity = p->set = p->net = p->domain = 0;
	p->path = PATH_NONE;
	p->reinjected = 0;
	p->routed = p->cross_network = 0;
	p->nat = p->hairpin = p->relayed = p->new_translation = p->error = 0;
	p->to_routed = p->host_socket = p->tos = 0;
	p->client_kind = CLIENT_INTERNAL;
	p->nat_generation = 0;
	p->eth.proto = 0;
	p->ip.f.sport = p->ip.f.dport = 0;
	p->ip.v6 = p->ip.fragment = p->ip.later = p->ip.more = p->ip.tcp_flags = 0;
	p->sk.pad[0] = p->sk.pad[1] = 0;
	p->ip.f.pad[0] = p->ip.f.pad[1] = p->ip.f.pad[2] = 0;
	return p;
}

// router_path tells whether the virtual router handles a frame, and its path then.
static __noinline int router_path(struct __sk_buff *skb, struct pkt *p, struct port *o)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	int joined = o->domain >= JOINED;
	if (!g || (!g->host && !joined && !g->services))
		return PATH_NONE;
	int direct = same(p->eth.dst, g->router, 6);
	// A container's replies to itself go to whichever gateway it has.
	if (g->services && p->kind == KIND_IP && !p->nd && !p->multicast && !is_to_mapped(p) && (direct || is_service_addr(&p->ip.f.dst))) {
		__u32 *service = lookup_vip(p, &p->ip.f.dst);
		if (service) {
			__u32 vip = *service;
			p->vip = vip & ~VIP_SHARED;
			if (!(vip & VIP_SHARED) || is_for_service(skb, p)) {
				p->src_in_subnets = in_own_subnets(p, o, &p->ip.f.src);
				return vip ? PATH_SERVICE : PATH_HAIRPIN;
			}
		}
		p->nat_generation = 0;
	}
	if (!g->host && !joined)
		return PATH_NONE;
	if (p->kind == KIND_IP && !p->nd) {
		if (p->multicast)
			return PATH_NONE;
		return joined && direct ? route_path(p, g, o) : egress_path(p, g, o);
	}
	if (p->kind == KIND_ARP && p->arp.op == bpf_htons(1) && (joined || o->private_ip || o->routed) && o->router_ip && *(__be32 *)p->arp.tip == o->router_ip)
		return PATH_TO_HOST;
	if (p->nd == 135 && (joined || !zero_addr(&o->private6) || o->routed) && !zero_addr(&o->router_ip6)) {
		link_local(&p->mapped, g->router);
		if (same_addr(&p->target, &o->router_ip6) || same_addr(&p->target, &p->mapped))
			return PATH_TO_HOST;
	}
	return direct ? PATH_UNREACHABLE : PATH_NONE;
}

static __always_inline int dispatch(struct __sk_buff *skb, struct pkt *p)
{
	if (p->kind == KIND_ARP || p->nd)
		return neighbour(skb, p);
	if (p->multicast && is_membership(p))
		return membership(skb, p);
	return forward(skb, p);
}

// fast_from_container sends a container's packet by the fast path, if there is an entry. It
// is a function of its own because the slow path has no stack to spare.
static __noinline int fast_from_container(struct __sk_buff *skb, __u32 epoch)
{
	__u32 zero = 0, len = skb->len;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct fast_decision f;
	if (!g || !fast_lookup_frame(&f, skb, g, epoch, 0))
		return SLOW_PATH;
	__u32 slot = f.forward->tx_slot;
	int ret = forward_fast(skb, &f, g, 0);
	if (ret != SLOW_PATH)
		count_slot_tx(slot, len);
	return ret;
}

SEC("tc")
int from_container(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, epoch = policy_epoch();
	__u32 len = skb->len;
	int ret = fast_from_container(skb, epoch);
	if (ret != SLOW_PATH)
		return ret;
	struct pkt *p = begin_packet(skb, FROM_PORT, epoch);
	struct port *o = bpf_map_lookup_elem(&ports, &ifindex);
	if (!o || !p)
		return dropped(DROP_NO_PORT);
	p->slot = o->slot;
	p->tos = o->tos;
	if (!is_reinjected(skb, p))
		count_slot_tx(o->slot, len);
	p->net = o->net;
	p->domain = o->domain;
	p->encap = o->encap;
	p->tag = o->tag;
	p->identity = o->identity;
	p->set = o->set;
	if (skb->vlan_present)
		return dropped(DROP_NOT_IP);
	int bad = read_frame(skb, p);
	if (bad)
		return dropped(bad);
	if (!passes_port_security(skb, p, o))
		return dropped(DROP_SPOOF);
	p->path = router_path(skb, p, o);
	if (p->path == PATH_HAIRPIN && fix_link_local_source(skb, p, o))
		return dropped(DROP_INVALID);
	return dispatch(skb, p);
}

// is_routable tells whether frames of this kind are routed.
static __always_inline int is_routable(const struct pkt *p)
{
	return p->kind == KIND_IP && !p->nd && !p->multicast;
}

// is_from_its_host tells whether the MAC and address of a frame from the tunnel are of one
// endpoint, and that endpoint's host sent the frame. Duplicate address detection and router
// solicitations have no address yet.
static __noinline int is_from_its_host(struct pkt *p)
{
	__u32 net = p->net;
	if (p->has_sender || (p->kind != KIND_ARP && !p->nd)) {
		struct endpoint *h = endpoint_at(p, &p->sender);
		if (!h || h->ifindex || !h->identity || !same(h->mac, p->eth.src, 6))
			return 0;
		p->cross_network = h->net != net;
		if (p->cross_network && !is_routable(p))
			return 0;
		net = h->net;
	}
	struct station *s = station_on(p, net, p->eth.src);
	return s && !s->ifindex && is_from_vtep(p, s->vtep_family, s->vtep);
}

// read_tunnel_frame reads a frame from the tunnel; 0 = fine, otherwise the drop reason. The
// sender is checked afterwards.
static __always_inline int read_tunnel_frame(struct __sk_buff *skb, struct pkt *p, const struct segment *at, __u32 tag)
{
	p->net = at->net;
	p->domain = at->domain;
	p->encap = ENCAP_VXLAN;
	p->tag = tag;
	if (skb->vlan_present)
		return DROP_NOT_IP;
	return read_frame(skb, p);
}

// fast_from_tunnel is fast_from_container for frames from the tunnel.
static __noinline int fast_from_tunnel(struct __sk_buff *skb, struct pkt *p, __u32 tag)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct fast_decision f;
	if (!g || !fast_lookup_frame(&f, skb, g, p->epoch, tag) || f.forward->tag || !is_from_vtep(p, f.forward->vtep_family, f.forward->vtep))
		return SLOW_PATH;
	return forward_fast(skb, &f, g, 0);
}

SEC("tc")
int from_tunnel(struct __sk_buff *skb)
{
	__u32 epoch = policy_epoch();
	struct pkt *p = begin_packet(skb, FROM_TUNNEL, epoch);
	struct tag_key t = { .encap = ENCAP_VXLAN };
	if (!p)
		return dropped(DROP_NETWORK);
	struct bpf_tunnel_key *k = &p->key;
	int six = bpf_skb_get_tunnel_key(skb, k, sizeof(*k), 0);
	if (six && bpf_skb_get_tunnel_key(skb, k, sizeof(*k), BPF_F_TUNINFO_IPV6)) {
		if (!is_reinjected(skb, p))
			return dropped(DROP_NETWORK);
		t.tag = p->tag;
	} else {
		t.tag = k->tunnel_id;
		p->remote_family = six ? 6 : 4;
	}
	int ret = fast_from_tunnel(skb, p, t.tag);
	if (ret != SLOW_PATH)
		return ret;
	struct segment *at = bpf_map_lookup_elem(&tags, &t);
	if (!at)
		return t.tag == PROBE_VNI ? probe(skb, p) : dropped(DROP_NETWORK);
	int bad = read_tunnel_frame(skb, p, at, t.tag);
	if (!bad)
		bad = is_from_router(p) ? accept_external(p) : is_from_its_host(p) ? 0 : DROP_UNKNOWN_SOURCE;
	return bad ? dropped(bad) : dispatch(skb, p);
}

// decap_and_forward decapsulates an IPv4 packet without an entry of the fast path and handles
// it as from_tunnel does, if a host of the same link sent it. The host's stack checks the
// sources of all others. Frames of another host's router go to the VXLAN device.
static __always_inline int decap_and_forward(struct __sk_buff *skb, struct settings *g, __u32 epoch)
{
	struct tunnel_header *t = tunnel_header_of(skb, g);
	if (!t || skb->gso_size || !g->vxlan || (t->src ^ g->vtep) & g->vtep_mask || !has_right_outer_checksum(t))
		return TC_NEXT;
	struct eth *e = (void *)t + TUNNEL_BYTES;
	if (e->proto != bpf_htons(ETH_IP) || e->dst[0] & 1 || same(e->src, g->router, 6))
		return TC_NEXT;
	struct tag_key tag = { .encap = ENCAP_VXLAN, .tag = bpf_ntohl(t->vni) >> 8 };
	struct segment *at = bpf_map_lookup_elem(&tags, &tag);
	struct pkt *p = begin_packet(skb, FROM_TUNNEL, epoch);
	if (!at || !p)
		return TC_NEXT;
	p->remote_family = 4;
	__builtin_memset(p->key.remote_ipv6, 0, sizeof(p->key.remote_ipv6));
	p->key.remote_ipv4 = bpf_ntohl(t->src);
	__builtin_memcpy(p->buf, e, 12);
	if (decapsulate(skb))
		return TC_NEXT;
	if (bpf_skb_store_bytes(skb, 0, p->buf, 12, 0))
		return dropped(DROP_INVALID);
	p->ifindex = g->vxlan;
	p->len = skb->len;
	int bad = read_tunnel_frame(skb, p, at, tag.tag);
	if (!bad && !is_from_its_host(p))
		bad = DROP_UNKNOWN_SOURCE;
	return bad ? dropped(bad) : forward(skb, p);
}

// fast_from_underlay decapsulates a packet that has an entry of the fast path.
static __noinline int fast_from_underlay(struct __sk_buff *skb, struct settings *g, __u32 epoch)
{
	struct fast_decision f;
	if (!g || !fast_lookup_inner(&f, skb, g, epoch))
		return SLOW_PATH;
	if (f.forward->tag || decapsulate(skb))
		return TC_NEXT;
	if (f.nat ? rewrite_fast_nat(skb, f.nat) : bpf_skb_store_bytes(skb, 0, f.forward->macs, sizeof(f.forward->macs), 0))
		return dropped(DROP_INVALID);
	return forward_fast(skb, &f, g, 1);
}

SEC("tc")
int from_underlay(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	if (!g || !g->underlay)
		return TC_NEXT;
	__u32 epoch = *(volatile __u32 *)&g->epoch;
	int ret = fast_from_underlay(skb, g, epoch);
	return ret == SLOW_PATH ? decap_and_forward(skb, g, epoch) : ret;
}

// is_valid_from_uplink tells whether a frame from the physical network may have its source:
// no endpoint of this host, and of another network of the domain only an endpoint with its
// MAC.
static __noinline int is_valid_from_uplink(struct pkt *p)
{
	struct endpoint *h = endpoint_at(p, &p->sender);
	if (!h) {
		__u32 net = p->domain >= JOINED && !is_link_local(&p->sender) ? subnet_at(p, &p->sender) : 0;
		return !net || net == p->net;
	}
	if (h->ifindex)
		return 0;
	p->cross_network = h->net != p->net;
	return !p->cross_network || (is_routable(p) && h->identity && same(h->mac, p->eth.src, 6));
}

SEC("tc")
int from_uplink(struct __sk_buff *skb)
{
	struct tag_key t = { .encap = ENCAP_VLAN };
	if (!skb->vlan_present)
		return TC_NEXT;
	t.tag = skb->vlan_tci & 0xfff;
	struct segment *at = bpf_map_lookup_elem(&tags, &t);
	if (!at)
		return TC_NEXT; // not ours
	struct pkt *p = begin_packet(skb, FROM_UPLINK, policy_epoch());
	if (!p || bpf_skb_vlan_pop(skb))
		return dropped(DROP_NETWORK);
	is_reinjected(skb, p);
	p->net = at->net;
	p->domain = at->domain;
	p->encap = ENCAP_VLAN;
	p->tag = t.tag;
	p->len = skb->len;
	if (skb->vlan_present)
		return dropped(DROP_NOT_IP);
	int bad = read_frame(skb, p);
	if (bad)
		return dropped(bad);
	if (!is_valid_from_uplink(p))
		return dropped(DROP_SPOOF);
	struct station *s = station_at(p, p->eth.src);
	if (s && s->ifindex)
		return dropped(DROP_SPOOF);
	return dispatch(skb, p);
}

static __always_inline void set_destination(struct pkt *p, const struct port *o)
{
	p->net = o->net;
	p->domain = o->domain;
	p->encap = o->encap;
	p->tag = o->tag;
	p->path = PATH_FROM_HOST;
}

// from_host6 delivers an IPv6 packet of the host to its endpoint; 0 = fine, otherwise the
// drop reason.
static __noinline int from_host6(struct __sk_buff *skb, struct pkt *p, struct settings *g)
{
	int bad = read_frame(skb, p);
	if (bad)
		return bad;
	if (!g || p->kind != KIND_IP || !is_private6(g, &p->ip.f.dst))
		return DROP_UNKNOWN_DEST;
	__be32 to = last4(&p->ip.f.dst);
	__u32 *ifindex = bpf_map_lookup_elem(&privates, &to);
	if (!ifindex)
		return DROP_UNKNOWN_DEST;
	struct port *o = bpf_map_lookup_elem(&ports, ifindex);
	if (!o || !same_addr(&o->private6, &p->ip.f.dst))
		return DROP_NO_PORT;
	set_destination(p, o);
	if (p->nd || is_link_local(&p->ip.f.src) || in_own_subnets(p, o, &p->ip.f.src) ||
	    (p->domain >= JOINED && subnet_at(p, &p->ip.f.src)))
		return DROP_SPOOF; // no endpoint of the domain comes through the host
	return dnat_from_host6(skb, p, g, o) ? DROP_INVALID : read_frame(skb, p);
}

// from_host handles what the host's stack sends by contivh0: to host-local NAT addresses,
// exposed services and routed networks.
SEC("tc")
int from_host(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct pkt *p = begin_packet(skb, FROM_HOST, policy_epoch());
	if (!g || !p)
		return dropped(DROP_NETWORK);
	__u32 own = skb->mark == HOST_MARK;
	if (own)
		skb->mark = 0;
	if ((g->services & SERVICES_EXPOSED || g->routed_networks) && read_destination(skb, p)) {
		struct exposed *x = g->services & SERVICES_EXPOSED ? lookup_exposed(p, &p->mapped, 0, 0) : 0;
		struct segment *n = x || !g->routed_networks ? 0 : routed_network_at(p, &p->mapped);
		if (x || n) {
			int why = x ? accept_exposed(skb, p, x) : accept_to_routed(skb, p, n, own);
			if (why != NOT_FOR_SERVICE)
				return why ? dropped(why) : forward(skb, p);
		} else if (is_relay_addr(g, &p->mapped, skb->protocol == bpf_htons(ETH_IP6))) {
			int why = accept_relayed(skb, p);
			return why ? dropped(why) : forward(skb, p);
		}
	}
	p->host_socket = own;
	if (!skb->vlan_present && skb->protocol == bpf_htons(ETH_IP6)) {
		int why = from_host6(skb, p, g);
		return why ? dropped(why) : forward(skb, p);
	}
	if (skb->vlan_present || skb->protocol != bpf_htons(ETH_IP) || bpf_skb_load_bytes(skb, 14, &p->h4, sizeof(p->h4)))
		return dropped(DROP_NOT_IP);
	__be32 to = *(__be32 *)p->h4.dst, by = *(__be32 *)p->h4.src;
	__u32 *ifindex = bpf_map_lookup_elem(&privates, &to);
	if (!ifindex)
		return dropped(DROP_UNKNOWN_DEST);
	struct port *o = bpf_map_lookup_elem(&ports, ifindex);
	if (!o || o->private_ip != to)
		return dropped(DROP_NO_PORT);
	set_destination(p, o);
	map_ipv4(&p->mapped, p->h4.src);
	if ((by & o->mask) == o->subnet || (p->domain >= JOINED && subnet_at(p, &p->mapped)))
		return dropped(DROP_SPOOF); // no endpoint of the domain comes through the host
	if (dnat_from_host(skb, p, g, o))
		return dropped(DROP_INVALID);
	int bad = read_frame(skb, p);
	if (bad)
		return dropped(bad);
	return forward(skb, p);
}

// to_container drops what the host's stack sends to a port: only frames of the programs
// reach a container.
SEC("tc")
int to_container(struct __sk_buff *skb)
{
	if (skb->mark != MARK)
		return TC_DROP;
	skb->mark = 0;
	return TC_NEXT;
}

char _license[] SEC("license") = "Dual MIT/GPL";
