package installer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/contiv/netplugin/v2/internal/security/jointoken"
)

// Plan says what a machine becomes.
type Plan struct {
	Host string // its name in the cluster
	// Address is the machine's own, by which others reach it. If it is invalid, Check takes the
	// source address of the route to the netmasters of Join, or to other networks.
	Address netip.Addr
	// Join are --join-listen addresses of netmasters, host:port. Empty: a cluster begins here.
	Join []string
	// Token lets the host join, once. Where a cluster begins here, it is made later.
	Token string

	authority jointoken.Fingerprint // of the netmasters of Join
}

// Joining is the plan of the host that a token is for. The error, model.ErrInvalid, does not
// have the token.
func Joining(token string) (Plan, error) {
	t, err := jointoken.Parse(token)
	if err == nil && t.Host == "" {
		err = errors.New("the token is for a netmaster: make one for a host with 'netctl cluster token --host NAME'")
	}
	return Plan{Host: t.Host, Join: t.Addresses, Token: strings.TrimSpace(token), authority: t.Authority}, err
}

// begins reports whether a cluster begins on the machine.
func (p Plan) begins() bool { return len(p.Join) == 0 }

// Where netmaster serves; docs/how-to/ports.md says for whom.
const (
	APIPort  = "9999"
	JoinPort = "9005"
)

// tcpPorts are the ports on which the programs of the plan listen.
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
