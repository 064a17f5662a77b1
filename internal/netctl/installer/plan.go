package installer

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Plan says what a machine becomes.
type Plan struct {
	Host string // its name in the cluster
	// Address is the machine's own, by which others reach it; invalid = that of the route to
	// the netmasters of Join, or of the default route.
	Address netip.Addr
	// Join are --join-listen addresses of netmasters, host:port. Empty: a cluster begins here.
	Join []string
	// Token lets the host join, once. Where a cluster begins here, it is made later.
	Token string
}

// begins reports whether a cluster begins on the machine.
func (p Plan) begins() bool { return len(p.Join) == 0 }

// Where netmaster serves; docs/how-to/ports.md says for whom.
const (
	APIPort  = "9999"
	JoinPort = "9005"
)

// tcpPorts are those that the programs of the plan listen on.
func (p Plan) tcpPorts() []string {
	if p.begins() {
		return []string{APIPort, "9001", "9004", JoinPort, "9006"}
	}
	return []string{"9006"}
}

// unit is a service of systemd, the package that has it, and its settings.
type unit struct {
	name     string
	settings []setting
}

type setting struct{ key, value string }

func (p Plan) netmaster() unit {
	return unit{"netmaster", []setting{{"secure", "true"}, {"internal-address", net.JoinHostPort(p.Address.String(), APIPort)}}}
}

// netplugin serves Docker too where there is an engine.
func (p Plan) netplugin(docker bool) unit {
	join := p.Join
	if p.begins() {
		join = []string{net.JoinHostPort(p.Address.String(), JoinPort)}
	}
	u := unit{"netplugin", []setting{{"host", p.Host}, {"ctrl-ip", p.Address.String()}, {"ip-forward", "true"}, {"join", strings.Join(join, ",")}}}
	if docker {
		u.settings = append(u.settings, setting{"mode", "docker"})
	}
	return u
}

// units are the services of the plan, in the order in which they start.
func (p Plan) units(docker bool) []unit {
	if p.begins() {
		return []unit{p.netmaster(), p.netplugin(docker)}
	}
	return []unit{p.netplugin(docker)}
}

// Steps says what Install will do, a phrase each.
func (m *Machine) Steps(p Plan) (steps []string) {
	for _, u := range p.units(m.hasDocker()) {
		var lines []string
		for _, s := range u.settings {
			lines = append(lines, s.key+": "+s.value)
		}
		steps = append(steps, fmt.Sprintf("write %s: %s", u.file(), strings.Join(lines, ", ")), "start "+u.name)
	}
	return steps
}
