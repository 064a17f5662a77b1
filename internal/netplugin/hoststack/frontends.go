package hoststack

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"

	"github.com/contiv/netplugin/v2/internal/model"
)

// ServicesTable is our table in nftables, of families ip and ip6, that leads connections
// of this host's processes and of clients outside to backends of services.
const ServicesTable = "contiv-services"

// FrontendAddr is where a service is asked: at an address, or (unspecified: 0.0.0.0, ::) at
// each address of this host that Frontends.SetNode was told of.
type FrontendAddr struct {
	Addr  netip.Addr
	Proto model.Protocol
	Port  uint16
}

// Frontend says where connections to one FrontendAddr go.
type Frontend struct {
	Own     Choice // connections of this host's processes, and of its containers
	Outside Choice // all others
	// Sources are the clients that are taken; the others are dropped. Empty = all.
	Sources []netip.Prefix
	// Affinity is how long a client stays with its backend after its last new connection;
	// 0 = each connection is chosen for by itself.
	Affinity time.Duration
	// Keep are the backends whose UDP connections go on, sorted: the eligible ones, and
	// more.
	Keep []netip.AddrPort
	// Reserved: it is a node's port, and backends answer at another one, so that processes of
	// this host have no use for it.
	Reserved bool
}

// Choice is among whom a backend is chosen.
type Choice struct {
	Targets []Target // sorted, each once
	// Drop: packets are dropped while there are no Targets; otherwise they are refused.
	Drop bool
}

// Target is a backend, where it is for the clients' addresses' sake.
type Target struct {
	netip.AddrPort
	Location Location
}

// Location a backend is.
type Location uint8

// The places.
const (
	Local     Location = iota // a container of this host
	OtherHost                 // a container of another host, which takes no machine's address (Frontends.SetMachine) by this one's tunnel
	External                  // no container that the data plane leads to: it would not answer by this host
)

// CompareTargets orders them.
func CompareTargets(a, b Target) int { return a.Compare(b.AddrPort) }

// Frontends serves addresses of services with nftables, in the network namespace of the
// thread that calls Apply: one look-up for a connection's first packet, whatever there
// is beside, and one small transaction for a service's change. What is translated gets no
// mark, so that it is judged. One goroutine at a time may use it.
type Frontends struct {
	log       *slog.Logger
	repairs   Repairs
	frontends map[FrontendAddr]*Frontend
	nodes     map[netip.Addr]bool
	machines  map[netip.Addr]bool
	stale     map[FrontendAddr]bool // whose connections are to be looked at
	six       [2]*frontendTable     // of IPv4, of IPv6
	place     InterfaceConfig       // in the tables; zero = there are none
	known     bool                  // what the kernel has is what the tables say
	seen      bool                  // the places that an earlier process led are in stale
}

// NewFrontends returns Frontends that know nothing. repairs hears of what
// they put back.
func NewFrontends(log *slog.Logger, repairs Repairs) *Frontends {
	return &Frontends{
		log: log, repairs: repairs, frontends: map[FrontendAddr]*Frontend{}, nodes: map[netip.Addr]bool{}, machines: map[netip.Addr]bool{}, stale: map[FrontendAddr]bool{},
		six: [2]*frontendTable{newFrontendTable(nftables.TableFamilyIPv4), newFrontendTable(nftables.TableFamilyIPv6)},
	}
}

// Set says what is at a place; nil = nothing.
func (s *Frontends) Set(at FrontendAddr, f *Frontend) {
	was := s.frontends[at]
	t := s.tableOf(at.Addr)
	if was != nil {
		t.contribute(at, was, -1)
		t.noteLostTargets(at, was, f)
	}
	if f != nil {
		t.contribute(at, f, 1)
		s.frontends[at] = f
	} else {
		delete(s.frontends, at)
	}
	lost := func(a netip.AddrPort) bool {
		_, has := slices.BinarySearchFunc(f.Keep, a, netip.AddrPort.Compare)
		return !has
	}
	// Reading what the kernel tracks costs more than all else.
	if f == nil || at.Proto == model.ProtoUDP && (was == nil || slices.ContainsFunc(was.Keep, lost)) {
		s.stale[at] = true
	}
}

// SetNode says whether services are asked at ports of an address, where this host has it.
func (s *Frontends) SetNode(a netip.Addr, is bool) { s.put(s.nodes, setNodes, a, is) }

// SetMachine says whether an address is another machine's of the cluster.
func (s *Frontends) SetMachine(a netip.Addr, is bool) { s.put(s.machines, setMachines, a, is) }

func (s *Frontends) put(all map[netip.Addr]bool, in string, a netip.Addr, is bool) {
	switch {
	case all[a] == is:
	case is:
		all[a] = true
		s.tableOf(a).want(element{in, string(a.AsSlice())}, "", 1)
	default:
		delete(all, a)
		s.tableOf(a).want(element{in, string(a.AsSlice())}, "", -1)
	}
}

// At returns what is at a place; nil = nothing.
func (s *Frontends) At(at FrontendAddr) *Frontend { return s.frontends[at] }

// Len is how many frontends there are.
func (s *Frontends) Len() int { return len(s.frontends) }

func (s *Frontends) tableOf(a netip.Addr) *frontendTable {
	if a.Is6() {
		return s.six[1]
	}
	return s.six[0]
}

// InterfaceConfig is where Frontends work.
type InterfaceConfig struct {
	Device  string        // the interface behind which containers are; empty = nowhere: no tables
	Sources [2]netip.Addr // this host's, of IPv4 and of IPv6, as other hosts know it; zero = none
}

// Apply makes the tables be so. With look, what there is is read first.
func (s *Frontends) Apply(ctx context.Context, at InterfaceConfig, look bool) error {
	if at.Device == "" && s.place.Device == "" && s.known && !look {
		return nil
	}
	err := s.apply(ctx, at, look)
	if s.known = err == nil; s.known {
		s.place = at
		s.forgetStale()
	}
	return err
}

func (s *Frontends) apply(ctx context.Context, at InterfaceConfig, look bool) error {
	if !s.seen { // connections from before may lead anywhere
		for _, t := range s.six {
			led, err := t.inKernel()
			if err != nil {
				return err
			}
			maps.Copy(s.stale, led)
		}
		for at := range s.frontends {
			s.stale[at] = true
		}
		s.seen = true
	}
	first := !s.known || at != s.place
	for i, t := range s.six {
		if at.Device == "" {
			if err := t.remove(); err != nil {
				return err
			}
			continue
		}
		t.at, t.source = at.Device, at.Sources[i]
		if first || look {
			changed, err := t.read()
			if err != nil {
				return err
			}
			if changed && !first {
				s.repairs.Rules(familyName(t.table.Family) + " " + ServicesTable)
			}
		}
	}
	if at.Device == "" {
		return nil
	}
	for _, t := range s.six {
		if err := t.write(ctx); err != nil {
			return err
		}
		if err := s.forgetClients(t); err != nil {
			return err
		}
	}
	return nil
}

// digest names what a table is made from.
func digest(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:16])
}

// disjoint are the prefixes, sorted, without the ones that another one contains.
func disjoint(all []netip.Prefix, v6 bool) (out []netip.Prefix) {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Masked().Addr().Compare(b.Masked().Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for _, p := range sorted {
		if p.Addr().Is6() == v6 && (len(out) == 0 || !out[len(out)-1].Overlaps(p)) {
			out = append(out, p.Masked())
		}
	}
	return out
}

// lastOf is the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
