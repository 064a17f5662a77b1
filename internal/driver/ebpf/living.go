package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// noteAudits notes the audits that have come or changed since a picture before,
// until somebody monitors.
func (d *Driver) noteAudits(before, now desired.Map[desired.PolicySetID, *desired.PolicySet]) {
	for _, a := range desired.NewAudits(before, now) {
		d.untold[a] = true
	}
	maps.DeleteFunc(d.untold, func(a desired.Audit, _ bool) bool {
		_, ok := now.Get(a.Audited)
		return !ok
	})
}

// living are connections that a monitor is to be told of, as audits of the sets
// at their ends would judge them.
type living struct {
	conns  driver.Living
	audits map[desired.Audit]bool
}

// tellLiving has the monitor under way, if there is one, tell how the audits
// that nobody has been told of would judge the connections that live. It reads
// the tables of connections, but only then.
func (d *Driver) tellLiving() error {
	m := d.monitor
	if m == nil || len(d.untold) == 0 {
		return nil
	}
	concerned := map[uint32]bool{}
	for a := range d.untold {
		concerned[uint32(a.Set)] = true
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	names := map[uint32]string{}
	for name, i := range d.indexes {
		names[uint32(i)] = name
	}
	out := living{driver.Living{}, d.untold}
	take := func(k connKey, c conn) {
		src, dst, sport, dport := k.Lo, k.Hi, k.LoPort, k.HiPort
		if c.Flipped != 0 {
			src, dst, sport, dport = dst, src, dport, sport
		}
		from := d.hosts.have[d.keyOf(k.Domain, src)]
		to, local := d.ports.have[c.InIfindex]
		ours := from.Ifindex != 0 && concerned[from.Set] || local && concerned[to.Set]
		if !ours || expired(k, c, now) || !d.sameEnds(k, c) {
			return
		}
		net := from.Net
		if net == 0 {
			net = to.Net
		}
		out.conns.Add(driver.Alike{
			Network: model.NetworkID(net), Src: src.netip(), Dst: dst.netip(), Proto: model.Protocol(k.Proto), DstPort: dport,
			Routed: c.State&connWay != 0, From: names[from.Ifindex], To: names[c.InIfindex],
		}, sport)
	}
	if err := errors.Join(eachEntry("conns", d.obj.Conns, 1, take), eachEntry("halfopen", d.obj.Halfopen, 1, take)); err != nil {
		return fmt.Errorf("tell of living connections: %w", err)
	}
	m.living = append(m.living, out)
	d.untold = map[desired.Audit]bool{}
	_ = m.ring.Flush() // fails when it is closed, and then nobody listens
	return nil
}

// sameEnds is same_ends of bpf/conntrack.h.
func (d *Driver) sameEnds(k connKey, c conn) bool {
	same := func(ip addr, hand uint32) bool { return hand == 0 || hand == d.hosts.have[d.keyOf(k.Domain, ip)].Hand }
	return same(k.Lo, c.LoHand) && same(k.Hi, c.HiHand)
}

// tellLiving tells of connections that live for as long as there is time for it
// in this second.
func (m *monitor) tellLiving() {
	for m.asked < askShare {
		a, n, ends, audits, ok := m.next()
		if !ok {
			return
		}
		began := time.Now()
		for _, at := range ends {
			said := at.asked.Judge(at.set)
			for _, s := range at.audits {
				if !audits[desired.Audit{Set: at.set.ID, Audited: s.ID}] {
					continue
				}
				if e, differs := at.asked.Would(said, s); differs {
					m.queue.Send(a.Event(n).About(e))
				}
			}
			if !said.Pass {
				break
			}
		}
		m.asked += time.Since(began)
	}
}

// next takes connections that are alike, with their ends that have a policy.
func (m *monitor) next() (a driver.Alike, n driver.Count, ends []end, audits map[desired.Audit]bool, ok bool) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	for len(m.living) > 0 && len(m.living[0].conns) == 0 {
		m.living = m.living[1:]
	}
	if len(m.living) == 0 {
		return a, n, nil, nil, false
	}
	audits = m.living[0].audits
	for a, n = range m.living[0].conns {
		break
	}
	delete(m.living[0].conns, a)
	for _, x := range []struct {
		dir  model.Direction
		port string
		peer addr
	}{{model.Out, a.From, toAddr(a.Dst)}, {model.In, a.To, toAddr(a.Src)}} {
		o, local := m.d.last.Ports.Get(x.port)
		if !local {
			continue
		}
		if at, in := m.d.endOf(x.dir, uint32(o.Policies), m.d.peerAt(uint32(a.Network), x.peer, a.Routed), a.Proto, a.DstPort); in {
			ends = append(ends, at)
		}
	}
	return a, n, ends, audits, true
}
