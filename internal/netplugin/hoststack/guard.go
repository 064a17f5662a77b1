package hoststack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// GuardTable is our table in nftables, of families ip and ip6, that is there while
// containers are barred from beginning connections.
const GuardTable = "contiv-guard"

// Guard keeps containers from filling the host's connection tracking by the way
// out. While the tracking is nearly full (above 80 % of
// net.netfilter.nf_conntrack_max), each container that holds more than a sixteenth
// of it may begin no connections and loses its unanswered ones; once there is room
// again (below 70 %), it may. The kernel itself drops half-open entries first when
// there is no room, so in the second until Guard looks no answered connection is
// lost. Guard also shares the ports of masquerade, see crowds. While few connections
// are tracked there is no rule, and a look costs the read of two numbers.
// One goroutine at a time may use it.
type Guard struct {
	log     *slog.Logger
	repairs Repairs
	most    int // 0 = as the kernel says
	looked  bool
	lost    atomic.Bool // somebody has taken something from GuardTable
	banned  []netip.Addr
	sources sourceLimits
	bans    []clientBan // as the kernel has them
}

// NewGuard returns a guard that has not looked yet. repairs hears of what it
// puts back.
func NewGuard(log *slog.Logger, repairs Repairs) *Guard {
	return &Guard{log: log, repairs: repairs, sources: sourceLimits{share: portsOfOne, now: time.Now}}
}

// NoteTableLost has the next Look put back GuardTable. Any goroutine may call it.
func (g *Guard) NoteTableLost() { g.lost.Store(true) }

// forgetAtOnce is how many unanswered connections one look removes at most.
const forgetAtOnce = 1 << 14

// Check looks once, in the namespace of the thread that calls it; p is the way
// out, nil = there is none, natives the subnets of native networks, whose containers
// the host knows by their own addresses.
func (g *Guard) Check(ctx context.Context, p *desired.HostNAT, natives []netip.Prefix) error {
	if g.lost.Swap(false) && len(g.bans) > 0 {
		g.repairs.Rules(GuardTable)
		g.looked = false
	}
	held, most, err := g.connectionRoom()
	if err != nil {
		return err
	}
	excess, err := g.sources.look(g.log, p, natives, held)
	if err != nil {
		return err
	}
	return errors.Join(g.checkRoom(ctx, p, natives, held, most), ctx.Err(), forget(excess))
}

// checkRoom bars the containers that fill the tracking while it is nearly full.
func (g *Guard) checkRoom(ctx context.Context, p *desired.HostNAT, natives []netip.Prefix, held, most int) error {
	nearly := most > 0 && held > most*8/10
	switch {
	case p == nil || !nearly && (len(g.banned) == 0 || held < most*7/10):
		return g.setBans(p, nil)
	case !nearly:
		return g.setBans(p, g.banned)
	}
	holds := map[netip.Addr]int{}
	if err := eachTracked(func(t trackedConnection) bool {
		if isContainers(p, natives, t.src) {
			holds[t.src]++
		}
		return true
	}); err != nil {
		return err
	}
	over := slices.Clone(g.banned)
	for a, n := range holds {
		if n > most/16 && !slices.Contains(over, a) {
			over = append(over, a)
		}
	}
	slices.SortFunc(over, netip.Addr.Compare)
	if len(over) > len(g.banned) {
		g.log.Warn("the host's connection tracking is nearly full (net.netfilter.nf_conntrack_max): containers with most connections cannot open new ones to the outside until there is room",
			"addresses", over, "tracked", held, "max", most)
	}
	if err := errors.Join(ctx.Err(), g.setBans(p, over)); err != nil || len(over) == 0 {
		return err
	}
	return forgetUnanswered(over)
}

// connectionRoom returns how many connections the kernel tracks here, and may.
func (g *Guard) connectionRoom() (held, most int, err error) {
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

// clientBan says that a container may begin no connections, to one service or (zero) at all.
type clientBan struct {
	src netip.Addr
	to  service
}

// setBans sets the containers that may begin no connections at all, beside the
// containers that crowd a service.
func (g *Guard) setBans(p *desired.HostNAT, over []netip.Addr) error {
	var bars []clientBan
	if p != nil {
		for _, a := range over {
			bars = append(bars, clientBan{src: a})
		}
		bars = append(bars, g.sources.bans()...)
	}
	if g.looked && slices.Equal(bars, g.bans) {
		g.banned = over
		return nil
	}
	var four, six []clientBan
	for _, b := range bars {
		if b.src.Is4() {
			four = append(four, b)
		} else {
			six = append(six, b)
		}
	}
	if err := errors.Join(putBans(nftables.TableFamilyIPv4, p, four), putBans(nftables.TableFamilyIPv6, p, six)); err != nil {
		return err
	}
	if len(over) == 0 && len(g.banned) > 0 {
		g.log.Info("the host's connection tracking has room again", "addresses", g.banned)
	}
	g.looked, g.banned, g.bans = true, over, bars
	return nil
}

// putBans makes the table of one family; without bars there is none.
func putBans(family nftables.TableFamily, p *desired.HostNAT, bars []clientBan) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: family, Name: GuardTable}
	if len(bars) == 0 {
		tables, err := c.ListTablesOfFamily(family) // an earlier process may have left it
		if err != nil || !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == GuardTable }) {
			return nil //nolint:nilerr // a kernel without nftables has no table of ours
		}
		c.DelTable(table)
	} else {
		c.AddTable(table) // deleting what is not there is an error
		c.DelTable(table)
		c.AddTable(table)
		ch := chain{}
		for _, b := range bars {
			parts := [][]expr.Any{iif(p.Interface), saddr(b.src)}
			if to := b.to; to.addr.IsValid() {
				parts = append(parts, daddr(to.addr), l4(to.proto), dport(to.port))
			}
			ch.add(append(parts, ctState(expr.CtStateBitNEW, true), []expr.Any{&expr.Counter{}}, drop())...)
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
	return nil
}

// forgetUnanswered removes these containers' unanswered connections from the tracking.
func forgetUnanswered(of []netip.Addr) error {
	var records []conntrackRecord
	if err := eachTracked(func(t trackedConnection) bool {
		if !t.answered && slices.Contains(of, t.src) {
			records = append(records, t.record.clone())
		}
		return len(records) < forgetAtOnce
	}); err != nil {
		return err
	}
	return forget(records)
}
