package hoststack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
)

// Config is what the host's stack has to be.
type Config struct {
	Private    *desired.HostNAT // nil = no egress: all that is ours is removed
	MTU        int              // of the narrowest container's interface; 0 = the interface's own
	NameServer uint16           // port at Private.Addr that queries go to; 0 = none
	// NameServer6 is the same at Private.Addr6.
	NameServer6 uint16
	Endpoints   []Endpoint // local containers that publish ports
	// Services are the virtual addresses that are led to the interface too, each
	// once. Whose packets would come there from a private address gets Source, or for
	// IPv6 an address of the host that leads outside, instead: other hosts cannot
	// tell private addresses apart.
	Services   []Service
	Source     netip.Addr // of IPv4; zero = the private one stays
	ServiceMTU int        // of tunnels, which lead to backends; 0 = as MTU
	// Routed are the subnets of native networks, sorted, which are led to the
	// interface too: the host speaks to containers there by the same source, and they
	// beyond the cluster by the host's.
	Routed []netip.Prefix
	// Ranges are the prefixes that addresses of services come from, sorted, which Frontends
	// leads elsewhere: they are led to the interface so that this host's processes have a
	// way there, from the same source.
	Ranges []netip.Prefix
	// Machines are the addresses of the cluster's own machines, sorted: a service that
	// has one is not led, or the host would take netmaster or the store for it.
	Machines []netip.Addr
	// ControlPath are the addresses of netmasters and the store, sorted: the gateways to them are not
	// led elsewhere either.
	ControlPath []netip.Addr
	// Control is what containers are kept from; nil = nothing.
	Control *Control `json:"-"` // has a table of its own

	source6 netip.Addr // as Source, found
}

// Endpoint is a local container that publishes ports.
type Endpoint struct {
	Addr netip.Addr // a private address of it; an endpoint of both families is one of each
	// Masquerade: the container's answers would leave by another router than this
	// host, so connections to its published ports get the host's address as source.
	Masquerade bool
	Ports      []attach.PortBinding // published, one host port each
}

// Stack is the network stack of the namespace of the thread that calls Apply.
// It is used by one goroutine at a time.
type Stack struct {
	log       *slog.Logger
	forward   bool
	last      *Config       // as applied; nil = not known
	published *Config       // whose published ports lead somewhere; nil = not known
	index     int           // of the interface then; 0 = there was none
	device    atomic.Uint32 // the same, for Watch
	problems  map[string]error
	source6   netip.Addr // as Want.source6, at last
	repairs   Repairs
	repaired  Repairs // what is put back now: repairs, or nothing while the wish changes
	refused   refused
	firewall  firewall
	changes   *hostchanges.History // of routes to services and native networks; nil = none are noted
}

// New returns the stack. forward lets it switch IP forwarding on. repairs hears
// of what others have changed and is put back.
func New(log *slog.Logger, forward bool, changes *hostchanges.History, repairs Repairs) *Stack {
	return &Stack{log: log, forward: forward, changes: changes, repairs: repairs}
}

// Source6 is the IPv6 address by which this host speaks to services and native networks;
// zero = none, or there are none of IPv6.
func (s *Stack) Source6() netip.Addr { return s.source6 }

// Apply makes the stack be as wanted, and returns what could not be made so, by
// object. If nothing has changed (the same wish, no failure last time, the same
// interface), it compares the rest of the kernel's state only if look says so:
// each attachment of a container waits for Apply.
func (s *Stack) Apply(ctx context.Context, want Config, look bool) map[string]error {
	slices.SortFunc(want.Endpoints, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
	index := 0
	if want.Private != nil {
		if link, err := netlink.LinkByName(want.Private.Interface); err == nil {
			index = link.Attrs().Index
		}
	}
	same := s.last != nil && index == s.index && reflect.DeepEqual(*s.last, want)
	asked := want
	ports := slices.ContainsFunc(want.Endpoints, func(e Endpoint) bool { return len(e.Ports) > 0 })
	if same = same && len(s.problems) == 0; same && !look {
		s.passFirewall(want, ports, false)
		s.firewallProblems(func(object string, err error) {
			if err != nil {
				s.problems = map[string]error{object: err}
			}
		})
		return s.problems
	}
	if s.repaired = NoRepairs; same {
		s.repaired = s.repairs
	}
	s.problems = map[string]error{}
	note := func(object string, err error) {
		if err != nil {
			s.problems[object] = err
		}
	}
	if err := ctx.Err(); err != nil {
		note("egress", err)
		return s.problems
	}
	if want.Private != nil {
		note("interface "+want.Private.Interface, s.ensureLink(want))
		s.ensureRoutes(&want, note)
		note("egress", s.ensureForwarding(forward4))
		if want.Private.Subnet6.IsValid() {
			note("IPv6 egress", s.ensureForwarding(forward6))
		}
	}
	// First the rules that keep containers out, then routes and ports that lead anywhere.
	note("control plane", s.ensureControl(want))
	translation := s.ensureTable(want)
	note("published ports and masquerade", translation)
	s.passFirewall(want, ports, look)
	s.firewallProblems(note)
	if translation == nil {
		forgetGone(s.log, s.published, want)
		forgetSuperseded(s.log, s.published, want)
		s.published = &asked
	}
	s.last, s.index = &asked, index
	s.device.Store(uint32(index))
	return s.problems
}

// ensureLink gives the host's interface its address and its route. The interface
// does no ARP: the data plane answers for every address behind it.
func (s *Stack) ensureLink(want Config) error {
	p := want.Private
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(p.Interface)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return model.Errorf(model.ErrNotFound, "the data plane has not made it")
	}
	if err != nil {
		return err
	}
	six := "1"
	if p.Subnet6.IsValid() {
		six = "0"
	}
	conf6 := "net/ipv6/conf/" + p.Interface
	for _, set := range [][2]string{
		// This interface leads to host-local NAT addresses only.
		{conf6 + "/addr_gen_mode", "1"},
		{conf6 + "/accept_ra", "0"},
		{conf6 + "/disable_ipv6", six},
		// A port published at a loopback address reaches a container, too; nothing
		// else gets there, as the data plane takes no loopback addresses.
		{"net/ipv4/conf/" + p.Interface + "/route_localnet", "1"},
	} {
		if err := writeSysctl(set[0], set[1]); err != nil {
			return err
		}
	}
	if link.Attrs().Flags&net.FlagUp == 0 || link.Attrs().RawFlags&unix.IFF_NOARP == 0 {
		if err := errors.Join(h.LinkSetARPOff(link), h.LinkSetUp(link)); err != nil {
			return err
		}
		s.repaired.Device(p.Interface)
	}
	if p.Subnet6.IsValid() {
		if err := s.ensureAddr(h, link, p.Addr6, p.Subnet6, want.MTU); err != nil {
			return err
		}
	}
	return s.ensureAddr(h, link, p.Addr, p.Subnet, want.MTU)
}

// ensureAddr gives the host's interface its address of one family, alone, and its
// route.
func (s *Stack) ensureAddr(h *netlink.Handle, link netlink.Link, a netip.Addr, subnet netip.Prefix, mtu int) error {
	family, flags := netlink.FAMILY_V4, unix.IFA_F_NOPREFIXROUTE
	if a.Is6() {
		family, flags = netlink.FAMILY_V6, unix.IFA_F_NOPREFIXROUTE|unix.IFA_F_NODAD
	}
	own := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, subnet.Bits())), Flags: flags}
	have, err := h.AddrList(link, family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	if i := slices.IndexFunc(have, func(o netlink.Addr) bool { return o.IPNet.String() == own.IPNet.String() }); i >= 0 {
		have = slices.Delete(have, i, i+1)
	} else {
		if err := h.AddrReplace(link, own); err != nil {
			return fmt.Errorf("add address %s: %w", own.IPNet, err)
		}
		s.repaired.Device(link.Attrs().Name)
	}
	for _, a := range have {
		if err := h.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove address %s: %w", a.IPNet, err)
		}
	}
	return ensureRoute(h, link, a, subnet, mtu)
}

// ensureRoute routes the private subnet to the data plane, with the MTU of the
// narrowest container: the host's TCP keeps to it, and forwarded packets that do
// not fit are answered with an ICMP error, as by any router.
func ensureRoute(h *netlink.Handle, link netlink.Link, src netip.Addr, subnet netip.Prefix, mtu int) error {
	r := &netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: ipNet(subnet), Src: net.IP(src.AsSlice()),
		Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_STATIC, MTU: mtu,
	}
	family := netlink.FAMILY_V4
	if src.Is6() { // whose routes have no scope
		family, r.Scope = netlink.FAMILY_V6, netlink.SCOPE_UNIVERSE
	}
	have, err := h.RouteListFiltered(family, r, netlink.RT_FILTER_OIF|netlink.RT_FILTER_DST)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	if len(have) == 1 && have[0].MTU == mtu && have[0].Src.Equal(r.Src) {
		return nil
	}
	if err := h.RouteReplace(r); err != nil {
		return fmt.Errorf("add route %s: %w", subnet, err)
	}
	return nil
}

// writeSysctl writes a setting unless it has the value; a kernel without the
// setting is fine.
func writeSysctl(path, value string) error {
	path = "/proc/sys/" + path
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(data)) == value {
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("set %s to %s: %w", path, value, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: net.IP(p.Addr().AsSlice()), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
