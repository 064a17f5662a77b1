// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Services for sockets of this host's processes: where a socket asks a service, it is
// connected to a backend, and sees the service's address as its peer. A socket that asks a
// container by an address that the host's stack does not know is connected to the container's
// host-local NAT address. Sockets of other network namespaces, containers' among them, are
// left alone.
#include "common.h"

#define ALLOW 1
#define REFUSE 0

#define SOCK_STREAM 1
#define SOCK_DGRAM 2

#define EADDRINUSE 98
#define ECONNREFUSED 111

// Set when the programs are loaded.
const volatile __u64 host_netns; // cookie of the host's network namespace; 0 = the initial one
const volatile __u32 sets_errors; // the kernel lets programs say which error a call gets

// frontend says where the connections to a place go.
struct frontend {
	__u32 number; // under which its targets and members are found
	__u32 version; // of its targets
	__u32 targets; // how many; 0 = connections are refused
	__u32 reserved; // processes may not bind the port at this node's addresses
};

struct target_key {
	__u32 number, version, index;
};

// target is a backend, or an address of the service that the data plane serves.
struct target {
	struct addr ip;
	__u16 port, pad;
};

struct member_key {
	__u32 number;
	struct addr ip;
	__u16 port, pad;
};

// peer is the other end of a socket.
struct peer {
	__u64 socket; // cookie
	struct place at;
	__u32 pad;
};

MAP(frontends, BPF_MAP_TYPE_HASH, struct place, struct frontend, 131072, BPF_F_NO_PREALLOC); // of unspecified addresses: at each of nodes, of the family
MAP(targets, BPF_MAP_TYPE_HASH, struct target_key, struct target, 1048576, BPF_F_NO_PREALLOC);
MAP(members, BPF_MAP_TYPE_HASH, struct member_key, __u32, 1048576, BPF_F_NO_PREALLOC); // backends to which datagrams of known sockets still go
MAP(nodes, BPF_MAP_TYPE_HASH, struct addr, __u32, 65536, BPF_F_NO_PREALLOC); // addresses at which services are asked by ports of nodes
MAP(containers, BPF_MAP_TYPE_HASH, struct addr, struct addr, 65536, BPF_F_NO_PREALLOC); // host-local NAT addresses of this host's containers, by their own
MAP(services_of_peers, BPF_MAP_TYPE_LRU_HASH, struct peer, struct place, 65536, 0); // the service that a socket asked, by the backend that it got
MAP(datagram_targets, BPF_MAP_TYPE_LRU_HASH, struct peer, struct place, 65536, 0); // and the reverse, of datagrams

// HOOKS makes the programs of a hook, of IPv4 and of IPv6.
#define HOOKS(NAME, FUNC)                      \
	SEC("cgroup/" #NAME "4")               \
	int NAME##4(struct bpf_sock_addr *ctx) \
	{                                      \
		return FUNC(ctx, 0);           \
	}                                      \
	SEC("cgroup/" #NAME "6")               \
	int NAME##6(struct bpf_sock_addr *ctx) \
	{                                      \
		return FUNC(ctx, 1);           \
	}

static __always_inline int is_of_host(struct bpf_sock_addr *ctx)
{
	return bpf_get_netns_cookie(ctx) == (host_netns ? host_netns : bpf_get_netns_cookie(0));
}

// refuse ends a call, with an error where the kernel lets it say which one.
static __always_inline int refuse(int error)
{
	if (sets_errors)
		bpf_set_retval(-error);
	return REFUSE;
}

static __always_inline int is_loopback(const struct addr *a)
{
	if (is_mapped(a))
		return bpf_ntohl(a->w[3]) >> 24 == 127;
	return !(a->w[0] | a->w[1] | a->w[2]) && a->w[3] == bpf_htonl(1);
}

static __always_inline __u8 protocol_of(struct bpf_sock_addr *ctx)
{
	if (ctx->type == SOCK_STREAM && ctx->protocol == P_TCP)
		return P_TCP;
	if (ctx->type == SOCK_DGRAM && ctx->protocol == P_UDP)
		return P_UDP;
	return 0;
}

// read_address reads the address that a call names.
static __always_inline void read_address(struct bpf_sock_addr *ctx, int v6, struct place *p)
{
	if (v6) {
		p->ip.w[0] = ctx->user_ip6[0];
		p->ip.w[1] = ctx->user_ip6[1];
		p->ip.w[2] = ctx->user_ip6[2];
		p->ip.w[3] = ctx->user_ip6[3];
	} else {
		map4(&p->ip, ctx->user_ip4);
	}
	p->port = bpf_ntohs(ctx->user_port);
	p->proto = protocol_of(ctx);
	p->pad = 0;
}

// write_address writes the address that a call names.
static __always_inline void write_address(struct bpf_sock_addr *ctx, int v6, const struct addr *ip, __u16 port)
{
	if (v6) {
		ctx->user_ip6[0] = ip->w[0];
		ctx->user_ip6[1] = ip->w[1];
		ctx->user_ip6[2] = ip->w[2];
		ctx->user_ip6[3] = ip->w[3];
	} else {
		ctx->user_ip4 = ip->w[3];
	}
	ctx->user_port = bpf_htons(port);
}

// frontend_at finds the service at a place: at the address by itself, then by a port of
// nodes.
static __always_inline struct frontend *frontend_at(const struct place *at)
{
	struct frontend *f = bpf_map_lookup_elem(&frontends, at);
	if (f)
		return f;
	if (!is_loopback(&at->ip) && !bpf_map_lookup_elem(&nodes, &at->ip))
		return 0;
	struct place any = at_each_node(at);
	return bpf_map_lookup_elem(&frontends, &any);
}

// scramble is Mix of internal/datapath/desired (SplitMix64's finaliser).
static __always_inline __u64 scramble(__u64 x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

// select_target finds a target; a list that is replaced meanwhile is read again.
static __always_inline struct target *select_target(const struct place *at, struct frontend *f, __u64 socket)
{
	struct target *t = 0;
	for (int i = 0; i < 2 && !t; i++) {
		if (i)
			f = frontend_at(at);
		if (!f || !f->targets)
			return 0;
		struct target_key k = { .number = f->number, .version = f->version };
		k.index = (scramble(socket ^ scramble(f->number)) >> 32) * f->targets >> 32;
		t = bpf_map_lookup_elem(&targets, &k);
	}
	return t;
}

static __always_inline void update_reverse_nat(__u64 socket, const struct place *at, const struct addr *ip, __u16 port)
{
	struct peer p = { .socket = socket, .at = { .ip = *ip, .port = port, .proto = at->proto } };
	bpf_map_update_elem(&services_of_peers, &p, at, BPF_ANY);
}

// translate_container names the host-local NAT address of a container that is asked, if it has one.
static __always_inline int translate_container(struct bpf_sock_addr *ctx, int v6, const struct place *at)
{
	struct addr *nat = at->proto ? bpf_map_lookup_elem(&containers, &at->ip) : 0;
	if (!nat)
		return ALLOW;
	struct addr to = *nat;
	update_reverse_nat(bpf_get_socket_cookie(ctx), at, &to, at->port);
	write_address(ctx, v6, &to, at->port);
	return ALLOW;
}

static __always_inline int translate_connect(struct bpf_sock_addr *ctx, int v6)
{
	struct place at;
	if (!is_of_host(ctx))
		return ALLOW;
	read_address(ctx, v6, &at);
	struct frontend *f = at.proto ? frontend_at(&at) : 0;
	if (!f)
		return translate_container(ctx, v6, &at);
	__u64 socket = bpf_get_socket_cookie(ctx);
	// A socket of datagrams may be connected again and again.
	__u64 draw = at.proto == P_UDP ? socket ^ ((__u64)bpf_get_prandom_u32() << 32) : socket;
	struct target *t = select_target(&at, f, draw);
	if (!t)
		return refuse(ECONNREFUSED);
	update_reverse_nat(socket, &at, &t->ip, t->port);
	write_address(ctx, v6, &t->ip, t->port);
	return ALLOW;
}

HOOKS(connect, translate_connect)

// translate_sendmsg is for each datagram of a socket that is not connected: a client stays
// with its backend while that is a member.
static __always_inline int translate_sendmsg(struct bpf_sock_addr *ctx, int v6)
{
	struct peer p = {};
	if (!is_of_host(ctx))
		return ALLOW;
	read_address(ctx, v6, &p.at);
	struct frontend *f = p.at.proto ? frontend_at(&p.at) : 0;
	if (!f)
		return translate_container(ctx, v6, &p.at);
	p.socket = bpf_get_socket_cookie(ctx);
	struct place *had = bpf_map_lookup_elem(&datagram_targets, &p);
	if (had) {
		struct member_key m = { .number = f->number, .ip = had->ip, .port = had->port };
		if (bpf_map_lookup_elem(&members, &m)) {
			write_address(ctx, v6, &m.ip, m.port);
			return ALLOW;
		}
	}
	struct target *t = select_target(&p.at, f, p.socket);
	if (!t)
		return refuse(ECONNREFUSED);
	struct place to = { .ip = t->ip, .port = t->port, .proto = p.at.proto };
	bpf_map_update_elem(&datagram_targets, &p, &to, BPF_ANY);
	update_reverse_nat(p.socket, &p.at, &to.ip, to.port);
	write_address(ctx, v6, &to.ip, to.port);
	return ALLOW;
}

HOOKS(sendmsg, translate_sendmsg)

// reverse_translate gives the client the address of the service that it used, in place of
// the backend's.
static __always_inline int reverse_translate(struct bpf_sock_addr *ctx, int v6)
{
	struct peer p = {};
	if (!is_of_host(ctx))
		return ALLOW;
	read_address(ctx, v6, &p.at);
	p.socket = bpf_get_socket_cookie(ctx);
	struct place *was = p.at.proto ? bpf_map_lookup_elem(&services_of_peers, &p) : 0;
	if (was)
		write_address(ctx, v6, &was->ip, was->port);
	return ALLOW;
}

HOOKS(recvmsg, reverse_translate)
HOOKS(getpeername, reverse_translate)

static __always_inline int is_reserved(const struct place *at)
{
	struct frontend *f = frontend_at(at);
	return f && f->reserved;
}

// check_bind refuses a port that is a service's at this node's addresses: packets for it from
// outside would never reach the process.
static __always_inline int check_bind(struct bpf_sock_addr *ctx, int v6)
{
	struct place at;
	if (!is_of_host(ctx))
		return ALLOW;
	read_address(ctx, v6, &at);
	if (!at.proto || !at.port)
		return ALLOW;
	int any = v6 ? !(at.ip.w[0] | at.ip.w[1] | at.ip.w[2] | at.ip.w[3]) : !at.ip.w[3];
	if (!any && !bpf_map_lookup_elem(&nodes, &at.ip))
		return ALLOW;
	if (is_reserved(&at))
		return refuse(EADDRINUSE);
	if (any && v6) { // IPv4's too; that a socket is for IPv6 alone is not to be seen here
		at.ip.w[2] = bpf_htonl(0xffff);
		if (is_reserved(&at))
			return refuse(EADDRINUSE);
	}
	return ALLOW;
}

HOOKS(bind, check_bind)

char _license[] SEC("license") = "Dual MIT/GPL";
