package hostnet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/desired"
)

// GuardTable is our table in nftables, of family ip, that is there while the
// host's connection tracking is short of room.
const GuardTable = "contiv-guard"

// Guard keeps containers from filling the host's connection tracking by the way
// out. While it is nearly full (above 80 % of net.netfilter.nf_conntrack_max),
// the containers that hold more than a sixteenth of it begin no more
// connections, and their unanswered ones go; when there is room again (below
// 70 %), they may. The kernel itself drops half-open entries first when there
// is no room, so in the second until Guard looks nobody's answered connections
// are lost. Otherwise there is no rule, and it costs one read of a number a look.
// It is used by one goroutine at a time.
type Guard struct {
	log    *slog.Logger
	most   int // 0 = as the kernel says
	looked bool
	barred []netip.Addr
}

// NewGuard returns a guard that has not looked yet.
func NewGuard(log *slog.Logger) *Guard { return &Guard{log: log} }

// forgetAtOnce is how many unanswered connections a look takes away at most.
const forgetAtOnce = 1 << 14

// Look looks once, in the namespace of the thread that calls it; p is the way
// out, nil = there is none.
func (g *Guard) Look(ctx context.Context, p *desired.Private) error {
	held, most, err := g.room()
	if err != nil {
		return err
	}
	nearly := most > 0 && held > most*8/10
	switch {
	case p == nil || !nearly && (len(g.barred) == 0 || held < most*7/10):
		return g.bar(p, nil)
	case !nearly:
		return nil
	}
	holds := map[netip.Addr]int{}
	if err := eachTracked(func(src netip.Addr, _ bool, _ []byte) bool {
		if src != p.Addr && p.Subnet.Contains(src) {
			holds[src]++
		}
		return true
	}); err != nil {
		return err
	}
	over := slices.Clone(g.barred)
	for a, n := range holds {
		if n > most/16 && !slices.Contains(over, a) {
			over = append(over, a)
		}
	}
	slices.SortFunc(over, netip.Addr.Compare)
	if len(over) > len(g.barred) {
		g.log.Warn("connections fill the host's tracking (net.netfilter.nf_conntrack_max): containers with most of them begin none by the way out until there is room",
			"privateAddresses", over, "tracked", held, "max", most)
	}
	if err := errors.Join(ctx.Err(), g.bar(p, over)); err != nil || len(over) == 0 {
		return err
	}
	return forgetUnanswered(over)
}

// room returns how many connections the kernel tracks here, and may.
func (g *Guard) room() (held, most int, err error) {
	number := func(name string) (int, error) {
		data, err := os.ReadFile("/proc/sys/net/netfilter/" + name)
		if errors.Is(err, os.ErrNotExist) {
			return 0, nil // nothing is tracked
		}
		if err != nil {
			return 0, fmt.Errorf("look at connection tracking: %w", err)
		}
		return strconv.Atoi(strings.TrimSpace(string(data)))
	}
	held, err = number("nf_conntrack_count")
	if most = g.most; err == nil && most == 0 {
		most, err = number("nf_conntrack_max")
	}
	return held, most, err
}

// bar makes these the containers that begin no connections.
func (g *Guard) bar(p *desired.Private, over []netip.Addr) error {
	if g.looked && slices.Equal(over, g.barred) {
		return nil
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: GuardTable}
	if len(over) == 0 {
		if !g.looked { // an earlier process may have left it
			tables, err := c.ListTablesOfFamily(nftables.TableFamilyIPv4)
			if err != nil || !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == GuardTable }) {
				g.looked = true
				return nil //nolint:nilerr // a kernel without nftables has nothing of ours
			}
		}
		c.DelTable(table)
	} else {
		c.AddTable(table) // deleting what is not there is an error
		c.DelTable(table)
		c.AddTable(table)
		ch := chain{}
		for _, a := range over {
			ch.add(iif(p.Interface), addr(offsetSrc, expr.CmpOpEq, a), ctState(expr.CtStateBitNEW, true), []expr.Any{&expr.Counter{}}, drop())
		}
		at := c.AddChain(&nftables.Chain{
			Name: "prerouting", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
		})
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: at, Exprs: r})
		}
	}
	if err := c.Flush(); err != nil && !isMissing(err) {
		return fmt.Errorf("write table %s of nftables: %w", GuardTable, err)
	}
	if len(over) == 0 && len(g.barred) > 0 {
		g.log.Info("the host's connection tracking has room again", "privateAddresses", g.barred)
	}
	g.looked, g.barred = true, over
	return nil
}

// Of nfnetlink_conntrack.h.
const (
	ctaTupleOrig, ctaStatus, ctaTupleIP, ctaSrc = 1, 3, 1, 1

	statusSeenReply = 1 << 1

	nfgenBytes = 4 // of struct nfgenmsg, before the attributes
)

func trackRequest(kind, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	return req
}

// eachTracked calls fn for every tracked connection of IPv4, with who began it,
// whether anything came back, and the record; until fn says false.
func eachTracked(fn func(src netip.Addr, answered bool, record []byte) bool) error {
	more := true
	err := trackRequest(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		if len(m) < nfgenBytes || !more {
			return more
		}
		src := attr(attr(attr(m[nfgenBytes:], ctaTupleOrig), ctaTupleIP), ctaSrc)
		status := attr(m[nfgenBytes:], ctaStatus)
		if len(src) == 4 && len(status) == 4 {
			more = fn(netip.AddrFrom4([4]byte(src)), binary.BigEndian.Uint32(status)&statusSeenReply != 0, m)
		}
		return more
	})
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) { // it changes all the time
		return fmt.Errorf("read connection tracking: %w", err)
	}
	return nil
}

// attr finds an attribute in a list; nil = it is not there.
func attr(b []byte, kind uint16) []byte {
	for len(b) >= unix.NLA_HDRLEN {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.NLA_HDRLEN || n > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == kind {
			return b[unix.NLA_HDRLEN:n]
		}
		b = b[min((n+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b)):]
	}
	return nil
}

// forgetUnanswered takes away connections of these that nothing came back on.
func forgetUnanswered(of []netip.Addr) error {
	var records [][]byte
	if err := eachTracked(func(src netip.Addr, answered bool, record []byte) bool {
		if !answered && slices.Contains(of, src) {
			records = append(records, slices.Clone(record[nfgenBytes:]))
		}
		return len(records) < forgetAtOnce
	}); err != nil {
		return err
	}
	for _, r := range records {
		req := trackRequest(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
		req.AddRawData(r)
		if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !isMissing(err) {
			return fmt.Errorf("forget an unanswered connection: %w", err)
		}
	}
	return nil
}
