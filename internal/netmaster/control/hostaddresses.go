package control

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Which addresses count as a host's for the rest of the cluster. A host reports its
// addresses itself, and other hosts send tunnels to them and deny them to containers.
// So a host that authenticates itself may report only addresses that are enrolled.

// MaxAddedAddresses bounds the addresses that administrators add to one host.
const MaxAddedAddresses = 64

// addressEnrollment is what a report makes of a host's addresses.
type addressEnrollment struct {
	now   tables.HostAddresses
	added []netip.Addr // to now.Enrolled, by this report
}

// enrollAddresses checks the addresses that a host reports as its own, and writes the proven ones. It
// removes addresses from r that may not count. The error is a Taken.
func (hl *HostLeases) enrollAddresses(a Actor, tx store.Tx, r *HostReport, record tables.Row[model.Host]) (e addressEnrollment, err error) {
	if a.origin == nil {
		return e, nil
	}
	origin := *a.origin
	row, err := tables.HostAddressRows.Find(tx, tables.HostAddressesKey{Host: r.Name})
	if err != nil {
		return e, err
	}
	e.now = row.Value
	e.now.Host, e.now.Enrolled, e.now.Certified = r.Name, slices.Clone(e.now.Enrolled), true
	// A certificate, and a record of a version without enrolment, count once.
	first := !row.Value.Certified && len(row.Value.Enrolled) == 0
	uses := func(h model.Host, a netip.Addr) bool { return a == h.Control || a == h.VTEP || a == h.IPv6 }
	for _, x := range []struct {
		name string
		at   netip.Addr
		may  bool // be left out: others do without it
	}{{"control address", r.Control, false}, {"tunnel address", r.VTEP, false}, {"IPv6 address", r.IPv6, true}} {
		known := slices.Contains(e.now.Enrolled, x.at)
		if !x.at.IsValid() || x.at.IsLoopback() || slices.Contains(e.now.Added, x.at) || slices.Contains(e.added, x.at) ||
			known && uses(record.Value, x.at) {
			continue
		}
		why := "is not enrolled for this host, and the connection comes from " + origin.From.String()
		if known || x.at == origin.From || first && (slices.Contains(origin.Certified, x.at) || uses(record.Value, x.at)) {
			if why, err = hl.whyNotHostAddress(tx, r.Name, x.at, first); err != nil {
				return e, err
			}
		}
		switch {
		case why == "":
			e.added = append(e.added, x.at)
		case x.may:
			r.IPv6 = netip.Addr{}
		default:
			what := fmt.Sprintf("if it is right, an administrator adds it with 'netctl host address-add %s %s'", r.Name, x.at)
			if n, in := hl.networkAt(x.at); in {
				what = fmt.Sprintf("give the host an address outside of network %s, or delete the network", n)
			}
			return e, LeaseTakenError{Text: fmt.Sprintf("%s %s of host %q %s: %s", x.name, x.at, r.Name, why, what)}
		}
	}
	r.Listening = slices.DeleteFunc(slices.Clone(r.Listening), func(at netip.AddrPort) bool {
		return !uses(r.Host, at.Addr()) && !slices.Contains(e.now.Added, at.Addr())
	})
	// An address that the host has moved away from may be another machine's. An IPv6 address
	// may be missing for a while only.
	e.now.Enrolled = slices.DeleteFunc(append(e.now.Enrolled, e.added...), func(a netip.Addr) bool {
		return !uses(r.Host, a) && (a.Is4() || r.IPv6.IsValid() || a == record.Value.Control || a == record.Value.VTEP)
	})
	slices.SortFunc(e.now.Enrolled, netip.Addr.Compare)
	e.now.Enrolled = slices.Compact(e.now.Enrolled)
	if row.Value.Certified && slices.Equal(e.now.Enrolled, row.Value.Enrolled) {
		return e, nil
	}
	if err := hl.withdrawAddresses(tx, r.Name, e.added); err != nil {
		return e, err
	}
	return e, tables.HostAddressRows.Put(tx, e.now)
}

// withdrawAddresses takes addresses from hosts that had them before and use them no more, such as
// machines that got others by DHCP.
func (hl *HostLeases) withdrawAddresses(tx store.Tx, k model.HostName, addrs []netip.Addr) error {
	of := func(a netip.Addr) bool { return slices.Contains(addrs, a) }
	for _, h := range hl.hostView.hostAddressRows.list("") {
		if h.Host == k || !slices.ContainsFunc(h.Enrolled, of) {
			continue
		}
		row, err := tables.HostAddressRows.Find(tx, tables.HostAddressesKey{Host: h.Host})
		if err != nil {
			return err
		}
		row.Value.Host, row.Value.Enrolled = h.Host, slices.DeleteFunc(slices.Clone(row.Value.Enrolled), of)
		if err := tables.HostAddressRows.Put(tx, row.Value); err != nil {
			return err
		}
	}
	return nil
}

// whyNotHostAddress says why an address cannot be a host's; empty = it can. A host that
// is enrolled for the first time may stand on a netmaster's machine.
func (hl *HostLeases) whyNotHostAddress(tx store.Tx, k model.HostName, a netip.Addr, first bool) (string, error) {
	if n, in := hl.networkAt(a); in {
		return fmt.Sprintf("lies in network %s", n), nil
	}
	for _, h := range hl.hostView.List() {
		if h.Name != k && (a == h.Control || a == h.VTEP || a == h.IPv6) {
			return fmt.Sprintf("is the address of host %s", h.Name), nil
		}
	}
	for _, h := range hl.hostView.hostAddressRows.list("") {
		if h.Host != k && slices.Contains(h.Added, a) {
			return fmt.Sprintf("was added to host %s", h.Host), nil
		}
	}
	if first {
		return "", nil
	}
	if whose := hl.ownerView.reservation(a); whose != "" {
		return whose, nil
	}
	masters, err := netmastersAt(tx)
	if err == nil && slices.Contains(masters, a) {
		return "is the address of a netmaster", nil
	}
	return "", err
}

// networkAt finds a network whose subnets contain an address, among networks that hosts may
// have a route to. A tenant administrator's other networks keep no host out.
func (hl *HostLeases) networkAt(a netip.Addr) (model.NetworkKey, bool) {
	for _, n := range hl.networkView.List("") {
		for _, p := range subnetsOf(n) {
			if n.OnHosts() && p.Contains(a) {
				return n.Key, true
			}
		}
	}
	return model.NetworkKey{}, false
}

// netmastersAt returns where netmasters are registered.
func netmastersAt(tx store.Tx) (at []netip.Addr, err error) {
	registered, err := tx.Range(cluster.MasterScope, 0)
	for _, kv := range registered {
		if s, ok := cluster.Decode(kv); ok {
			if a, err := netip.ParseAddr(s.HostAddr); err == nil {
				at = append(at, a.Unmap())
			}
		}
	}
	return at, err
}

// SetHostAddress adds an address to the ones that count as a host's, or (not add) removes
// it. A host keeps the address that it uses until it reports another.
func (hl *HostLeases) SetHostAddress(ctx context.Context, by Actor, k model.HostName, a netip.Addr, add bool) (HostState, store.Revision, error) {
	a = a.Unmap()
	if !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.Zone() != "" {
		return HostState{}, 0, model.InvalidField("address", a, "must be an address of one host, without a zone")
	}
	if _, err := hl.hosts.Get(ctx, by, k); err != nil {
		return HostState{}, 0, err
	}
	rev, err := hl.commits.update(ctx, by, fmt.Sprintf("set an address of host %q", k), func(tx store.Tx) error {
		row, err := tables.HostAddressRows.Find(tx, tables.HostAddressesKey{Host: k})
		if err != nil {
			return err
		}
		is := func(x netip.Addr) bool { return x == a }
		now := row.Value
		now.Host = k
		if !add {
			if !now.Has(a) {
				return model.Errorf(model.ErrNotFound, "address %s is not enrolled for host %q", a, k)
			}
			now.Enrolled, now.Added = slices.DeleteFunc(slices.Clone(now.Enrolled), is), slices.DeleteFunc(slices.Clone(now.Added), is)
			return tables.HostAddressRows.Put(tx, now)
		}
		if now.Has(a) {
			return nil
		}
		if len(now.Added) >= MaxAddedAddresses {
			return model.Errorf(model.ErrConflict, "host %q has %d added addresses already: remove one first", k, len(now.Added))
		}
		why, err := hl.whyNotHostAddress(tx, k, a, true)
		if err != nil {
			return err
		}
		if why != "" {
			return model.Errorf(model.ErrConflict, "address %s %s", a, why)
		}
		now.Added = append(slices.Clone(now.Added), a)
		slices.SortFunc(now.Added, netip.Addr.Compare)
		return tables.HostAddressRows.Put(tx, now)
	})
	if err != nil {
		return HostState{}, 0, err
	}
	h, err := hl.hosts.Get(ctx, by, k)
	return h, rev, err
}

// describe says what a report enrolled; empty = nothing.
func (e addressEnrollment) describe() string {
	var texts []string
	for _, a := range e.added {
		texts = append(texts, a.String())
	}
	if len(texts) == 0 {
		return ""
	}
	return "enrolled address " + strings.Join(texts, ", ")
}
