package hoststack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Watching is what Watch calls.
type Watching struct {
	// Changed is called when part of what Apply made may be gone: an nftables table or
	// something in it, an address or a route of the interface, the kernel's forwarding, or
	// the interface is down;
	// also when Apply itself replaces something, and once when Watch has begun to listen.
	Changed func()
	// Firewall is called when somebody else's rules may let other packets through than
	// before, of which Apply then takes care without look.
	Firewall func()
	// Table is called when another process has changed FabricTable or GuardTable; nil = no
	// call.
	Table func(name string)
	// Route is called when a route that a Fabric made has gone, even if the Fabric itself
	// removed it; nil = no call.
	Route func(netip.Prefix)
}

// Watch tells what is taken away in the network namespace of the thread that calls it. It
// returns nil when ctx ends, or why it cannot go on. Any goroutine may call it.
func (s *Stack) Watch(ctx context.Context, on Watching) error {
	self, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		return fmt.Errorf("find this process's name: %w", err)
	}
	rules, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return fmt.Errorf("watch nftables: %w", err)
	}
	routes, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF)
	if err != nil {
		rules.Close()
		return fmt.Errorf("watch addresses and routes: %w", err)
	}
	on.Changed() // changes before this moment were not heard
	g, hearing := errgroup.WithContext(ctx)
	defer context.AfterFunc(hearing, func() {
		rules.Close()
		routes.Close()
	})()
	watch := ruleWatch{self: strings.TrimSpace(string(self)), decides: s.firewall.decides, table: on.Table, firewall: func() {
		s.firewall.changed.Store(true)
		on.Firewall()
	}}
	g.Go(func() error { return readMessages(rules, on.Changed, watch.lost) })
	g.Go(func() error {
		return readMessages(routes, on.Changed, func(m syscall.NetlinkMessage) bool {
			if p, is := fabricRouteLost(m); is && on.Route != nil {
				on.Route(p)
			}
			if forwardingSet(m) {
				return true
			}
			index := lostBy(m)
			return index != 0 && index == s.device.Load()
		})
	})
	if err := g.Wait(); ctx.Err() == nil {
		return fmt.Errorf("watch the host's stack: %w", err)
	}
	return nil
}

// readMessages reads messages until the socket is closed.
func readMessages(s *nl.NetlinkSocket, changed func(), ours func(syscall.NetlinkMessage) bool) error {
	for {
		msgs, from, err := s.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS): // some were lost
			changed()
			continue
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return err
		case from.Pid != nl.PidKernel:
			continue
		}
		if slices.ContainsFunc(msgs, ours) {
			changed()
		}
	}
}

// ruleWatch hears what becomes of our tables, and of others'.
type ruleWatch struct {
	services bool            // something of ServicesTable is gone, by a transaction that has not ended
	tables   map[string]bool // likewise, of the other tables in which this process takes away all the time
	others   bool            // likewise, a chain or set that decides on forwarded packets is another
	self     string          // this process as the kernel names it
	decides  func(chainKey) bool
	firewall func()            // called for others
	table    func(name string) // called for tables; nil = is not
}

// decides reports whether a chain or set had a say in what the firewall lets through.
func (f *firewall) decides(k chainKey) bool {
	looked := f.decidingChains.Load()
	return looked != nil && (*looked)[k]
}

// forwards reports whether a message is of a chain of the hooks input, forward or output, or of something
// that decided when the firewall was looked at.
func (w *ruleWatch) forwards(m syscall.NetlinkMessage) bool {
	hooks := []uint32{uint32(*nftables.ChainHookInput), uint32(*nftables.ChainHookForward), uint32(*nftables.ChainHookOutput)}
	const nameOfTable, secondName, thirdName, hook, hookNumber = 1, 2, 3, 4, 1 // NFTA_CHAIN_NAME is the third, those of rules' chains and of sets are second
	attrs := m.Data[nfgenBytes:]
	text := func(kind uint16) string { return strings.TrimRight(string(attr(attrs, kind)), "\x00") }
	key := chainKey{nftables.TableFamily(m.Data[0]), text(nameOfTable), ""}
	switch m.Header.Type & 0xff {
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		if n := attr(attr(attrs, hook), hookNumber); len(n) == 4 && slices.Contains(hooks, binary.BigEndian.Uint32(n)) && !isOurs(key.table) {
			return true
		}
		key.name = text(thirdName)
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		key.name = text(secondName)
	default:
		return false
	}
	return w.decides(key)
}

// lost reports whether a message of nftables says that a table that Stack.Apply
// makes, or something in it, is gone; or something of ServicesTable, by somebody else:
// there this process takes away all the time. The first attribute of each such message
// is the table's name.
func (w *ruleWatch) lost(m syscall.NetlinkMessage) bool {
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < nfgenBytes {
		return false
	}
	w.others = w.others || w.forwards(m)
	switch m.Header.Type & 0xff {
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSETELEM:
		const nameOfTable = 1 // NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE, NFTA_SET_ELEM_LIST_TABLE
		name := strings.TrimRight(string(attr(m.Data[nfgenBytes:], nameOfTable)), "\x00")
		w.services = w.services || name == ServicesTable
		if w.table != nil && (name == FabricTable || name == GuardTable) {
			if w.tables == nil {
				w.tables = map[string]bool{}
			}
			w.tables[name] = true
		}
		return name == TableName
	case unix.NFT_MSG_NEWGEN: // ends a transaction
		const nameOfProcess = 3 // NFTA_GEN_PROC_NAME
		by := strings.TrimRight(string(attr(m.Data[nfgenBytes:], nameOfProcess)), "\x00")
		lost := w.services && by != w.self
		if w.others && by != w.self {
			w.firewall()
		}
		for name := range w.tables {
			if by != w.self {
				w.table(name)
			}
		}
		clear(w.tables)
		w.services, w.others = false, false
		return lost
	}
	return false
}

// fabricRouteLost returns the prefix of a route that a message says is gone; is reports
// whether the message is of a route that a Fabric made.
func fabricRouteLost(m syscall.NetlinkMessage) (p netip.Prefix, is bool) {
	if m.Header.Type != unix.RTM_DELROUTE || len(m.Data) < unix.SizeofRtMsg || m.Data[5] != fabricProtocol { // rtm_protocol
		return p, false
	}
	dst := attr(m.Data[unix.SizeofRtMsg:], unix.RTA_DST)
	if len(dst) == 0 { // the default route
		dst = make([]byte, net.IPv4len)
		if m.Data[0] == unix.AF_INET6 { // rtm_family
			dst = make([]byte, net.IPv6len)
		}
	}
	a, ok := netip.AddrFromSlice(dst)
	return netip.PrefixFrom(a, int(m.Data[1])), ok // rtm_dst_len
}

// forwardingSet reports whether a message says that the kernel forwards packets of a family
// from now on, or does not any more.
func forwardingSet(m syscall.NetlinkMessage) bool {
	const netconf, all, index, forwarding = 4, 0xffffffff, 1, 2 // sizeof(struct netconfmsg), NETCONFA_IFINDEX_ALL, NETCONFA_IFINDEX, NETCONFA_FORWARDING
	if m.Header.Type != unix.RTM_NEWNETCONF || len(m.Data) < netconf {
		return false
	}
	of := attr(m.Data[netconf:], index)
	return len(of) == 4 && binary.NativeEndian.Uint32(of) == all && attr(m.Data[netconf:], forwarding) != nil
}

// lostBy is the index of the interface that a message says has lost an address or
// a route, or is down (the kernel does not tell of its routes then); 0 = the
// message is about something else.
func lostBy(m syscall.NetlinkMessage) uint32 {
	switch m.Header.Type {
	case unix.RTM_NEWLINK:
		if len(m.Data) >= unix.SizeofIfInfomsg && binary.NativeEndian.Uint32(m.Data[8:])&unix.IFF_UP == 0 { // ifi_flags
			return binary.NativeEndian.Uint32(m.Data[4:]) // ifi_index
		}
	case unix.RTM_DELADDR:
		if len(m.Data) >= unix.SizeofIfAddrmsg {
			return binary.NativeEndian.Uint32(m.Data[4:]) // ifa_index
		}
	case unix.RTM_DELROUTE:
		if len(m.Data) >= unix.SizeofRtMsg {
			if oif := attr(m.Data[unix.SizeofRtMsg:], unix.RTA_OIF); len(oif) == 4 {
				return binary.NativeEndian.Uint32(oif)
			}
		}
	}
	return 0
}
