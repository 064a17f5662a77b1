package hoststack

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// portsOfOne is how many connections one container may have to one service
// outside (address, protocol, port). All containers of a host show its address
// there, so they share the 64,512 ports from 1024 on, with the host itself: a
// container that takes them all keeps everybody else from that service. The limit
// is more than the number of ports that a kernel chooses from, 28,232 by default.
const portsOfOne = 30000

// banTime is how long a container begins no connection to a service after it
// has had more than its share of the ports towards it.
const banTime = time.Minute

// sourceLimits finds containers that take more than their share of the ports towards a
// service. It looks only while the host tracks more connections than one container
// may have to one service, and then for a small part of the time.
type sourceLimits struct {
	share int
	now   func() time.Time
	next  time.Time // when to look again
	until map[clientBan]time.Time
}

// look returns the connections beyond their container's share, unanswered ones
// first; held is how many connections the host tracks.
func (c *sourceLimits) look(log *slog.Logger, p *desired.HostNAT, natives []netip.Prefix, held int) (excess []conntrackRecord, err error) {
	began := c.now()
	for b, t := range c.until {
		if p == nil || began.After(t) {
			delete(c.until, b)
		}
	}
	if p == nil || held <= c.share || began.Before(c.next) {
		return nil, nil
	}
	defer func() {
		end := c.now()
		c.next = end.Add(20 * end.Sub(began))
	}()
	have := map[clientBan]int{}
	if err := eachTracked(func(t trackedConnection) bool {
		if t.masked && isContainers(p, natives, t.src) {
			have[clientBan{t.src, t.to}]++
		}
		return true
	}); err != nil {
		return nil, err
	}
	for b, n := range have {
		if n <= c.share {
			delete(have, b)
			continue
		}
		if have[b] = n - c.share; c.until == nil {
			c.until = map[clientBan]time.Time{}
		}
		if _, told := c.until[b]; !told {
			log.Warn("a container uses more than its share of this host's source ports towards an external service: its new connections to it are blocked for a minute",
				"address", b.src, "service", netip.AddrPortFrom(b.to.addr, b.to.port), "protocol", b.to.proto, "connections", n, "share", c.share)
		}
		c.until[b] = began.Add(banTime)
	}
	for _, answered := range []bool{false, true} {
		if len(have) == 0 {
			break
		}
		if err := eachTracked(func(t trackedConnection) bool {
			if b := (clientBan{t.src, t.to}); t.masked && t.answered == answered && have[b] > 0 {
				have[b]--
				excess = append(excess, t.record.clone())
			}
			return true
		}); err != nil {
			return nil, err
		}
	}
	return excess, nil
}

// isContainers reports whether the host knows a container by an address: by a private one,
// or by its own on a native network.
func isContainers(p *desired.HostNAT, natives []netip.Prefix, a netip.Addr) bool {
	return a != p.Addr && a != p.Addr6 && a != p.Relay(a.Is6()) && (p.Subnet.Contains(a) || p.Subnet6.Contains(a)) ||
		slices.ContainsFunc(natives, func(n netip.Prefix) bool { return n.Contains(a) })
}

// bans are the containers that may begin no connection to a service now, sorted.
func (c *sourceLimits) bans() []clientBan {
	var all []clientBan
	for b := range c.until {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b clientBan) int {
		return cmp.Or(a.src.Compare(b.src), a.to.addr.Compare(b.to.addr), cmp.Compare(a.to.proto, b.to.proto), cmp.Compare(a.to.port, b.to.port))
	})
	return all
}
