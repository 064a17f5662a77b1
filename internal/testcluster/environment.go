package testcluster

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// environment gives a host's machine its addresses, and what Config.Environment asks for.
type environment struct {
	*Node
}

// Environment is what the machines are like on which a lab's hosts run.
type Environment string

// The environments. What none of them has is the same everywhere: hosts with one address a
// network, no firewall, an MTU of 1500, netmaster on their own segment, and between them
// switches that learn.
const (
	Plain     Environment = ""
	Firewalld Environment = "firewalld" // zone public refuses to forward; contivh0 is in zone trusted, which others may reach
	Docker    Environment = "docker"    // an engine's policy DROP of FORWARD
	RHEL      Environment = "rhel"      // a last rule of FORWARD rejects
	Jumbo     Environment = "jumbo"     // an MTU of 9000
	Narrow    Environment = "narrow"    // an MTU of 1400, as behind another tunnel
	Changing  Environment = "changing"  // an MTU that changes: who runs the lab does it (SetUnderlayMTU)
	Addresses Environment = "addresses" // several addresses of hosts and of netmaster, and several default routes
	Slash32   Environment = "slash32"   // addresses are /32, as in some clouds
	Routed    Environment = "routed"    // a router between the hosts and netmaster
)

// Environments returns all.
func Environments() []Environment {
	return []Environment{Plain, Firewalld, Docker, RHEL, Jumbo, Narrow, Changing, Addresses, Slash32, Routed}
}

// EnvironmentsOf returns those in which hosts with a driver work. Open vSwitch in user space
// finds no way from an address without a subnet, as the host's status says.
func EnvironmentsOf(driver string) []Environment {
	return slices.DeleteFunc(Environments(), func(e Environment) bool { return e == Slash32 && driver != DriverEBPF })
}

// ChosenEnvironment is the value of a suite's flag -environment that has the seed choose.
const ChosenEnvironment = "chosen"

// EnvironmentFlag defines the flag -environment of a test suite.
func EnvironmentFlag() *string {
	return flag.String("environment", ChosenEnvironment, `environment of all tests' hosts (testcluster.Environments), empty = the plain one; "chosen" = of the tests that run anywhere by the seed, of the others the plain one`)
}

// ChooseEnvironment returns the environment for the hosts of a test, t, with a driver: the
// one that the flag's value names, or one that the driver works in. That one, choose selects
// by a name and the number of them.
func ChooseEnvironment(t interface {
	Name() string
	Logf(format string, args ...any)
}, value, driver string, choose func(name string, n int) int,
) Environment {
	if value != ChosenEnvironment {
		return Environment(value)
	}
	fit := EnvironmentsOf(driver)
	e := fit[choose(t.Name()+" in", len(fit))]
	t.Logf("hosts in environment %q; -environment NAME takes another of %q", e, fit)
	return e
}

func (e Environment) check() error {
	if !slices.Contains(Environments(), e) {
		return fmt.Errorf("environment %q: must be one of %q", e, Environments())
	}
	return nil
}

// programs are the ones that an environment needs, with their Debian packages.
func (e Environment) programs() map[string]string {
	return map[Environment]map[string]string{
		Firewalld: {"/usr/sbin/nft": "nftables"}, Docker: {"/usr/sbin/iptables-nft": "iptables"}, RHEL: {"/usr/sbin/iptables-nft": "iptables"},
	}[e]
}

// mtu is the MTU of the networks between hosts.
func (e Environment) mtu() int {
	return cmp.Or(map[Environment]int{Jumbo: 9000, Narrow: 1400}[e], 1500)
}

// bits is the length of the prefix of a host's addresses.
func (e Environment) bits() int {
	if e == Slash32 {
		return 32
	}
	return 24
}

// firewalld is what firewalld 1.3 makes of zones public, which is the default, and trusted,
// with a policy that accepts what goes from any zone to trusted.
const firewalld = `table inet firewalld {
	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump filter_FORWARD_ZONES
		reject with icmpx admin-prohibited
	}
	chain filter_FORWARD_ZONES {
		oifname "contivh0" accept
		iifname "contivh0" goto filter_FWD_trusted
		goto filter_FWD_public
	}
	chain filter_FWD_public { }
	chain filter_FWD_trusted { accept; }
}
`

// docker and rhel are rules of iptables.
var (
	docker = []string{
		"-N DOCKER-USER", "-N DOCKER-FORWARD", "-P FORWARD DROP", "-A DOCKER-USER -j RETURN",
		"-A FORWARD -j DOCKER-USER", "-A FORWARD -j DOCKER-FORWARD", "-A DOCKER-FORWARD -i docker0 -j ACCEPT",
	}
	rhel = []string{
		"-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-A FORWARD -i lo -j ACCEPT",
		"-A FORWARD -j REJECT --reject-with icmp-host-prohibited",
	}
)

// settle makes a host's machine like its environment, once its links are there.
func (h *environment) settle(ctx context.Context) error {
	switch h.lab.st.Config.Environment { //nolint:exhaustive // the others are made otherwise
	case Firewalld:
		file := h.Dir + "/firewalld.nft"
		if err := os.WriteFile(file, []byte(firewalld), 0o600); err != nil {
			return err
		}
		_, err := h.Run(ctx, "nft", "-f", file)
		return err
	case Docker:
		return h.iptables(ctx, docker)
	case RHEL:
		return h.iptables(ctx, rhel)
	case Addresses:
		return h.runAll(ctx,
			"ip addr add 10.252."+fmt.Sprint(h.Address.As4()[3])+".1/32 dev lo",
			"ip addr add "+at(h.Control, 100).String()+"/24 dev ctl0",
			"ip addr add 10.253.0."+fmt.Sprint(h.Address.As4()[3])+"/24 dev ctl0",
			"ip route add default via 10.251.0.1 dev ctl0 metric 100",
			"ip route add default via 10.253.0.1 dev ctl0 metric 200",
		)
	case Slash32:
		return h.runAll(ctx, "ip route add "+control+" dev ctl0 scope link src "+h.Control.String())
	case Routed:
		return h.runAll(ctx, "ip route add "+control+" via "+hostsRouter+" dev ctl0 src "+h.Control.String())
	}
	return nil
}

// at is another address of the subnet of a.
func at(a netip.Addr, more byte) netip.Addr {
	b := a.As4()
	b[3] += more
	return netip.AddrFrom4(b)
}

// iptables adds rules of both families.
func (h *environment) iptables(ctx context.Context, rules []string) error {
	for _, tool := range []string{"iptables-nft", "ip6tables-nft"} {
		for _, r := range rules {
			if tool == "ip6tables-nft" {
				r = strings.ReplaceAll(r, "icmp-host-prohibited", "icmp6-adm-prohibited")
			}
			if err := h.runAll(ctx, tool+" -w "+r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *environment) runAll(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		f := strings.Fields(line)
		if out, err := h.Run(ctx, f[0], f[1:]...); err != nil {
			return fmt.Errorf("%s: %w %s", line, err, out)
		}
	}
	return nil
}

// addMasterAddresses gives netmaster's machine more addresses, of which hosts use none, where
// hosts have several. It runs in its namespace, before the link has the address that hosts use.
func (e Environment) addMasterAddresses() error {
	if e != Addresses {
		return nil
	}
	return errors.Join(addAddress("ctl0", netip.MustParsePrefix("10.253.0.2/24")), addAddress("lo", netip.MustParsePrefix("10.252.2.1/32")))
}

// giveAddresses gives the host's links their addresses; it runs in the host's namespace.
func (h *environment) giveAddresses() error {
	if h.lab.st.Config.Environment == Routed {
		return errors.Join(addAddress("ctl0", netip.PrefixFrom(h.Control, 32)), addAddress("ctl0", address(hostsSide, int(h.Control.As4()[3]))))
	}
	return addAddress("ctl0", netip.PrefixFrom(h.Control, h.lab.st.Config.Environment.bits()))
}

// giveUnderlay gives the host its address between hosts, on a link; it runs in the host's
// namespace.
func (h *environment) giveUnderlay(link string) error {
	bits := h.lab.st.Config.Environment.bits()
	if err := addAddress(link, netip.PrefixFrom(h.Address, bits)); err != nil || bits != 32 {
		return err
	}
	return addRoute(link, netip.MustParsePrefix(underlay), h.Address)
}

// With a router, the hosts' links of the control network are on a segment of their own,
// and the router answers netmaster's side for their addresses.
const (
	hostsSide   = "10.254.0.0/24"
	hostsRouter = "10.254.0.1"
	hostsBridge = "hosts"
)

// controlBridge is the bridge that the hosts' links of the control network are at.
func (c Config) controlBridge() string {
	if c.Environment == Routed {
		return hostsBridge
	}
	return "control"
}

// addRouter makes the router of the environment that has one.
func (l *Network) addRouter() error {
	if l.st.Config.Environment != Routed {
		return nil
	}
	ns, err := newNamespace(prefix(l.st.Config.Name) + "router")
	if err != nil {
		return err
	}
	if err := l.Fabric.Do(func() error {
		return errors.Join(plug("control", "routerc", l.st.Config.MTU, ns, "master0"), plug(hostsBridge, "routerh", l.st.Config.MTU, ns, "hosts0"))
	}); err != nil {
		return err
	}
	return ns.Do(func() error {
		errs := []error{
			sysctl("net/ipv4/ip_forward", "1"), sysctl("net/ipv4/conf/all/rp_filter", "0"), sysctl("net/ipv4/conf/master0/proxy_arp", "1"),
			addAddress("master0", address(control, 254)), addAddress("hosts0", netip.PrefixFrom(netip.MustParseAddr(hostsRouter), 24)),
		}
		for _, h := range l.hosts {
			errs = append(errs, addRoute("hosts0", netip.PrefixFrom(h.Control, 32), netip.Addr{}))
		}
		return errors.Join(errs...)
	})
}

// SetUnderlayMTU changes the MTU of the network between hosts, at all of its ends.
func (l *Network) SetUnderlayMTU(mtu int) error {
	set := func(link string) error {
		found, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("find link %s: %w", link, err)
		}
		return netlink.LinkSetMTU(found, mtu)
	}
	var errs []error
	for _, h := range l.hosts {
		errs = append(errs, l.Fabric.Do(func() error { return set(h.Name) }), h.NS.Do(func() error { return set("eth0") }))
	}
	return errors.Join(errs...)
}
