package hostsync

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/hostservices"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// clients redirects packets of clients outside to the data plane, for the services whose
// backends the host's stack does not reach by itself.
type clients struct {
	pins    string // empty = no packets are redirected
	repairs hostservices.Repairs
	places  map[hostservices.Place]bool
	nodes   map[netip.Addr]bool
	opened  *hostservices.Clients
	unable  bool // the kernel cannot run the programs

	interfaces []string // by which clients come, as of the last look
}

func newClients(pins string, repairs hostservices.Repairs) *clients {
	return &clients{pins: pins, repairs: repairs, places: map[hostservices.Place]bool{}, nodes: map[netip.Addr]bool{}}
}

// set says whether the data plane serves a frontend.
func (c *clients) set(at hoststack.FrontendAddr, is bool) {
	place := hostservices.Place{Addr: at.Addr, Protocol: at.Proto, Port: at.Port}
	if is {
		c.places[place] = true
	} else {
		delete(c.places, place)
	}
	if c.opened != nil {
		c.opened.Set(place, is)
	}
}

// setNode says whether an address is a node's.
func (c *clients) setNode(a netip.Addr, is bool) {
	if is {
		c.nodes[a] = true
	} else {
		delete(c.nodes, a)
	}
	if c.opened != nil {
		c.opened.SetNode(a, is)
	}
}

// apply has the programs on the interfaces by which clients come, while there are frontends.
// nat is the host's interface to the data plane; nil = there is none.
func (c *clients) apply(nat *desired.HostNAT, look bool) error {
	if c.pins == "" || c.unable {
		return nil
	}
	if nat == nil || len(c.places) == 0 {
		if c.opened == nil && !look {
			return nil
		}
		return c.end()
	}
	if look || c.opened == nil {
		interfaces, err := clientInterfaces(nat.Interface)
		if err != nil {
			return err
		}
		c.interfaces = interfaces
	}
	if c.opened == nil {
		opened, err := hostservices.OpenClients(c.pins, c.repairs)
		if errors.Is(err, errors.ErrUnsupported) {
			c.unable = true
			return nil
		}
		if err != nil {
			return err
		}
		c.opened = opened
		for at := range c.places {
			opened.Set(at, true)
		}
		for a := range c.nodes {
			opened.SetNode(a, true)
		}
	}
	return c.opened.Apply(hostservices.Path{Device: nat.Interface, Private: [2]netip.Prefix{nat.Subnet, nat.Subnet6}, Interfaces: c.interfaces}, look)
}

// end takes the programs away.
func (c *clients) end() error {
	if c.opened != nil {
		c.opened.Close()
		c.opened = nil
	}
	return hostservices.RemoveClients(c.pins)
}

// clientInterfaces are the host's Ethernet interfaces with an address, but for its own one
// to the data plane, sorted.
func clientInterfaces(device string) (names []string, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.Name == device || i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 || len(i.HardwareAddr) != 6 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it is gone
		}
		if slices.ContainsFunc(addrs, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && !n.IP.IsLinkLocalUnicast()
		}) {
			names = append(names, i.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
