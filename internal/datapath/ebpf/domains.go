package ebpf

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// linkLocal tells whether an address is unique on its network only: what
// space_of of bpf/packet.h asks.
func (a addr) linkLocal() bool { return a[0] == 0xfe && a[1]&0xc0 == 0x80 }

// addresses are the keys of an endpoint's addresses.
func addresses(n *desired.Network, mac model.MAC, ips ...netip.Addr) []hostKey {
	out := []hostKey{{uint32(n.ID), toAddr(mac.LinkLocal())}}
	for _, a := range ips {
		if a.IsValid() {
			out = append(out, hostKey{uint32(n.Domain()), toAddr(a)})
		}
	}
	return out
}

// stray is 1 of an address that is in none of its network's subnets.
func stray(n *desired.Network, k hostKey) uint8 {
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

// keyOf is the key of an address, by its domain or a network of it.
func (d *Driver) keyOf(space uint32, a addr) hostKey {
	if n, ok := d.last.Networks.Get(model.NetworkID(space)); ok && uint32(n.ID) == space && !a.linkLocal() {
		space = uint32(n.Domain())
	}
	return hostKey{space, a}
}

// rejoin gives the addresses of networks whose domain changes a second entry,
// under the new one, before anything asks for them there, and so their open
// connections, which are judged anew then. The former entries go when nothing asks
// for them any more.
func (p *applyRun) rejoin() error {
	moved := map[uint32]uint32{} // domains, by network
	for _, s := range p.tags.have {
		if n := p.networks[model.NetworkID(s.Net)]; n != nil && uint32(n.Domain()) != s.Domain {
			moved[s.Net] = uint32(n.Domain())
		}
	}
	if len(moved) == 0 {
		return nil
	}
	again := map[hostKey]hostEntry{}
	for k, v := range p.hosts.have {
		if domain, ok := moved[v.Net]; ok && !k.IP.linkLocal() {
			again[hostKey{domain, k.IP}] = v
		}
	}
	if err := p.partTranslations(moved); err != nil {
		return err
	}
	conns := map[connKey]conn{}
	err := eachEntry("conns", p.obj.Conns, 1, func(k connKey, v conn) {
		if v.State&connService != 0 {
			return // it ends
		}
		lo, hi := p.hosts.have[hostKey{k.Domain, k.Lo}].Net, p.hosts.have[hostKey{k.Domain, k.Hi}].Net
		domain, ok := moved[max(lo, hi)]
		if !ok || lo != 0 && hi != 0 && moved[lo] != moved[hi] {
			return // of others, or between what is not joined any more
		}
		p.oldConns = append(p.oldConns, k)
		k.Domain = domain
		conns[k] = v
	})
	if err != nil {
		return err
	}
	for k, v := range again {
		if err := p.hosts.put(k, v); fatal(err) {
			return err
		}
		delete(p.hosts.wanted, k) // that is for the picture to say
	}
	for k, v := range conns {
		if err := p.obj.Conns.Put(k, v); err != nil {
			return fmt.Errorf("write map conns: %w", err)
		}
	}
	return nil
}

// partTranslations finds the translations of a former domain: they end, since the
// virtual address of another domain is another one, and the connections behind them.
// What is behind a client that is its own backend has the key of its network, not its
// domain, and would be met again by IPv6.
func (p *applyRun) partTranslations(moved map[uint32]uint32) error {
	p.parted = map[connKey]bool{}
	return eachEntry("translations", p.obj.Translations, 1, func(_ connKey, t translation) {
		for _, a := range []addr{t.Front.Lo, t.Backend} {
			if domain, ok := moved[p.hosts.have[hostKey{t.Front.Domain, a}].Net]; ok && domain != t.Front.Domain {
				p.parted[t.Front] = true
			}
		}
	})
}

// removeConns removes the former entries of connections that rejoin has copied, and
// the translations that partTranslations has found.
func (p *applyRun) removeConns() error {
	if len(p.parted) > 0 {
		if err := p.endTranslations(func(t translation) bool { return p.parted[t.Front] }); err != nil {
			return err
		}
	}
	for _, k := range p.oldConns {
		if err := p.obj.Conns.Delete(k); err != nil && !isNotExist(err) {
			return fmt.Errorf("write map conns: %w", err)
		}
	}
	return nil
}

// putSubnets writes which addresses are of a joined network.
func (p *applyRun) putSubnets(n *desired.Network) error {
	if n.Joined == 0 {
		return nil
	}
	for _, s := range []netip.Prefix{n.Subnet, n.Subnet6} {
		if !s.IsValid() {
			continue
		}
		if err := p.subnets.put(toSubnetKey(n.Domain(), s), uint32(n.ID)); err != nil {
			return err
		}
	}
	return nil
}

// oldAddresses are the keys that the picture before had for an endpoint.
func (p *applyRun) oldAddresses(id model.NetworkID, mac model.MAC, ips ...netip.Addr) []hostKey {
	n, ok := p.last.Networks.Get(id)
	if !ok {
		return nil
	}
	return addresses(n, mac, ips...)
}
