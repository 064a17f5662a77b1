package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/contiv/netplugin/v2/internal/store"
)

// ListenService is the service under which every part of the control plane tells
// each address and port that it can be reached at from beyond its machine, so
// that agents keep containers from it. Role says whose it is.
const ListenService = "contiv.listen"

// RoleAgent is the Role of a host's netplugin.
const RoleAgent = "netplugin"

// listeningEvery is how often a machine's addresses are looked at, beside when they change.
const listeningEvery = time.Second

// KeepListening keeps in the registry where this process listens, until ctx ends: s with
// its Role, Version and Hostname, with each address and port of listen (host:port; "",
// 0.0.0.0 and :: stand for all addresses of the machine). Addresses that only the machine
// itself reaches are left out. changed signals that the machine's addresses may have
// changed; nil = never. onError gets errors, after which it goes on.
func KeepListening(ctx context.Context, st store.Store, s Service, listen []string, changed <-chan struct{}, onError func(error)) {
	s.ServiceName, s.TTL = ListenService, int(ServiceTTL/time.Second)
	for retry := newRetry(); ctx.Err() == nil; {
		entered, err := keepListening(ctx, st, s, listen, changed)
		if ctx.Err() != nil {
			return
		}
		if entered {
			retry.Reset()
		}
		if err != nil {
			onError(err)
		}
		if retry.Pause(ctx) != nil {
			return
		}
	}
}

// keepListening does it with one session, and tells whether it has entered all once.
func keepListening(ctx context.Context, st store.Store, s Service, listen []string, changed <-chan struct{}) (entered bool, err error) {
	session, err := st.NewSession(ctx, ServiceLease)
	if err != nil {
		return false, fmt.Errorf("register the addresses of %s: %w", s.Role, err)
	}
	defer func() { _ = session.Close() }() // or its lease ends
	known := map[string]bool{}
	tick := time.NewTicker(listeningEvery)
	defer tick.Stop()
	for {
		if err := enterListening(ctx, st, session, s, Reachable(listen), known); err != nil {
			return entered, fmt.Errorf("register the addresses of %s: %w", s.Role, err)
		}
		entered = true
		select {
		case <-tick.C:
		case <-changed:
		case <-session.Done():
			return true, nil
		case <-ctx.Done():
			return true, nil
		}
	}
}

// enterListening makes the records be those of the addresses; known are the keys
// that are there.
func enterListening(ctx context.Context, st store.Store, session store.Session, s Service, at []netip.AddrPort, known map[string]bool) error {
	type change struct {
		key   string
		value []byte // nil = delete
	}
	var changes []change
	wanted := map[string]bool{}
	for _, ap := range at {
		s.HostAddr, s.Port = ap.Addr().String(), int(ap.Port())
		wanted[s.key()] = true
		if known[s.key()] {
			continue
		}
		b, err := json.Marshal(s)
		if err != nil {
			return err
		}
		changes = append(changes, change{s.key(), b})
	}
	for k := range known {
		if !wanted[k] {
			changes = append(changes, change{key: k})
		}
	}
	for part := range slices.Chunk(changes, 32) { // within what every store takes in one transaction
		_, err := st.Update(ctx, func(tx store.Tx) error {
			for _, c := range part {
				if c.value == nil {
					tx.Delete(c.key)
				} else {
					tx.Put(c.key, c.value, session)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, c := range part {
			known[c.key] = c.value != nil
			if c.value == nil {
				delete(known, c.key)
			}
		}
	}
	return nil
}

// Reachable returns the addresses and ports that a listener on each host:port
// answers at, sorted; addresses that only this machine reaches are left out.
func Reachable(listen []string) []netip.AddrPort {
	var out []netip.AddrPort
	add := func(a netip.Addr, port uint16) {
		if a = a.Unmap().WithZone(""); a.IsGlobalUnicast() {
			out = append(out, netip.AddrPortFrom(a, port))
		}
	}
	for _, text := range listen {
		host, service, err := net.SplitHostPort(text)
		port, bad := strconv.ParseUint(service, 10, 16)
		if err != nil || bad != nil || port == 0 {
			continue
		}
		a, err := netip.ParseAddr(host)
		if host != "" && err == nil && !a.IsUnspecified() {
			add(a, uint16(port))
			continue
		}
		all, err := net.InterfaceAddrs()
		if err != nil || host != "" && !a.IsValid() {
			continue
		}
		for _, n := range all {
			if p, ok := n.(*net.IPNet); ok {
				one, _ := netip.AddrFromSlice(p.IP)
				add(one, uint16(port)) // of both families: 0.0.0.0 is the same as :: to Go's listeners
			}
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}
