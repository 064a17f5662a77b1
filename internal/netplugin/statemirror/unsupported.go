package statemirror

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Unsupported follows which parts of a host's desired states its driver leaves without
// effect, at the cost of what differs. One goroutine uses it.
type Unsupported struct {
	driver string
	can    driver.Capabilities

	last   desired.Map[desired.PolicySetID, *desired.PolicySet]
	logs   int // rules with Log, in all sets and directions
	audits int // audited sets

	lastServices  desired.Map[model.ServiceKey, *desired.Service]
	exposed       int // services
	withFrontends int // services with frontends

	lastNets desired.Map[model.NetworkID, *desired.Network]
	six      int // networks with IPv6
	routed   int // native networks
}

// NewUnsupported returns a Unsupported of a driver, by the name that people know.
func NewUnsupported(name string, can driver.Capabilities) *Unsupported {
	return &Unsupported{driver: name, can: can}
}

// Problems says what has no effect in a desired state.
func (l *Unsupported) Problems(pic desired.Host) (problems []compile.Problem) {
	lacks := func(object, what string) {
		problems = append(problems, compile.Problem{Object: object, Text: fmt.Sprintf("%sthe data plane, %s, %s", model.NoEffectPrefix, l.driver, what)})
	}
	if !l.can.Services && pic.Services.Len() > 0 {
		lacks("services", "spreads no connections over the endpoints of a service")
	}
	if l.can.Services && (!l.can.ExternalServices || !l.can.Frontends) {
		for c := range pic.Services.Diff(l.lastServices) {
			if c.Had {
				l.countService(c.Old, -1)
			}
			if c.Has {
				l.countService(c.New, 1)
			}
		}
		l.lastServices = pic.Services
		if !l.can.ExternalServices && l.exposed > 0 {
			lacks("services from outside", "leads neither this host nor clients outside to a service")
		}
		if !l.can.Frontends && l.withFrontends > 0 {
			lacks("services of Kubernetes", "serves none at addresses and ports that they share, such as node ports")
		}
	}
	if !l.can.Routes && pic.FwdMode == model.FwdRouting {
		lacks("routes", "leads nothing from one network to another")
	}
	if !l.can.Bandwidth && pic.Bandwidth.Len() > 0 {
		lacks("bandwidth", "neither limits nor marks what endpoints of groups with a net profile send and receive")
	}
	if !l.can.RoutedNetworks || !l.can.Egress6 {
		for c := range pic.Networks.Diff(l.lastNets) {
			if c.Had {
				l.countNetwork(c.Old, -1)
			}
			if c.Has {
				l.countNetwork(c.New, 1)
			}
		}
		l.lastNets = pic.Networks
	}
	if !l.can.RoutedNetworks && l.routed > 0 {
		lacks("native networks", "leads nothing between this host itself and containers of native networks by their own addresses; its own containers have private ones, as on other networks")
	}
	if !l.can.Egress6 {
		if pic.HostNAT != nil && l.six > 0 {
			lacks("IPv6 egress", "leads nothing of IPv6 to this host or beyond it, nor to its published ports")
		}
	}
	if l.can.Log && l.can.Audit {
		return problems
	}
	for c := range pic.PolicySets.Diff(l.last) {
		var old, now desired.PolicySet
		if c.Had {
			old = *c.Old
		}
		if c.Has {
			now = *c.New
		}
		l.audits += len(now.Audits) - len(old.Audits)
		l.count(old.In, now.In)
		l.count(old.Out, now.Out)
	}
	l.last = pic.PolicySets
	if !l.can.Log && l.logs > 0 {
		lacks("log of rules", "reports no connections for the rules here that log them")
	}
	if !l.can.Audit && l.audits > 0 {
		lacks("audited policies", "does not evaluate those that apply here")
	}
	return problems
}

func (l *Unsupported) countNetwork(n *desired.Network, by int) {
	if n.Subnet6.IsValid() {
		l.six += by
	}
	if n.Routed {
		l.routed += by
	}
}

func (l *Unsupported) countService(s *desired.Service, by int) {
	if s.Exposed {
		l.exposed += by
	}
	if len(s.Frontends) > 0 {
		l.withFrontends += by
	}
}

// count follows the rules with Log of one direction.
func (l *Unsupported) count(old, now []desired.Tier) {
	rules := func(tiers []desired.Tier, i int) desired.Rules {
		if i < len(tiers) {
			return tiers[i].Rules
		}
		return desired.Rules{}
	}
	for i := range max(len(old), len(now)) {
		for c := range rules(now, i).Diff(rules(old, i)) {
			if c.Had && c.Old.Log {
				l.logs--
			}
			if c.Has && c.New.Log {
				l.logs++
			}
		}
	}
}
