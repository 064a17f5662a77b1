package conformance

import (
	"context"
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Case is a set of policies on a topology: data only, so that a test can put
// it through netctl and the reference alike. General are policies of other kinds
// than Contiv's.
type Case struct {
	Name     string
	Policies []model.ContivPolicy
	Rules    []model.Rule
	Attach   map[model.GroupKey][]model.PolicyName // groups that are not here have none

	General      []model.Policy
	GeneralRules []model.PolicyRule
}

// Probe asks whether an application at From reaches one at To: the request
// arrives there and the answer comes back.
type Probe struct {
	From, To model.EndpointKey
	Proto    model.Protocol // ProtoTCP, ProtoUDP, or ProtoICMP: an echo, also for IPv6
	Port     uint16         // destination port with TCP and UDP
	IPv6     bool
}

func (p Probe) String() string {
	family, what := "IPv4", p.Proto.String()
	if p.IPv6 {
		family = "IPv6"
	}
	if p.Proto.HasPorts() {
		what = fmt.Sprintf("%s:%d", what, p.Port)
	}
	return fmt.Sprintf("%s > %s %s %s", p.From, p.To, what, family)
}

// ProbePorts are the destination ports that Cases distinguish.
var ProbePorts = []uint16{80, 8080}

// Probes returns all that can be asked on a topology: every ordered pair of
// endpoints of one network, by TCP and UDP on ProbePorts and by echo, over IPv4
// and IPv6. Pairs of different tenants with equal addresses are in it by their
// own networks: a packet that strays into the other tenant does not arrive.
func Probes(t Topology) []Probe {
	var out []Probe
	for _, a := range t.Endpoints {
		for _, b := range t.Endpoints {
			if a.Key == b.Key || a.Key.Network != b.Key.Network {
				continue
			}
			for _, v6 := range []bool{false, true} {
				both := a.IPv4.IsValid() && b.IPv4.IsValid()
				if v6 {
					both = a.IPv6.IsValid() && b.IPv6.IsValid()
				}
				if !both {
					continue
				}
				for _, port := range ProbePorts {
					out = append(out,
						Probe{a.Key, b.Key, model.ProtoTCP, port, v6},
						Probe{a.Key, b.Key, model.ProtoUDP, port, v6})
				}
				out = append(out, Probe{a.Key, b.Key, model.ProtoICMP, 0, v6})
			}
		}
	}
	return out
}

// World is a topology with a case on it: compile and a reference data plane for every host.
type World struct {
	Topology  Topology
	Fabric    reference.Fabric
	Desired   map[model.HostName]desired.Host
	Problems  map[model.HostName][]compile.Problem
	compilers map[model.HostName]*compile.Compiler
	current   Case
	srcPort   uint16
}

// NewWorld compiles a topology with a case and applies it on every host.
func NewWorld(t Topology, c Case) (*World, error) {
	w := &World{
		Topology: t, Desired: map[model.HostName]desired.Host{}, Problems: map[model.HostName][]compile.Problem{},
		compilers: map[model.HostName]*compile.Compiler{},
	}
	for _, h := range t.Hosts {
		w.compilers[h.Name] = NewCompiler(t, h.Name)
		w.Fabric.Add(h.Name, reference.New())
	}
	return w, w.Switch(c)
}

// NewCompiler returns a compiler that knows a topology, and no policies.
func NewCompiler(t Topology, host model.HostName) *compile.Compiler {
	c := compile.New(host)
	c.SetGlobal(t.Global)
	for _, h := range t.Hosts {
		c.SetHost(h)
	}
	for _, x := range t.Tenants {
		c.SetTenant(x)
	}
	for _, n := range t.Networks {
		c.SetNetwork(n)
	}
	for _, g := range t.Groups {
		g.Policies = nil
		c.SetGroup(g)
	}
	for _, r := range t.Identities {
		c.SetIdentity(r)
	}
	for _, e := range t.Endpoints {
		c.SetEndpoint(e)
	}
	return c
}

// general returns all policies and rules of a case as they are compiled.
func (c Case) general() (policies []model.Policy, rules []model.PolicyRule) {
	policies, rules = slices.Clone(c.General), slices.Clone(c.GeneralRules)
	for _, p := range c.Policies {
		policies = append(policies, p.General())
	}
	for _, r := range c.Rules {
		rules = append(rules, r.General())
	}
	return policies, rules
}

// Switch replaces the case by another one, as live changes.
func (w *World) Switch(c Case) error {
	oldPolicies, oldRules := w.current.general()
	policies, rules := c.general()
	w.current = c
	return w.Change(func(comp *compile.Compiler) {
		for _, g := range w.Topology.Groups {
			g.Policies = c.Attach[g.Key]
			comp.SetGroup(g)
		}
		for _, r := range oldRules {
			comp.DeleteRule(r.Key)
		}
		for _, p := range oldPolicies {
			comp.DeletePolicy(p.Key)
		}
		for _, p := range policies {
			comp.SetPolicy(p)
		}
		for _, r := range rules {
			comp.SetRule(r)
		}
	})
}

// Change tells every host's compiler of changes, and applies what comes of them.
func (w *World) Change(tell func(*compile.Compiler)) error {
	for _, h := range w.Topology.Hosts {
		comp := w.compilers[h.Name]
		tell(comp)
		pic, problems := comp.Compile(1)
		w.Desired[h.Name], w.Problems[h.Name] = pic, problems
		report, err := w.Fabric.Host(h.Name).Apply(context.Background(), pic)
		if err != nil {
			return err
		}
		if err := Failed(report); err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	return nil
}

// Failed returns an error when a report says that something is not as wanted.
func Failed(r driver.Report) error {
	for _, p := range r.Problems {
		if !p.Unmanaged {
			return fmt.Errorf("%s: %w", p.Object, p.Err)
		}
	}
	for name, p := range r.Ports.All() {
		if p.Err != nil {
			return fmt.Errorf("port %s: %w", name, p.Err)
		}
	}
	return nil
}

// Reach reports whether a probe succeeds, and what happened on its way.
func (w *World) Reach(p Probe) (bool, []reference.Hop) {
	w.srcPort++
	return w.Fabric.Reach(reference.Probe{
		FromHost: w.Topology.Endpoint(p.From).Host, FromPort: compile.IfName(p.From),
		ToHost: w.Topology.Endpoint(p.To).Host, ToPort: compile.IfName(p.To),
		IPv6: p.IPv6, Proto: p.Proto, SrcPort: 20000 + w.srcPort%20000, DstPort: p.Port,
	})
}
