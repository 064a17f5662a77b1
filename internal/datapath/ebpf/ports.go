package ebpf

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ports are the programmed interfaces of containers. Driver.mu guards it.
type ports struct {
	Ports    table[uint32, port]   `map:"ports"`    // by interface index
	Privates table[uint32, uint32] `map:"privates"` // interface index by private address

	obj       *objects
	att       *attacher
	devices   *devices
	bandwidth *bandwidth
	endpoints *endpoints
	networks  *networks
	policies  *policies
	repairs   repairs

	indexes  map[string]int               // interface index of each programmed port
	endpoint map[string]model.EndpointKey // by port
	down     map[int]bool                 // indexes of interfaces that are down
	verified time.Time                    // when Apply last looked at the programs of every port
	overlaid map[string]error             // interfaces with foreign programs before ours; "" = devices
	private  map[netip.Addr]string        // in an Apply, ports by private address
}

// load initialises the state from the tables.
func (p *ports) load() {
	p.indexes, p.endpoint, p.down, p.overlaid = map[string]int{}, map[string]model.EndpointKey{}, map[int]bool{}, map[string]error{}
}

// begin resets the state of the last Apply.
func (p *ports) begin() {
	p.Ports.begin()
	p.Privates.begin()
	p.private = map[netip.Addr]string{}
}

// nameOf returns the port of an interface index, empty if there is none.
func (p *ports) nameOf(index int) string {
	for name, i := range p.indexes {
		if i == index {
			return name
		}
	}
	return ""
}

// names returns the ports by interface index.
func (p *ports) names() map[uint32]string {
	out := map[uint32]string{}
	for name, i := range p.indexes {
		out[uint32(i)] = name
	}
	return out
}

// verifyEvery is how often Apply checks whether every port still has its programs, beyond
// changed ports and ports on another interface.
const verifyEvery = 10 * time.Second

// verifyAll reports whether this Apply looks at the programs of every port.
func (p *ports) verifyAll(run *applyRun) bool {
	if !run.scratch && time.Since(p.verified) < verifyEvery {
		return false
	}
	p.verified = time.Now()
	return true
}

// put programs the ports. One that cannot be keeps the programs on its
// interface, which drop everything.
func (p *ports) put(run *applyRun) error {
	ask, err := newIndexer()
	if err != nil {
		return err
	}
	defer ask.close()
	elsewhere := servedByOtherDir(run.tunnelErr)
	if err := p.putMoved(run, ask); err != nil {
		return err
	}
	for name, o := range run.want.Ports.All() {
		if _, ours := p.indexes[name]; elsewhere != nil && !ours {
			run.rep.Ports.Set(name, driver.PortStatus{Err: elsewhere})
			continue
		}
		wrong := p.checkPort(run, name, o)
		index, err := p.closePort(run, name, o, ask)
		if err = cmp.Or(wrong, err); err == nil {
			err = p.putPort(run, name, uint32(index), o)
		}
		if err == nil && p.down[index] {
			err = driver.DownError(name)
		}
		run.rep.Ports.Set(name, driver.PortStatus{Err: err})
		if fatal(err) {
			return err
		}
	}
	if run.verify {
		return p.checkOthers()
	}
	return nil
}

// closePort puts the programs on a port's interface, where they are not known
// to be.
func (p *ports) closePort(run *applyRun, name string, o *desired.Port, ask indexer) (int, error) {
	index, err := ask.index(name)
	if err == nil && index == 0 {
		err = model.Errorf(model.ErrNotFound, "interface %s does not exist", name)
	}
	if err == nil && (run.verify || p.indexes[name] != index) {
		if p.down[index], err = ask.isDown(name); err == nil {
			err = p.attachPort(run, name, index)
		}
	}
	if err == nil {
		p.att.wanted[name], p.indexes[name], p.endpoint[name] = true, index, o.Endpoint
	}
	return index, err
}

func (p *ports) attachPort(run *applyRun, name string, index int) error {
	known := p.indexes[name] == index
	in, err := p.att.attachPort(name, index, true, p.obj.FromContainer)
	p.repairs.program(known && in, name)
	run.count(in)
	if err != nil {
		return err
	}
	out, err := p.att.attachPort(name, index, false, p.obj.ToContainer)
	p.repairs.program(known && out, name)
	run.count(out)
	return err
}

func (p *ports) putPort(run *applyRun, name string, index uint32, o *desired.Port) error {
	n := run.networks[o.Network]
	if old, ok := run.last.Ports.Get(name); ok && *old != *o {
		p.forget(run, old)
	}
	hosts, at := addresses(n, o.MAC, o.IPv4, o.IPv6), stationKey{Net: uint32(o.Network), MAC: o.MAC}
	if err := errors.Join(p.endpoints.Hosts.room(hosts...), p.endpoints.Stations.room(at), p.Ports.room(index)); err != nil {
		return err
	}
	s := stationPort{index, uint32(o.Policies)}
	p.networks.setPort(uint32(o.Network), name, s)
	slot, err := p.slotOf(index)
	if err != nil {
		return err
	}
	if p.policies.rewritten[o.Policies] {
		p.endpoints.generations.add(hosts...)
	}
	defer p.endpoints.generations.addSince(hosts, run.w.changes)
	if err := p.endpoints.putStation(run, index, o, hosts); err != nil {
		return err
	}
	entry := port{
		Net: uint32(o.Network), Domain: uint32(n.Domain()), Tag: n.Tag, Encap: toEncap(n.Encap), Identity: uint32(o.Identity), Set: uint32(o.Policies),
		IP4: toAddr(o.IPv4), IP6: toAddr(o.IPv6), MAC: o.MAC, Slot: slot, RouterIP: ipv4Word(n.Router()), RouterIP6: toAddr(n.Router6()),
		Subnet: ipv4Word(n.Subnet.Masked().Addr()), Mask: maskWord(n.Subnet), Subnet6: toAddr(n.Subnet6.Masked().Addr()), Mask6: toMask(n.Subnet6),
	}
	if n.Routed && run.want.HostNAT != nil {
		entry.Routed = 1
	}
	if err := p.putEgress(run, index, o, n, &entry); err != nil {
		return err
	}
	return p.putRated(run, name, index, entry, o.OnHost)
}

func (p *ports) forget(run *applyRun, o *desired.Port) {
	p.endpoints.replace(o.Network, o.MAC, run.oldAddresses(o.Network, o.MAC, o.IPv4, o.IPv6))
	if want, ok := run.want.Ports.Get(o.IfName); !ok || want.Network != o.Network || run.rep.Ports.Err(o.IfName) != nil {
		p.networks.removePort(uint32(o.Network), o.IfName)
	}
}

// forgetGone calls forget for ports that are gone or could not be programmed.
func (p *ports) forgetGone(run *applyRun) error {
	for name, o := range run.last.Ports.All() {
		if !p.att.wanted[name] || run.rep.Ports.Err(name) != nil {
			p.forget(run, o)
		}
	}
	return nil
}

// remove closes the ports that are not wanted, then takes the programs off.
func (p *ports) remove(run *applyRun) error {
	names := map[int]string{}
	for name, index := range p.indexes {
		names[index] = name
	}
	for index, o := range p.Ports.have {
		if p.Ports.wanted[index] {
			continue
		}
		p.bandwidth.dropQueue(run, index, o)
		if err := p.Ports.del(index); err != nil {
			return err
		}
		if name := names[int(index)]; !p.att.wanted[name] {
			if err := p.att.detach(name, int(index)); err != nil {
				run.problem("port "+name, err)
			}
		}
	}
	for name := range p.att.attached() {
		if p.att.wanted[name] {
			continue
		}
		if err := p.att.detach(name, 0); err != nil {
			run.problem("port "+name, err)
		}
		run.count(true)
	}
	for name := range p.indexes {
		if !p.att.wanted[name] {
			delete(p.indexes, name)
			p.bandwidth.forget(name)
			delete(p.endpoint, name)
		}
	}
	return nil
}

func (p *ports) checkPort(run *applyRun, name string, o *desired.Port) error {
	switch {
	case name == "" || len(name) > 15 || strings.ContainsAny(name, "/:\t\n ") || name != o.IfName:
		return model.Errorf(model.ErrInvalid, "interface name %q must be 1-15 bytes without slash, colon or space", o.IfName)
	case run.networks[o.Network] == nil:
		return model.Errorf(model.ErrNotFound, "network %d does not exist", o.Network)
	case o.MAC == (model.MAC{}) || o.MAC[0]&1 != 0:
		return model.Errorf(model.ErrInvalid, "MAC %s is not a unicast address", o.MAC)
	case p.policies.refused[o.Policies].err != nil:
		return p.policies.refused[o.Policies].err
	}
	if o.Policies != 0 {
		if s, ok := run.want.PolicySets.Get(o.Policies); !ok || s.ID != o.Policies || s.Audited != "" {
			return model.Errorf(model.ErrNotFound, "policy set %d does not exist", o.Policies)
		}
	}
	return p.checkPrivate(run, o)
}

// putMoved makes ports of renumbered networks found under the new numbers before the first
// of them sends there. A port that does not fit is reported.
func (p *ports) putMoved(run *applyRun, ask indexer) error {
	if len(p.networks.moved) == 0 {
		return nil
	}
	for name, o := range run.want.Ports.All() {
		index, err := ask.index(name)
		was, there := p.Ports.have[uint32(index)]
		if err != nil || !there || was.Net == uint32(o.Network) || p.checkPort(run, name, o) != nil {
			continue
		}
		hosts, before := addresses(run.networks[o.Network], o.MAC, o.IPv4, o.IPv6), run.w.changes
		if err := p.endpoints.putStation(run, uint32(index), o, hosts); fatal(err) {
			return err
		}
		p.endpoints.generations.addSince(hosts, before)
	}
	return nil
}

// slotOf returns the place of a port's counters. A new port gets a free one,
// with nothing in it.
func (p *ports) slotOf(index uint32) (uint32, error) {
	if have, ok := p.Ports.have[index]; ok {
		return have.Slot, nil
	}
	most := p.obj.PortCounters.MaxEntries()
	used := make([]bool, most)
	for _, o := range p.Ports.have {
		if o.Slot < most {
			used[o.Slot] = true
		}
	}
	slot := slices.Index(used, false)
	if slot < 0 {
		return 0, model.Errorf(model.ErrExhausted, "a host has at most %d ports", most)
	}
	if err := p.obj.PortCounters.Put(uint32(slot), make([]portCounter, cpus())); err != nil {
		return 0, writeError{fmt.Errorf("write map port_counters: %w", err)}
	}
	return uint32(slot), nil
}

// indexer asks for interface indexes, at a hundredth of what netlink takes.
type indexer struct{ fd int }

func newIndexer() (indexer, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return indexer{}, fmt.Errorf("ask for interfaces: %w", err)
	}
	return indexer{fd}, nil
}

func (x indexer) close() { _ = unix.Close(x.fd) } // nothing was written

// isDown reports whether an interface is set down.
func (x indexer) isDown(name string) (bool, error) {
	req, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(x.fd, unix.SIOCGIFFLAGS, req)
	}
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", name, err)
	}
	return req.Uint16()&unix.IFF_UP == 0, nil
}

// index returns the index of an interface, 0 when there is none.
func (x indexer) index(name string) (int, error) {
	req, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(x.fd, unix.SIOCGIFINDEX, req)
	}
	if errors.Is(err, unix.ENODEV) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	return int(int32(req.Uint32())), nil
}
