package hostservices

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
)

// clientFilter is where the programs are under clsact, before the driver's.
var clientFilter = bpfattach.Filter{Priority: 0xc016, Handle: 0xc0, Name: "contiv-services"}

// Clients redirects packets of clients outside to the data plane. One goroutine at a time may
// use it.
type Clients struct {
	pins    string
	repairs Repairs
	of      *ebpf.Collection
	tcx     bool
	ids     map[*ebpf.Program]ebpf.ProgramID
	want    map[placeKey]uint32
	node    map[addr]uint32
	same    bool // want and node are in the maps

	places table[placeKey, uint32]
	nodes  table[addr, uint32]
	links  map[string]link.Link // by interface
	known  bool                 // the maps and programs are as they were last applied
	at     map[int]string       // interfaces with programs, by index
}

// clientSettings is struct settings of bpf/clients.c.
type clientSettings struct {
	Device                  uint32
	MAC                     [6]byte
	_                       [2]uint8
	PrivateNet, PrivateMask [2]addr
}

// Path is where packets of clients come from, and where they are redirected to.
type Path struct {
	Device     string          // the host's own interface to the data plane; empty = there is none
	Private    [2]netip.Prefix // host-local NAT addresses, of IPv4 and IPv6, which no client has; zero = none
	Interfaces []string        // Ethernet interfaces that clients use
}

// OpenClients loads the programs. pins is a directory on a BPF file system, in which programs
// and maps outlive this process.
func OpenClients(pins string, repairs Repairs) (*Clients, error) {
	spec, err := loadClients()
	if err != nil {
		return nil, fmt.Errorf("services for clients outside: %w", err)
	}
	c := &Clients{pins: pins, repairs: repairs, ids: map[*ebpf.Program]ebpf.ProgramID{}, want: map[placeKey]uint32{}, node: map[addr]uint32{}}
	if c.of, err = loadPinned(spec, pins); err != nil {
		return nil, fmt.Errorf("services for clients outside: %w", err)
	}
	for _, p := range c.of.Programs {
		info, err := p.Info()
		if err != nil {
			c.of.Close()
			return nil, fmt.Errorf("services for clients outside: %w", err)
		}
		c.ids[p], _ = info.ID()
	}
	c.tcx = bpfattach.HaveTCX(c.of.Programs["from_client"])
	return c, nil
}

// Set says whether packets to a place are redirected.
func (c *Clients) Set(at Place, served bool) { c.same = put(c.want, toPlaceKey(at), served) && c.same }

// SetNode says whether an address is this node's.
func (c *Clients) SetNode(a netip.Addr, is bool) { c.same = put(c.node, toAddr(a), is) && c.same }

// put reports whether it already was so.
func put[K comparable](all map[K]uint32, k K, is bool) (same bool) {
	same = all[k] != 0 == is
	if is {
		all[k] = 1
	} else {
		delete(all, k)
	}
	return same
}

// Apply writes the maps and attaches the programs. With look, it reads first what is there.
func (c *Clients) Apply(p Path, look bool) error {
	load, repairs, were := look || !c.known, Repairs(noRepairs{}), c.at
	if c.known {
		repairs = c.repairs
	}
	c.known = false
	if load {
		if err := errors.Join(c.places.load(c.of.Maps, "places", repairs), c.nodes.load(c.of.Maps, "node_addresses", repairs), c.readAttached()); err != nil {
			return fmt.Errorf("services for clients outside: %w", err)
		}
		for index, name := range were {
			if _, err := net.InterfaceByIndex(index); err == nil && c.at[index] != name {
				repairs.Program("services at " + name)
			}
		}
		c.same = false
	}
	if err := errors.Join(c.write(p), c.attach(p, load)); err != nil {
		return fmt.Errorf("services for clients outside: %w", err)
	}
	c.known = true
	return nil
}

func (c *Clients) write(p Path) error {
	var failed []error
	if !c.same {
		failed = append(failed, match(&c.places, c.want), match(&c.nodes, c.node))
	}
	var s clientSettings
	if p.Device != "" {
		device, err := netlink.LinkByName(p.Device) // asks for it alone, where net.InterfaceByName lists all
		if err != nil {
			return fmt.Errorf("interface %s: %w", p.Device, err)
		}
		s.Device = uint32(device.Attrs().Index) //nolint:gosec // a positive number
		copy(s.MAC[:], device.Attrs().HardwareAddr)
		for i, x := range p.Private {
			if x.IsValid() {
				s.PrivateNet[i], s.PrivateMask[i] = toAddr(x.Masked().Addr()), maskOf(x)
			}
		}
	}
	err := errors.Join(append(failed, c.of.Maps["client_settings"].Put(uint32(0), s))...)
	c.same = err == nil
	return err
}

func maskOf(p netip.Prefix) (m addr) {
	bits := p.Bits() + 128 - p.Addr().BitLen()
	copy(m[:], net.CIDRMask(bits, 128))
	return m
}

// attach has the programs on the interfaces of a path, and on no others. read: c.at was
// read just now, so the programs there may be others.
func (c *Clients) attach(p Path, read bool) error {
	want := map[int]string{}
	var failed []error
	for i, name := range append([]string{p.Device}, p.Interfaces...) {
		if name == "" || p.Device == "" {
			continue
		}
		at, err := netlink.LinkByName(name)
		if err != nil {
			if i == 0 {
				failed = append(failed, fmt.Errorf("interface %s: %w", name, err))
			}
			continue // it is gone
		}
		want[at.Attrs().Index] = name
	}
	for index, name := range c.at {
		if want[index] != name {
			failed = append(failed, c.detach(name, index))
		}
	}
	for index, name := range want {
		prog := c.of.Programs["from_client"]
		if name == p.Device {
			prog = c.of.Programs["to_client"]
		}
		if !read && c.at[index] == name {
			continue
		}
		if err := c.attachTo(name, index, prog); err != nil {
			failed = append(failed, err)
			continue
		}
		c.at[index] = name
	}
	return errors.Join(failed...)
}

const linkPrefix = "link-"

// readAttached finds the interfaces that have programs.
func (c *Clients) readAttached() error {
	c.closeLinks()
	c.at, c.links = map[int]string{}, map[string]link.Link{}
	entries, err := os.ReadDir(c.pins)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), linkPrefix)
		if !ok {
			continue
		}
		l, err := link.LoadPinnedLink(filepath.Join(c.pins, e.Name()), nil)
		if err != nil {
			if err := os.RemoveAll(filepath.Join(c.pins, e.Name())); err != nil {
				return err
			}
			continue
		}
		index := bpfattach.LinkedTo(l)
		if index == 0 {
			if err := bpfattach.RemoveLink(l); err != nil {
				return err
			}
			continue
		}
		c.links[name], c.at[index] = l, name
	}
	if c.tcx {
		return nil
	}
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range all {
		if f, err := clientFilter.Find(i.Index, true); err == nil && f != nil {
			c.at[i.Index] = i.Name
		}
	}
	return nil
}

func (c *Clients) attachTo(name string, index int, prog *ebpf.Program) error {
	if !c.tcx {
		_, err := clientFilter.Ensure(name, index, true, prog, c.ids[prog])
		return err
	}
	if l := c.links[name]; l != nil {
		if bpfattach.LinkedTo(l) == index && l.Update(prog) == nil {
			return nil
		}
		delete(c.links, name)
		if err := bpfattach.RemoveLink(l); err != nil {
			return err
		}
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: prog, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	if err != nil {
		return fmt.Errorf("interface %s: attach: %w", name, err)
	}
	if err := bpfattach.PinLink(l, filepath.Join(c.pins, linkPrefix+name)); err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	c.links[name] = l
	return nil
}

func (c *Clients) detach(name string, index int) error {
	delete(c.at, index)
	if l := c.links[name]; l != nil {
		delete(c.links, name)
		return bpfattach.RemoveLink(l)
	}
	return clientFilter.Remove(index, true)
}

func (c *Clients) closeLinks() {
	for _, l := range c.links {
		_ = l.Close() // it stays pinned
	}
}

// Close leaves the programs running.
func (c *Clients) Close() {
	c.closeLinks()
	c.of.Close()
}

// RemoveClients takes the programs for clients outside off all interfaces, and removes what
// any process has pinned for them in a directory. Without the directory there are none.
func RemoveClients(pins string) error {
	if _, err := os.Stat(pins); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	all, err := net.Interfaces()
	failed := []error{err}
	for _, i := range all {
		failed = append(failed, clientFilter.Remove(i.Index, true))
	}
	return errors.Join(append(failed, Remove(pins))...)
}
