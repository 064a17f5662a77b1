// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The data plane of one host. It does what driver.Fake says, in its order.
#include "conntrack.h"
#include "hostside.h"
#include "monitor.h"
#include "mtu.h"
#include "policy.h"
#include "underlay.h"

#define MARK 0xc0ffee76 // of frames that the programs send out of a port

static __noinline int dropped(__u32 reason)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&drops, &reason);
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	if (n)
		*n += 1;
	if (g && g->monitor & MONITOR_DROPS) {
		struct pkt *p = bpf_map_lookup_elem(&scratch, &zero);
		if (p)
			monitor(p, reason);
	}
	return TC_DROP;
}

// hit_all counts where all processors' counts of a rule are.
static __noinline int hit_all(__u64 *id, struct counter *n)
{
	if (!id || !n)
		return 0;
	struct counter *c = bpf_map_lookup_elem(&hits, id);
	if (c) {
		c->packets += n->packets;
		c->bytes += n->bytes;
	} else if (!bpf_map_update_elem(&hits, id, n, BPF_NOEXIST)) {
		made(MADE_HIT);
	}
	return 0;
}

static __always_inline struct tally *tally(__u64 id)
{
	__u32 i = id & (TALLIES - 1);
	return bpf_map_lookup_elem(&tallies, &i);
}

// hit_again counts for a rule that hit has counted for a moment ago.
static __always_inline void hit_again(__u64 *id, __u64 bytes)
{
	struct tally *t = tally(*id);
	if (t && t->id == *id) {
		t->n.packets++;
		t->n.bytes += bytes;
	} else {
		struct counter one = { 1, bytes };
		hit_all(id, &one);
	}
}

// hit counts for a rule, which takes its place among the tallies if nobody has
// it or its owner is idle.
static __noinline int hit(__u64 *id, __u64 bytes)
{
	if (!id)
		return 0;
	__u64 now = bpf_jiffies64();
	struct tally *t = tally(*id);
	if (t && t->id != *id && (!t->id || (__s64)(now - t->seen) > IDLE_TICKS)) {
		if (t->id)
			hit_all(&t->id, &t->n);
		t->id = *id;
		t->n.packets = t->n.bytes = 0;
	}
	if (t && t->id == *id)
		t->seen = now;
	hit_again(id, bytes);
	return 0;
}

static __always_inline void count_slot_rx(__u32 slot, __u64 bytes)
{
	struct port_counter *c = bpf_map_lookup_elem(&port_counters, &slot);
	if (c) {
		c->rx.packets++;
		c->rx.bytes += bytes;
	}
}

static __always_inline void count_slot_tx(__u32 slot, __u64 bytes)
{
	struct port_counter *c = bpf_map_lookup_elem(&port_counters, &slot);
	if (c) {
		c->tx.packets++;
		c->tx.bytes += bytes;
	}
}

static __always_inline void count_rx(__u32 ifindex, __u64 bytes)
{
	struct port *o = bpf_map_lookup_elem(&ports, &ifindex);
	if (o)
		count_slot_rx(o->slot, bytes);
}

static __always_inline struct host *host_at(struct pkt *p, const struct addr *a)
{
	p->hk.net = p->net;
	p->hk.ip = *a;
	return bpf_map_lookup_elem(&hosts, &p->hk);
}

static __always_inline struct station *station_at(struct pkt *p, const __u8 *mac)
{
	p->sk.net = p->net;
	__builtin_memcpy(p->sk.mac, mac, 6);
	return bpf_map_lookup_elem(&stations, &p->sk);
}

static __always_inline int tunnel_key(struct __sk_buff *skb, __u32 vni, __u32 family, const __u8 *vtep)
{
	struct bpf_tunnel_key k = {};
	k.tunnel_id = vni;
	k.tunnel_ttl = 64;
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

struct flooding {
	struct __sk_buff *skb;
	struct pkt *p;
	__u32 vxlan, kind, judged;
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
		if (f->vxlan && !tunnel_to(skb, p->tag, s) && !bpf_clone_redirect(skb, f->vxlan, 0))
			p->admitted++;
		return 0;
	}
	if (s->ifindex == p->ifindex)
		return 0;
	if (f->judged) {
		int pass = judge(p, s->set, DIR_IN);
		if (p->rule)
			hit(&p->rule, p->len);
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

// flood sends a frame to all of its network, to local ports only when it came
// from outside.
static __noinline int flood(struct __sk_buff *skb, struct pkt *p, __u32 judged)
{
	__u32 zero = 0, mark = skb->mark, net = p->net;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct network *n = bpf_map_lookup_elem(&networks, &net);
	struct flooding f = { .skb = skb, .p = p, .judged = judged };
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

static __noinline int answer_arp(struct __sk_buff *skb, struct pkt *p, const __u8 *mac)
{
	__u8 ask[4];
	__builtin_memcpy(ask, p->arp.tip, 4);
	__builtin_memcpy(p->eth.dst, p->eth.src, 6);
	__builtin_memcpy(p->eth.src, mac, 6);
	p->arp.op = bpf_htons(2);
	__builtin_memcpy(p->arp.tmac, p->arp.smac, 6);
	__builtin_memcpy(p->arp.tip, p->arp.sip, 4);
	__builtin_memcpy(p->arp.smac, mac, 6);
	__builtin_memcpy(p->arp.sip, ask, 4);
	if (bpf_skb_store_bytes(skb, 0, &p->eth, 14, 0) || bpf_skb_store_bytes(skb, 14, &p->arp, sizeof(p->arp), 0))
		return dropped(DROP_INVALID);
	return send_back(skb, p, p->len);
}

struct advert {
	struct eth eth;
	struct ip6 ip;
	__u8 type, code;
	__be16 csum;
	__be32 flags;
	struct addr target;
	__u8 option, units, mac[6];
} __attribute__((packed));

static __noinline int answer_nd(struct __sk_buff *skb, struct pkt *p, struct host *s)
{
	struct advert a = {};
	__u32 pseudo[2] = { bpf_htonl(32), bpf_htonl(P_ICMP6) };
	__builtin_memcpy(a.eth.dst, p->eth.src, 6);
	__builtin_memcpy(a.eth.src, s->mac, 6);
	a.eth.proto = bpf_htons(ETH_IP6);
	a.ip.vtcfl = bpf_htonl(0x60000000);
	a.ip.len = bpf_htons(32);
	a.ip.next = P_ICMP6;
	a.ip.hops = 255;
	a.ip.src = p->target;
	a.ip.dst = p->sender;
	a.flags = bpf_htonl(0x60000000); // solicited, override
	if (!p->has_sender) { // duplicate address detection: to all nodes
		a.ip.dst.b[0] = 0xff;
		a.ip.dst.b[1] = 2;
		a.ip.dst.b[15] = 1;
		a.flags = bpf_htonl(0x20000000);
	}
	a.type = 136;
	a.target = p->target;
	a.option = 2;
	a.units = 1;
	__builtin_memcpy(a.mac, s->mac, 6);
	__builtin_memcpy(p->buf, &a.type, 32);
	__s64 sum = bpf_csum_diff(0, 0, pseudo, 8, 0);
	p->h6 = a.ip;
	sum = bpf_csum_diff(0, 0, (__be32 *)&p->h6.src, 32, sum);
	sum = bpf_csum_diff(0, 0, (__be32 *)p->buf, 32, sum);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	a.csum = ~sum;
	if (bpf_skb_change_tail(skb, sizeof(a), 0) || bpf_skb_store_bytes(skb, 0, &a, sizeof(a), BPF_F_INVALIDATE_HASH))
		return dropped(DROP_INVALID);
	return send_back(skb, p, sizeof(a));
}

// neighbour handles ARP and neighbour discovery, which no policy touches.
static __noinline int neighbour(struct __sk_buff *skb, struct pkt *p)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	int asks = p->nd == 135 || (p->kind == KIND_ARP && p->arp.op == bpf_htons(1));
	if (!g)
		return dropped(DROP_NETWORK);
	if (p->way == WAY_OUT) // it asks for the router
		return answer_arp(skb, p, g->router);
	if (!p->multicast && (!asks || g->flood))
		return to_station(skb, p, g, station_at(p, p->eth.dst));
	if (g->flood)
		return flood(skb, p, 0);
	if (asks) {
		if (p->kind == KIND_ARP)
			map4(&p->mapped, p->arp.tip);
		else
			p->mapped = p->target;
		struct host *s = host_at(p, &p->mapped);
		if (s) {
			int answers = p->from == FROM_PORT ? !same(s->mac, p->eth.src, 6) : p->from == FROM_UPLINK && s->ifindex;
			if (answers)
				return p->kind == KIND_ARP ? answer_arp(skb, p, s->mac) : answer_nd(skb, p, s);
		}
		if (!p->multicast) {
			struct station *st = station_at(p, p->eth.dst);
			if (st)
				return to_station(skb, p, g, st);
		}
	}
	if (p->from == FROM_PORT && p->encap == ENCAP_VLAN && !p->way)
		return to_uplink(skb, p, g);
	return dropped(DROP_UNKNOWN_DEST);
}

static __always_inline __u32 identity_at(struct pkt *p, const struct addr *a)
{
	if (p->way)
		return 1; // whoever is beyond the host
	struct host *h = host_at(p, a);
	if (h)
		return h->identity;
	return p->encap == ENCAP_VLAN ? 1 : 0;
}

// count_ends counts for the rules of a packet that goes a short way.
static __always_inline void count_ends(struct fast *f, __u32 len)
{
	if (f->out_rule)
		hit_again(&f->out_rule, len);
	if (f->in_rule)
		hit_again(&f->in_rule, len);
}

static __always_inline void count_rules(struct pkt *p)
{
	if (p->out_rule)
		hit(&p->out_rule, p->len);
	if (p->rule)
		hit(&p->rule, p->len);
}

// judge_ends applies the policies of both ends of p->orig that are here; 1 = passes.
static __noinline int judge_ends(struct pkt *p, __u32 target, __u32 target_set, __u32 *in_ifindex)
{
	struct host *h = host_at(p, &p->orig.src);
	p->out_rule = 0;
	p->out_set = p->in_set = 0;
	*in_ifindex = 0;
	if (h && h->ifindex) {
		__u32 set = h->set;
		p->out_set = set;
		p->peer_identity = identity_at(p, &p->orig.dst);
		if (!judge(p, set, DIR_OUT))
			return 0;
		p->out_rule = p->rule;
	}
	h = host_at(p, &p->orig.dst);
	__u32 set = 0;
	if (h && h->ifindex) {
		set = h->set;
		*in_ifindex = h->ifindex;
	} else if (target && same_addr(&p->orig.dst, &p->ip.f.dst)) {
		set = target_set; // nothing reaches a port unjudged
		*in_ifindex = target;
	}
	p->rule = 0;
	if (*in_ifindex) {
		p->in_set = set;
		p->peer_identity = identity_at(p, &p->orig.src);
		if (!judge(p, set, DIR_IN))
			return 0;
	}
	return 1;
}

static __noinline int forward_multicast(struct __sk_buff *skb, struct pkt *p, struct settings *g, __u64 now)
{
	__u32 epoch = g->epoch;
	p->out_rule = p->rule = 0;
	if (!g->flood)
		return dropped(DROP_UNKNOWN_DEST);
	if (p->from == FROM_PORT) {
		p->peer_identity = identity_at(p, &p->orig.dst);
		if (!judge(p, p->set, DIR_OUT)) {
			if (p->rule)
				hit(&p->rule, p->len);
			return dropped(DROP_POLICY);
		}
		if (p->rule)
			hit(&p->rule, p->len);
	}
	p->peer_identity = identity_at(p, &p->orig.src);
	int verdict = flood(skb, p, 1);
	p->rule = 0;
	if (p->admitted)
		commit(p, now, epoch - 1, 0); // there is no one verdict to remember
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
	__u32 epoch = p->epoch;
	if (p->from == FROM_PORT && !p->identity && p->encap == ENCAP_VXLAN)
		return dropped(DROP_UNKNOWN_SOURCE);
	if (!classify(skb, p, now))
		return dropped(DROP_INVALID);
	if (p->multicast)
		return forward_multicast(skb, p, g, now);
	struct station *s = p->way == WAY_OUT ? 0 : station_at(p, p->eth.dst);
	if (p->way == WAY_NOWHERE || (p->way != WAY_OUT && !reachable(p, g, s)))
		return dropped(DROP_UNKNOWN_DEST);
	__u32 target = s ? s->ifindex : 0, set = s ? s->set : 0;
	if (p->known && !p->ip.fragment) {
		struct ct *c = bpf_map_lookup_elem(&conns, &p->ck);
		if (c && c->epoch == epoch && !(c->state & CT_WAY) == !p->way && (p->reply || !target || target == c->in_ifindex)) {
			if (now - c->seen > SECOND)
				c->seen = now;
			if (p->reply && !p->error && !(c->state & CT_REPLIED))
				c->state |= CT_REPLIED;
			if (p->ip.f.proto == P_TCP && p->ip.tcp_flags & (TCP_FIN | TCP_RST))
				c->state |= CT_CLOSED;
			p->out_rule = c->out_rule;
			p->rule = c->in_rule;
			count_rules(p);
			if (!p->way)
				remember(p, g, s);
			return deliver(skb, p, g, s);
		}
	}
	if (!judge_ends(p, target, set, &in)) {
		if (p->rule)
			hit(&p->rule, p->len);
		return dropped(DROP_POLICY);
	}
	count_rules(p);
	if (!p->known && g->monitor & MONITOR_CONNECTIONS)
		monitor(p, DROP_NONE);
	commit(p, now, epoch, in);
	return deliver(skb, p, g, s);
}

// honest tells whether a container sends in its own name only.
static __noinline int honest(struct __sk_buff *skb, struct pkt *p, struct port *o)
{
	if (!same(p->eth.src, o->mac, 6))
		return 0;
	link_local(&p->mapped, o->mac);
	int own = p->has_sender &&
		  (same_addr(&p->sender, &o->ip4) || same_addr(&p->sender, &o->ip6) || same_addr(&p->sender, &p->mapped));
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

// short_way sends a packet where those before it went; LONG_WAY = it does not
// fit there.
static __always_inline int short_way(struct __sk_buff *skb, struct fast *f)
{
	__u32 zero = 0, out = f->ifindex, len = skb->len;
	if (f->tag) {
		struct settings *g = bpf_map_lookup_elem(&settings, &zero);
		if (!g || !fits(skb, g->mtu))
			return LONG_WAY;
		if (f->underlay) {
			int way = wrap(skb, f, g);
			if (way >= 0) {
				count_ends(f, len);
				return way;
			}
		}
		if (tunnel_key(skb, f->tag, f->vtep_family, f->vtep))
			return LONG_WAY;
		count_ends(f, len);
		return bpf_redirect(out, 0);
	}
	count_ends(f, len);
	count_slot_rx(f->rx_slot, len);
	return bpf_redirect_peer(out, 0);
}

static __always_inline struct pkt *begin(struct __sk_buff *skb, __u8 from, __u32 epoch)
{
	__u32 zero = 0;
	struct pkt *p = bpf_map_lookup_elem(&scratch, &zero);
	if (!p)
		return 0;
	p->epoch = epoch;
	p->remote = 0;
	p->kind = p->nd = p->has_sender = p->multicast = 0;
	p->from = from;
	p->ifindex = skb->ifindex;
	p->len = skb->len;
	p->identity = p->set = p->net = 0;
	p->way = WAY_NONE;
	p->eth.proto = 0;
	p->ip.f.sport = p->ip.f.dport = 0;
	p->ip.v6 = p->ip.fragment = p->ip.later = p->ip.more = p->ip.tcp_flags = 0;
	p->sk.pad[0] = p->sk.pad[1] = 0;
	p->ip.f.pad[0] = p->ip.f.pad[1] = p->ip.f.pad[2] = 0;
	return p;
}

// router_takes tells what of an honest container's frame is the virtual router's.
static __noinline int router_takes(struct pkt *p, struct port *o)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	if (!g || !g->host)
		return WAY_NONE;
	if (p->kind == KIND_IP && !p->nd)
		return p->multicast ? WAY_NONE : way_of(p, g, o);
	if (p->kind == KIND_ARP && p->arp.op == bpf_htons(1) && o->private_ip && o->router_ip && *(__be32 *)p->arp.tip == o->router_ip)
		return WAY_OUT;
	return same(p->eth.dst, g->router, 6) ? WAY_NOWHERE : WAY_NONE;
}

static __always_inline int decide(struct __sk_buff *skb, struct pkt *p)
{
	if (p->kind == KIND_ARP || p->nd)
		return neighbour(skb, p);
	return forward(skb, p);
}

SEC("tc")
int from_container(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, epoch = policy_epoch();
	__u32 len = skb->len;
	struct fast *f = remembered_frame(skb, epoch, 0);
	if (f) {
		int way = short_way(skb, f);
		if (way != LONG_WAY) {
			count_slot_tx(f->tx_slot, len);
			return way;
		}
	}
	struct pkt *p = begin(skb, FROM_PORT, epoch);
	struct port *o = bpf_map_lookup_elem(&ports, &ifindex);
	if (!o || !p)
		return dropped(DROP_NO_PORT);
	p->slot = o->slot;
	count_slot_tx(o->slot, len);
	p->net = o->net;
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
	p->way = router_takes(p, o);
	return decide(skb, p);
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
	if (six && bpf_skb_get_tunnel_key(skb, k, sizeof(*k), BPF_F_TUNINFO_IPV6))
		return dropped(DROP_NETWORK);
	t.tag = k->tunnel_id;
	struct fast *f = remembered_frame(skb, epoch, t.tag);
	if (f && !f->tag)
		return short_way(skb, f);
	__u32 *net = bpf_map_lookup_elem(&tags, &t);
	if (!net)
		return dropped(DROP_NETWORK);
	p->net = *net;
	if (!six)
		p->remote = k->remote_ipv4;
	p->encap = ENCAP_VXLAN;
	p->tag = t.tag;
	if (skb->vlan_present)
		return dropped(DROP_NOT_IP);
	int bad = read_frame(skb, p);
	if (bad)
		return dropped(bad);
	if ((p->kind == KIND_IP && !p->nd) || p->has_sender) {
		struct host *h = host_at(p, &p->sender);
		if (!h || h->ifindex || !h->identity)
			return dropped(DROP_UNKNOWN_SOURCE);
	}
	return decide(skb, p);
}

SEC("tc")
int from_underlay(struct __sk_buff *skb)
{
	__u32 zero = 0;
	__u8 macs[12];
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct fast *f = g && g->underlay ? inside(skb, g, macs) : 0;
	if (!f || f->tag)
		return TC_NEXT;
	if (unwrap(skb))
		return TC_NEXT;
	if (bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0))
		return dropped(DROP_INVALID);
	return short_way(skb, f);
}

SEC("tc")
int from_uplink(struct __sk_buff *skb)
{
	struct tag_key t = { .encap = ENCAP_VLAN };
	if (!skb->vlan_present)
		return TC_NEXT;
	t.tag = skb->vlan_tci & 0xfff;
	__u32 *net = bpf_map_lookup_elem(&tags, &t);
	if (!net)
		return TC_NEXT; // not ours
	struct pkt *p = begin(skb, FROM_UPLINK, policy_epoch());
	if (!p || bpf_skb_vlan_pop(skb))
		return dropped(DROP_NETWORK);
	p->net = *net;
	p->encap = ENCAP_VLAN;
	p->tag = t.tag;
	p->len = skb->len;
	if (skb->vlan_present)
		return dropped(DROP_NOT_IP);
	int bad = read_frame(skb, p);
	if (bad)
		return dropped(bad);
	struct host *h = host_at(p, &p->sender);
	if (h && h->ifindex)
		return dropped(DROP_SPOOF);
	struct station *s = station_at(p, p->eth.src);
	if (s && s->ifindex)
		return dropped(DROP_SPOOF);
	return decide(skb, p);
}

// from_host takes what the host's own stack sends to private addresses, on its
// way out of the host's side.
SEC("tc")
int from_host(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct pkt *p = begin(skb, FROM_HOST, policy_epoch());
	if (!g || !p)
		return dropped(DROP_NETWORK);
	if (skb->vlan_present || skb->protocol != bpf_htons(ETH_IP) || bpf_skb_load_bytes(skb, 14, &p->h4, sizeof(p->h4)))
		return dropped(DROP_NOT_IP);
	__be32 to = *(__be32 *)p->h4.dst, by = *(__be32 *)p->h4.src;
	__u32 *ifindex = bpf_map_lookup_elem(&privates, &to);
	if (!ifindex)
		return dropped(DROP_UNKNOWN_DEST);
	struct port *o = bpf_map_lookup_elem(&ports, ifindex);
	if (!o || o->private_ip != to)
		return dropped(DROP_NO_PORT);
	p->net = o->net;
	p->encap = o->encap;
	p->tag = o->tag;
	p->way = WAY_IN;
	if ((by & o->mask) == o->subnet)
		return dropped(DROP_SPOOF); // nobody on the network comes this way
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
