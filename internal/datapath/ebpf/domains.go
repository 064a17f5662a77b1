package ebpf

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// linkLocal reports whether an address is unique on its network only: what
// domain_of of bpf/packet.h asks.
func (a addr) linkLocal() bool { return a[0] == 0xfe && a[1]&0xc0 == 0x80 }

// addresses are the keys of an endpoint's addresses.
func addresses(n *desired.Network, mac model.MAC, ips ...netip.Addr) []domainAddr {
	out := []domainAddr{{uint32(n.ID), toAddr(mac.LinkLocal())}}
	for _, a := range ips {
		if a.IsValid() {
			out = append(out, domainAddr{uint32(n.Domain()), toAddr(a)})
		}
	}
	return out
}

// outsideSubnets is 1 of an address that is in none of its network's subnets.
func outsideSubnets(n *desired.Network, k domainAddr) uint8 {
	if n.Contains(k.IP.netip()) {
		return 0
	}
	return 1
}

// toMask is an IPv6 prefix's mask; zero of none.
func toMask(p netip.Prefix) (m addr) {
	if p.IsValid() {
		copy(m[:], net.CIDRMask(p.Bits(), 128))
	}
	return m
}

// conntrack is the state of connections beside the connections themselves. It moves
// connections when the domain of a network changes.
type conntrack struct {
	obj           *objects
	frags         *lru
	translations  *translations
	endpoints     *endpoints
	networks      *networks
	oldConns      []connKey        // in an Apply, keys in the previous domain
	domainChanged map[connKey]bool // likewise, translations by the tuple of the client
}

// begin resets the state of the last Apply.
func (t *conntrack) begin() { t.oldConns, t.domainChanged = nil, nil }

// rejoin gives the addresses of networks whose domain changes a second entry, under the new
// domain, before any lookup happens there. So it does with their open connections, which
// are judged again then. The former entries go when no lookup uses them any more.
func (t *conntrack) rejoin(run *applyRun) error {
	moved := map[uint32]uint32{} // domains, by network
	for _, s := range t.networks.Tags.have {
		if n := run.networks[model.NetworkID(s.Net)]; n != nil && uint32(n.Domain()) != s.Domain {
			moved[s.Net] = uint32(n.Domain())
		}
	}
	if len(moved) == 0 {
		return nil
	}
	again := map[domainAddr]endpointEntry{}
	for k, v := range t.endpoints.Hosts.have {
		if domain, ok := moved[v.Net]; ok && !k.IP.linkLocal() {
			again[domainAddr{domain, k.IP}] = v
		}
	}
	if err := t.markTranslationsOfPreviousDomain(moved); err != nil {
		return err
	}
	conns := map[connKey]conn{}
	err := eachEntry("conns", t.obj.Conns, 1, func(k connKey, v conn) {
		if v.State&connService != 0 {
			return // it ends
		}
		lo, hi := t.endpoints.Hosts.have[domainAddr{k.Domain, k.Lo}].Net, t.endpoints.Hosts.have[domainAddr{k.Domain, k.Hi}].Net
		domain, ok := moved[max(lo, hi)]
		if !ok || lo != 0 && hi != 0 && moved[lo] != moved[hi] {
			return // of others, or between what is not joined any more
		}
		t.oldConns = append(t.oldConns, k)
		k.Domain = domain
		conns[k] = v
	})
	if err != nil {
		return err
	}
	for k, v := range again {
		if err := t.endpoints.Hosts.put(k, v); fatal(err) {
			return err
		}
		delete(t.endpoints.Hosts.wanted, k) // the desired state decides that
	}
	for k, v := range conns {
		if err := t.obj.Conns.Put(k, v); err != nil {
			return fmt.Errorf("write map conns: %w", err)
		}
	}
	return nil
}

// markTranslationsOfPreviousDomain finds the translations of a former domain: they end, since the
// virtual address of another domain is another one, and the connections behind them.
// What is behind a client that is its own backend has the key of its network, not its
// domain, and would be met again by IPv6.
func (t *conntrack) markTranslationsOfPreviousDomain(moved map[uint32]uint32) error {
	t.domainChanged = map[connKey]bool{}
	return eachEntry("translations", t.obj.Translations, 1, func(_ connKey, x translation) {
		for _, a := range []addr{x.ClientKey.Lo, x.Backend} {
			if domain, ok := moved[t.endpoints.Hosts.have[domainAddr{x.ClientKey.Domain, a}].Net]; ok && domain != x.ClientKey.Domain {
				t.domainChanged[x.ClientKey] = true
			}
		}
	})
}

// removeMoved removes the former entries of connections that rejoin has copied, and
// the translations that markTranslationsOfPreviousDomain has found.
func (t *conntrack) removeMoved(*applyRun) error {
	if len(t.domainChanged) > 0 {
		if err := t.translations.end(func(x translation) bool { return t.domainChanged[x.ClientKey] }); err != nil {
			return err
		}
	}
	for _, k := range t.oldConns {
		if err := t.obj.Conns.Delete(k); err != nil && !isNotExist(err) {
			return fmt.Errorf("write map conns: %w", err)
		}
	}
	return nil
}
