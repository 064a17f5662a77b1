package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Ports by name. A name means the port of the endpoint that is asked: for what comes
// in the rule's own subject, for what goes out the peer. Drivers know numbers only, so
// a rule becomes one with the ports that it gives by number, and one for each name; a
// set resolves those for what comes in by what its subjects call their ports, and
// those for what goes out are compiled for each number that peers give the name.

// namesPorts reports whether a rule of a direction names ports.
func namesPorts(r *model.PolicyRule, dir model.Direction) bool {
	return r != nil && r.Direction == dir && slices.ContainsFunc(r.Ports, func(m model.PortMatch) bool { return m.Name != "" })
}

// trackNamedPorts follows whether a rule of a policy names ports of those whom it applies to.
func (po *policies) trackNamedPorts(p *policy, old, now *model.PolicyRule) {
	before := p.named
	if namesPorts(old, model.In) {
		p.named--
	}
	if namesPorts(now, model.In) {
		p.named++
	}
	if (before == 0) != (p.named == 0) {
		po.touchApplied(p)
	}
}

// splitNamedPorts splits a rule: its ports by number, and each name by itself.
func splitNamedPorts(r *desired.Rule) (out []*desired.Rule) {
	var numbers []model.PortMatch
	seen := map[string]bool{}
	for _, m := range r.Ports {
		if m.Name == "" {
			numbers = append(numbers, m)
			continue
		}
		one := *r
		one.ID = fmt.Sprintf("%s %s/%s", r.ID, m.Name, m.Protocol)
		if one.Ports = []model.PortMatch{m}; !seen[one.ID] {
			out = append(out, &one)
		}
		seen[one.ID] = true
	}
	if len(numbers) < len(r.Ports) && len(numbers) == 0 {
		return out
	}
	base := *r
	base.Ports = numbers
	return append(out, &base)
}

// namedPortOf is the name in a rule of splitNamedPorts; false = it has numbers.
func namedPortOf(r *desired.Rule) (m model.PortMatch, named bool) {
	if r == nil || len(r.Ports) != 1 || r.Ports[0].Name == "" {
		return m, false
	}
	return r.Ports[0], true
}

// withPortNumber is a rule of one name with its number.
func withPortNumber(r *desired.Rule, m model.PortMatch, lo, hi uint16) *desired.Rule {
	out := *r
	out.ID = fmt.Sprintf("%s=%d", r.ID, lo)
	out.Ports = []model.PortMatch{{Protocol: m.Protocol, Lo: lo, Hi: hi}}
	return &out
}

// resolved is a rule for what comes in as the set has it: nil when its subjects have
// no port of the name.
func (s *policySet) resolved(r *desired.Rule) *desired.Rule {
	m, named := namedPortOf(r)
	if !named {
		return r
	}
	port, ok := model.IdentityRecord{Ports: s.ports}.PortNamed(m.Name, m.Protocol)
	if !ok {
		return nil
	}
	return withPortNumber(r, m, port, port)
}

func portsText(ports []model.NamedPort) string {
	out := make([]string, len(ports))
	for i, p := range ports {
		out[i] = fmt.Sprintf("%s/%s=%d", p.Name, p.Protocol, p.Port)
	}
	return strings.Join(out, ",")
}
