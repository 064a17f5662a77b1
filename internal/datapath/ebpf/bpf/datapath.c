// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The data plane of one host: its programs. They do what internal/datapath/reference says, in its
// order.
#include "forward.h"
#include "membership.h"
#include "neighbour.h"
#include "probe.h"
#include "queue.h"
#include "underlay.h"

// honest tells whether a container sends in its own name only.
static __noinline int honest(struct __sk_buff *skb, struct pkt *p, struct port *o)
{
	if (!same(p->eth.src, o->mac, 6))
		return 0;
	link_local(&p->mapped, o->mac);
	// An IPv4-mapped address, as which IPv4 is kept here, is no address in IPv6.
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

// policy_epoch is read before anything that a verdict rests on.
static __always_inline __u32 policy_epoch(void)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	return g ? *(volatile __u32 *)&g->epoch : 0;
}

// short_way sends a packet where those before it went, if moved is not set as what its
// next station gets; LONG_WAY = it does not fit there.
static __always_inline int short_way(struct __sk_buff *skb, struct fast *f, struct settings *g, __u32 moved)
{
	struct lane *l = f->lane;
	__u32 out = l->to, len = skb->len, changed = changes(f);
	note_end(f);
	if (l->tag) {
		if (!fits(skb, g->mtu) || (changed && change(skb, f)))
			return LONG_WAY;
		if (l->underlay) {
			int way = wrap(skb, l, g);
			if (way >= 0) {
				count_allowed(f->by, len);
				return way;
			}
		}
		if (tunnel_key(skb, l->tag, l->vtep_family, l->vtep, l->tos))
			return changed ? dropped(DROP_UNKNOWN_DEST) : LONG_WAY;
		count_allowed(f->by, len);
		return bpf_redirect(out, 0);
	}
	if (!moved && changed && change(skb, f))
		return LONG_WAY;
	count_allowed(f->by, len);
	count_slot_rx(l->rx_slot, len);
	return l->underlay ? by_queue(skb, out) : bpf_redirect_peer(out, 0);
}

static __always_inline struct pkt *begin(struct __sk_buff *skb, __u8 from, __u32 epoch)
{
	__u32 zero = 0;
	struct pkt *p = bpf_map_lookup_elem(&scratch, &zero);
	if (!p)
		return 0;
	p->epoch = epoch;
	p->remote_family = p->by = 0;
	p->kind = p->nd = p->has_sender = p->multicast = 0;
	p->from = from;
	p->ifindex = skb->ifindex;
	p->len = skb->len;
	p->identity = p->set = p->net = p->domain = 0;
	p->way = WAY_NONE;
	p->again = 0;
	p->routed = p->across = 0;
	p->nat = p->itself = p->begun = p->error = 0;
	p->native = p->own = p->tos = 0;
	p->asks = ASKS_INSIDE;
	p->nat_turns = 0;
	p->eth.proto = 0;
	p->ip.f.sport = p->ip.f.dport = 0;
	p->ip.v6 = p->ip.fragment = p->ip.later = p->ip.more = p->ip.tcp_flags = 0;
	p->sk.pad[0] = p->sk.pad[1] = 0;
	p->ip.f.pad[0] = p->ip.f.pad[1] = p->ip.f.pad[2] = 0;
	return p;
}

// router_takes tells what of an honest container's frame is the virtual router's.
static __noinline int router_takes(struct __sk_buff *skb, struct pkt *p, struct port *o)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	int joined = o->domain >= JOINED;
	if (!g || (!g->host && !joined && !g->services))
		return WAY_NONE;
	int direct = same(p->eth.dst, g->router, 6);
	// What a container answers to itself goes to whichever gateway it has.
	if (g->services && p->kind == KIND_IP && !p->nd && !p->multicast && !to_mapped(p) && (direct || is_service_addr(&p->ip.f.dst))) {
		__u32 *service = vip_at(p, &p->ip.f.dst);
		if (service) {
			__u32 vip = *service;
			p->vip = vip & ~VIP_SHARED;
			if (!(vip & VIP_SHARED) || faced(skb, p)) {
				p->at_home = on_subnet(p, o, &p->ip.f.src);
				return vip ? WAY_SERVICE : WAY_ITSELF;
			}
		}
		p->nat_turns = 0;
	}
	if (!g->host && !joined)
		return WAY_NONE;
	if (p->kind == KIND_IP && !p->nd) {
		if (p->multicast)
			return WAY_NONE;
		return joined && direct ? route_of(p, g, o) : way_of(p, g, o);
	}
	if (p->kind == KIND_ARP && p->arp.op == bpf_htons(1) && (joined || o->private_ip || o->native) && o->router_ip && *(__be32 *)p->arp.tip == o->router_ip)
		return WAY_OUT;
	if (p->nd == 135 && (joined || !zero_addr(&o->private6) || o->native) && !zero_addr(&o->router_ip6)) {
		link_local(&p->mapped, g->router);
		if (same_addr(&p->target, &o->router_ip6) || same_addr(&p->target, &p->mapped))
			return WAY_OUT;
	}
	return direct ? WAY_NOWHERE : WAY_NONE;
}

static __always_inline int decide(struct __sk_buff *skb, struct pkt *p)
{
	if (p->kind == KIND_ARP || p->nd)
		return neighbour(skb, p);
	if (p->multicast && is_membership(p))
		return membership(skb, p);
	return forward(skb, p);
}

// leaves_short sends a container's packet its short way, if it has one. It is a function
// for its stack's sake, of which the long way has none to spare.
static __noinline int leaves_short(struct __sk_buff *skb, __u32 epoch)
{
	__u32 zero = 0, len = skb->len;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct fast f;
	if (!g || !remembered_frame(&f, skb, g, epoch, 0))
		return LONG_WAY;
	__u32 slot = f.lane->tx_slot;
	int way = short_way(skb, &f, g, 0);
	if (way != LONG_WAY)
		count_slot_tx(slot, len);
	return way;
}

SEC("tc")
int from_container(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, epoch = policy_epoch();
	__u32 len = skb->len;
	int way = leaves_short(skb, epoch);
	if (way != LONG_WAY)
		return way;
	struct pkt *p = begin(skb, FROM_PORT, epoch);
	struct port *o = bpf_map_lookup_elem(&ports, &ifindex);
	if (!o || !p)
		return dropped(DROP_NO_PORT);
	p->slot = o->slot;
	p->tos = o->tos;
	if (!comes_again(skb, p))
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
	if (!honest(skb, p, o))
		return dropped(DROP_SPOOF);
	p->way = router_takes(skb, p, o);
	if (p->way == WAY_ITSELF && by_link_local(skb, p, o))
		return dropped(DROP_INVALID);
	return decide(skb, p);
}

// may_cross tells whether a frame is of a kind that is routed.
static __always_inline int may_cross(const struct pkt *p)
{
	return p->kind == KIND_IP && !p->nd && !p->multicast;
}

// of_its_host tells whether a frame out of the tunnel is in the name of an
// endpoint, by its MAC and address, and came from that endpoint's host. What
// looks for a duplicate or a router has no address yet.
static __noinline int of_its_host(struct pkt *p)
{
	__u32 net = p->net;
	if (p->has_sender || (p->kind != KIND_ARP && !p->nd)) {
		struct host *h = host_at(p, &p->sender);
		if (!h || h->ifindex || !h->identity || !same(h->mac, p->eth.src, 6))
			return 0;
		p->across = h->net != net;
		if (p->across && !may_cross(p))
			return 0;
		net = h->net;
	}
	struct station *s = station_on(p, net, p->eth.src);
	return s && !s->ifindex && came_from(p, s->vtep_family, s->vtep);
}

// comes_in reads a frame out of the tunnel; 0 = fine, otherwise why it is dropped. Who
// sent it is still to be asked.
static __always_inline int comes_in(struct __sk_buff *skb, struct pkt *p, const struct segment *at, __u32 tag)
{
	p->net = at->net;
	p->domain = at->domain;
	p->encap = ENCAP_VXLAN;
	p->tag = tag;
	if (skb->vlan_present)
		return DROP_NOT_IP;
	return read_frame(skb, p);
}

// comes_short is leaves_short for what comes out of the tunnel.
static __noinline int comes_short(struct __sk_buff *skb, struct pkt *p, __u32 tag)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct fast f;
	if (!g || !remembered_frame(&f, skb, g, p->epoch, tag) || f.lane->tag || !came_from(p, f.lane->vtep_family, f.lane->vtep))
		return LONG_WAY;
	return short_way(skb, &f, g, 0);
}

SEC("tc")
int from_tunnel(struct __sk_buff *skb)
{
	__u32 epoch = policy_epoch();
	struct pkt *p = begin(skb, FROM_TUNNEL, epoch);
	struct tag_key t = { .encap = ENCAP_VXLAN };
	if (!p)
		return dropped(DROP_NETWORK);
	struct bpf_tunnel_key *k = &p->key;
	int six = bpf_skb_get_tunnel_key(skb, k, sizeof(*k), 0);
	if (six && bpf_skb_get_tunnel_key(skb, k, sizeof(*k), BPF_F_TUNINFO_IPV6)) {
		if (!comes_again(skb, p))
			return dropped(DROP_NETWORK);
		t.tag = p->tag;
	} else {
		t.tag = k->tunnel_id;
		p->remote_family = six ? 6 : 4;
	}
	int way = comes_short(skb, p, t.tag);
	if (way != LONG_WAY)
		return way;
	struct segment *at = bpf_map_lookup_elem(&tags, &t);
	if (!at)
		return t.tag == PROBE_VNI ? probe(skb, p) : dropped(DROP_NETWORK);
	int bad = comes_in(skb, p, at, t.tag);
	if (!bad)
		bad = from_router(p) ? takes_outside(p) : of_its_host(p) ? 0 : DROP_UNKNOWN_SOURCE;
	return bad ? dropped(bad) : decide(skb, p);
}

// enters takes a packet of IPv4 that has no short way out of its tunnel packet and
// judges it as from_tunnel does, if a host of the same link sent it: what others send
// is for the host's stack to believe. What a host's router sends goes by the device.
static __always_inline int enters(struct __sk_buff *skb, struct settings *g, __u32 epoch)
{
	struct tunnel_header *t = tunnelled(skb, g);
	if (!t || skb->gso_size || !g->vxlan || (t->src ^ g->vtep) & g->vtep_mask || !outer_summed(t))
		return TC_NEXT;
	struct eth *e = (void *)t + TUNNEL_BYTES;
	if (e->proto != bpf_htons(ETH_IP) || e->dst[0] & 1 || same(e->src, g->router, 6))
		return TC_NEXT;
	struct tag_key tag = { .encap = ENCAP_VXLAN, .tag = bpf_ntohl(t->vni) >> 8 };
	struct segment *at = bpf_map_lookup_elem(&tags, &tag);
	struct pkt *p = begin(skb, FROM_TUNNEL, epoch);
	if (!at || !p)
		return TC_NEXT;
	p->remote_family = 4;
	__builtin_memset(p->key.remote_ipv6, 0, sizeof(p->key.remote_ipv6));
	p->key.remote_ipv4 = bpf_ntohl(t->src);
	__builtin_memcpy(p->buf, e, 12);
	if (unwrap(skb))
		return TC_NEXT;
	if (bpf_skb_store_bytes(skb, 0, p->buf, 12, 0))
		return dropped(DROP_INVALID);
	p->ifindex = g->vxlan;
	p->len = skb->len;
	int bad = comes_in(skb, p, at, tag.tag);
	if (!bad && !of_its_host(p))
		bad = DROP_UNKNOWN_SOURCE;
	return bad ? dropped(bad) : forward(skb, p);
}

// enters_short takes a packet that has a short way out of its tunnel packet.
static __noinline int enters_short(struct __sk_buff *skb, struct settings *g, __u32 epoch)
{
	struct fast f;
	if (!g || !inside(&f, skb, g, epoch))
		return LONG_WAY;
	if (f.lane->tag || unwrap(skb))
		return TC_NEXT;
	if (f.served ? serve_on(skb, f.served) : bpf_skb_store_bytes(skb, 0, f.lane->macs, sizeof(f.lane->macs), 0))
		return dropped(DROP_INVALID);
	return short_way(skb, &f, g, 1);
}

SEC("tc")
int from_underlay(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	if (!g || !g->underlay)
		return TC_NEXT;
	__u32 epoch = *(volatile __u32 *)&g->epoch;
	int way = enters_short(skb, g, epoch);
	return way == LONG_WAY ? enters(skb, g, epoch) : way;
}

// of_uplink tells whether a frame from the physical network may be in the name of
// its sender: nobody of this host, and of another network of the domain an endpoint
// only, by its MAC.
static __noinline int of_uplink(struct pkt *p)
{
	struct host *h = host_at(p, &p->sender);
	if (!h) {
		__u32 net = p->domain >= JOINED && !is_link_local(&p->sender) ? subnet_at(p, &p->sender) : 0;
		return !net || net == p->net;
	}
	if (h->ifindex)
		return 0;
	p->across = h->net != p->net;
	return !p->across || (may_cross(p) && h->identity && same(h->mac, p->eth.src, 6));
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
	struct pkt *p = begin(skb, FROM_UPLINK, policy_epoch());
	if (!p || bpf_skb_vlan_pop(skb))
		return dropped(DROP_NETWORK);
	comes_again(skb, p);
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
	if (!of_uplink(p))
		return dropped(DROP_SPOOF);
	struct station *s = station_at(p, p->eth.src);
	if (s && s->ifindex)
		return dropped(DROP_SPOOF);
	return decide(skb, p);
}

static __always_inline void comes_to(struct pkt *p, const struct port *o)
{
	p->net = o->net;
	p->domain = o->domain;
	p->encap = o->encap;
	p->tag = o->tag;
	p->way = WAY_IN;
}

// from_host6 makes a packet of IPv6 from the host its endpoint's; 0 = it is, or why
// it is dropped.
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
	comes_to(p, o);
	if (p->nd || is_link_local(&p->ip.f.src) || on_subnet(p, o, &p->ip.f.src) ||
	    (p->domain >= JOINED && subnet_at(p, &p->ip.f.src)))
		return DROP_SPOOF; // nobody of the domain comes this way
	return inwards6(skb, p, g, o) ? DROP_INVALID : read_frame(skb, p);
}

// from_host takes what the host's own stack sends to private addresses, to exposed
// services and to native networks, on its way out of the host's side.
SEC("tc")
int from_host(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct pkt *p = begin(skb, FROM_HOST, policy_epoch());
	if (!g || !p)
		return dropped(DROP_NETWORK);
	__u32 own = skb->mark == HOST_MARK;
	if (own)
		skb->mark = 0;
	if ((g->services & SERVICES_EXPOSED || g->natives) && goes_to(skb, p)) {
		struct exposed *x = g->services & SERVICES_EXPOSED ? leads_outside(p, &p->mapped, 0, 0) : 0;
		struct segment *n = x || !g->natives ? 0 : native_at(p, &p->mapped);
		if (x || n) {
			int why = x ? serves_outside(skb, p, x) : from_stack(skb, p, n, own);
			if (why != NOT_SERVED)
				return why ? dropped(why) : forward(skb, p);
		}
	}
	p->own = own;
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
	comes_to(p, o);
	map4(&p->mapped, p->h4.src);
	if ((by & o->mask) == o->subnet || (p->domain >= JOINED && subnet_at(p, &p->mapped)))
		return dropped(DROP_SPOOF); // nobody of the domain comes this way
	if (inwards(skb, p, g, o))
		return dropped(DROP_INVALID);
	int bad = read_frame(skb, p);
	if (bad)
		return dropped(bad);
	return forward(skb, p);
}

// to_container keeps what the host's own stack sends out of a port from
// reaching the container: only what the programs sent gets there.
SEC("tc")
int to_container(struct __sk_buff *skb)
{
	if (skb->mark != MARK)
		return TC_DROP;
	skb->mark = 0;
	return TC_NEXT;
}

char _license[] SEC("license") = "Dual MIT/GPL";
