package ovs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// maxCounters bounds the flows that only count: some 0.7 kB of the switch's memory each,
// and some 10 microseconds whenever they are read.
const maxCounters = 3 * 16384

// counterBudget share out the room for flows that count: a service has all of its own, or
// none.
type counterBudget struct {
	most, taken int
	has         map[model.ServiceKey]int // how many flows each has
	without     map[model.ServiceKey]int // the ones that found no room, and how much they need
	waiting     []model.ServiceKey       // these in order
	full        int                      // with so many taken none of these fits
}

func newCounters() *counterBudget {
	return &counterBudget{most: maxCounters, has: map[model.ServiceKey]int{}, without: map[model.ServiceKey]int{}}
}

// take reports whether a service that needs so many flows may have them.
func (c *counterBudget) take(k model.ServiceKey, need int) bool {
	c.release(k)
	if c.taken+need > c.most {
		c.without[k] = need
		i, _ := slices.BinarySearchFunc(c.waiting, k, compareServices)
		c.waiting = slices.Insert(c.waiting, i, k)
		c.full = max(c.full, c.taken)
		return false
	}
	c.taken += need
	c.has[k] = need
	return true
}

func (c *counterBudget) release(k model.ServiceKey) {
	c.taken -= c.has[k]
	delete(c.has, k)
	if _, waits := c.without[k]; waits {
		delete(c.without, k)
		i, _ := slices.BinarySearchFunc(c.waiting, k, compareServices)
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
}

// next is a service for which there is room by now, the first one by key; zero = none.
func (c *counterBudget) next() model.ServiceKey {
	if c.taken >= c.full {
		return model.ServiceKey{}
	}
	for _, k := range c.waiting {
		if c.taken+c.without[k] <= c.most {
			return k
		}
	}
	c.full = c.taken
	return model.ServiceKey{}
}

func (c *counterBudget) reason() string {
	return fmt.Sprintf("the ports of all services, times their providers, are more than the %d by family that this host's switch counts", c.most/3)
}

func (c *counterBudget) problems() []driver.Problem {
	if len(c.without) == 0 {
		return nil
	}
	return []driver.Problem{{
		Object: "counts of services",
		Err:    model.Errorf(model.ErrUnavailable, "connections to %d of %d services are not counted, such as %s: %s", len(c.without), len(c.without)+len(c.has), c.waiting[0], c.reason()),
	}}
}

// backends finds a service's backends by address.
type backends map[*desired.Service]map[netip.Addr]model.EndpointKey

func (b backends) at(s *desired.Service, a netip.Addr) (model.EndpointKey, bool) {
	all, known := b[s]
	if !known {
		all = map[netip.Addr]model.EndpointKey{}
		for k, x := range s.Backends.All() {
			all[x.IPv4], all[x.IPv6] = k, k
		}
		b[s] = all
	}
	k, ok := all[a]
	return k, ok
}

// serviceStats reads what is counted of services.
func (t *flows) serviceStats(ctx context.Context, out *driver.Stats) error {
	s := t.pic.services
	out.Services = map[driver.ServiceOf]driver.ServiceStats{}
	if len(s.serving) == 0 {
		return nil
	}
	if len(s.counts.without) > 0 {
		out.Uncounted = map[model.ServiceKey]string{}
		for k := range s.counts.without {
			out.Uncounted[k] = s.counts.reason()
		}
	}
	by := backends{}
	add := func(key *desired.Service, proto model.Protocol, port uint16, backend netip.Addr, n driver.ServiceStats) {
		if key == nil {
			return
		}
		if k, ok := by.at(key, backend); ok {
			of := driver.ServiceOf{Service: key.Key, Protocol: proto, Port: port, IPv6: backend.Is6(), Backend: k}
			n.Add(out.Services[of])
			out.Services[of] = n
		}
	}
	for part := range uint32(pipeline.CounterParts) { // in user space the switch forwards nothing while it lists one
		err := t.conns.sw.DumpFlows(ctx, openflow.Filter{Table: 0xff, Cookie: pipeline.CountersPart(part), CookieMask: ^uint64(0), Used: true}, func(f openflow.FlowStats) {
			c, ok := pipeline.CountOf(f.Flow)
			if !ok || f.Err != nil {
				return
			}
			x, _ := t.pic.have.Services.Get(s.named[c.Service])
			var n driver.ServiceStats
			switch {
			case c.IsReply:
				x = s.at(t.pic.have, domainAddress{c.Domain, c.VIP})
				n = driver.ServiceStats{PacketsIn: f.Packets, BytesIn: f.Bytes}
			case c.Begun:
				n.Total = f.Packets
			default:
				n = driver.ServiceStats{PacketsOut: f.Packets, BytesOut: f.Bytes}
			}
			add(x, c.Protocol, c.Port, c.Backend, n)
		})
		if err != nil {
			return model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
		}
	}
	out.ConnectionsUnknown = t.establishedTranslations(ctx, func(domain desired.Domain, c connection) {
		x := s.at(t.pic.have, domainAddress{domain, c.orig.dst})
		if x == nil || s.counts.has[x.Key] == 0 {
			return
		}
		if _, ok := x.PortOf(c.proto, c.orig.dport); ok {
			add(x, c.proto, c.orig.dport, c.reply.src, driver.ServiceStats{Connections: 1})
		}
	})
	return nil
}

// establishedTranslations yields the translations that the switch tracks; why says what hinders it,
// such as that it tracks too many connections to be asked for them.
func (t *flows) establishedTranslations(ctx context.Context, yield func(desired.Domain, connection)) (why string) {
	full, err := t.daemon.conntrack(ctx)
	if err == nil && full.Entries > t.daemon.listable {
		return fmt.Sprintf("established connections are not counted while the switch tracks more than %d, since it would have to list them", t.daemon.listable)
	}
	for domain, zone := range t.pic.services.zones {
		var text string
		if err == nil {
			text, err = control(ctx, t.cfg.RunDir, "dpctl/dump-conntrack", t.daemon.datapath(), fmt.Sprint("zone=", zone))
		}
		for line := range strings.Lines(text) {
			if c, ok := readConnection(line); ok {
				yield(domain, c)
			}
		}
	}
	if err != nil {
		return "established connections are not counted, since the switch does not list them: " + err.Error()
	}
	return ""
}
