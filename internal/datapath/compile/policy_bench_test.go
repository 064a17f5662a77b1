package compile

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// policyTenant is one of policies by label: as many labels app=N as policies,
// each on ten identities, each identity on two endpoints, 100 of which are local;
// policy N applies to app=N and has ten rules, whose peers are app=N+1 to N+10.
type policyTenant struct {
	c        *Compiler
	policies int
	net      model.NetworkKey
}

const perApp, perIdentity = 10, 2

func newPolicyTenant(policies int) *policyTenant {
	p := &policyTenant{New("h1"), policies, model.NetworkKey{Tenant: "t", Name: "n"}}
	p.c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy})
	for i := range 11 {
		p.c.SetHost(model.Host{Name: model.HostName(fmt.Sprint("h", i+1)), VTEP: netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)})})
	}
	p.c.SetNetwork(model.Network{Key: p.net, Encap: model.EncapVXLAN, Tag: 7, ID: 7, Subnet: netip.MustParsePrefix("10.0.0.0/8")})
	for i := range policies {
		p.c.SetPolicy(p.policy(i, 10))
		for r := range 10 {
			p.c.SetRule(p.rule(i, r, 80))
		}
	}
	for i := range policies * perApp {
		p.c.SetIdentity(p.identity(i, i%policies))
	}
	for i := range policies * perApp * perIdentity {
		p.c.SetEndpoint(p.endpoint(i, i/perIdentity))
	}
	return p
}

func app(i int) map[string]string { return map[string]string{"app": fmt.Sprint("a", i), "env": "live"} }

func (p *policyTenant) policy(i, order int) model.Policy {
	return model.Policy{
		Key: model.PolicyKey{Tenant: "t", Name: model.PolicyName(fmt.Sprint("p", i))}, Kind: model.KindNetwork, Owner: model.OwnerUser,
		Tier: model.TierContiv, Order: order, Default: model.Defaults{In: model.Deny},
		Applies: model.Selector{Tenant: "t", MatchLabels: map[string]string{"app": fmt.Sprint("a", i)}},
	}
}

func (p *policyTenant) rule(policy, i int, port uint16) model.PolicyRule {
	s := &model.Selector{Tenant: "t", MatchLabels: map[string]string{"app": fmt.Sprint("a", (policy+1+i%10)%p.policies)}}
	return model.PolicyRule{
		Key:       model.RuleKey{Tenant: "t", Policy: model.PolicyName(fmt.Sprint("p", policy)), Rule: model.RuleID(fmt.Sprint("r", i))},
		Direction: model.In, Priority: 1 + i%100, Action: model.Allow, Peers: []model.Peer{{Selector: s}},
		Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: port, Hi: port + 9}},
	}
}

func (p *policyTenant) identity(i, ofApp int) model.IdentityRecord {
	return model.IdentityRecord{ID: model.IdentityFirst + model.Identity(i), Network: p.net, Labels: app(ofApp)}
}

// endpoint is the i-th: the first 100 are local.
func (p *policyTenant) endpoint(i, identity int) model.Endpoint {
	host := "h1"
	if i >= 100 {
		host = fmt.Sprint("h", 2+i%10)
	}
	v4 := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	return model.Endpoint{
		Key:      model.EndpointKey{Network: p.net, ID: model.EndpointID(fmt.Sprint("e", i))},
		Identity: model.IdentityFirst + model.Identity(identity), Host: model.HostName(host),
		IPv4: v4, MAC: model.EndpointMAC(p.net, v4, netip.Addr{}),
	}
}

// relabel moves the i-th endpoint to an identity of its own with the labels of
// an app, as control does.
func (p *policyTenant) relabel(i, turn, ofApp int) {
	id := p.policies*perApp + turn%2
	p.c.SetIdentity(p.identity(id, ofApp))
	p.c.SetEndpoint(p.endpoint(i, id))
	p.c.DeleteIdentity("t", model.IdentityFirst+model.Identity(p.policies*perApp+(turn+1)%2))
}

// walk follows all differences between two desired states down to identities, as a
// driver does, and counts them.
func walk(old, next desired.Host) (n int) {
	for range next.Ports.Diff(old.Ports) {
		n++
	}
	for range next.Remotes.Diff(old.Remotes) {
		n++
	}
	for s := range next.PolicySets.Diff(old.PolicySets) {
		var was, is []desired.Tier
		if s.Had {
			was = append(append(was, s.Old.In...), s.Old.Out...)
		}
		if s.Has {
			is = append(append(is, s.New.In...), s.New.Out...)
		}
		for i := range max(len(was), len(is)) {
			var a, b desired.Tier
			if i < len(was) {
				a = was[i]
			}
			if i < len(is) {
				b = is[i]
			}
			for r := range b.Rules.Diff(a.Rules) {
				n++
				if r.Had && r.Has {
					for range r.New.Identities.Diff(r.Old.Identities) {
						n++
					}
				}
			}
		}
	}
	return n
}

// BenchmarkPolicies measures changes among policies by label: what each takes,
// compiled and compared, by how much else there is (identities, policies and
// endpoints ten times as many).
func BenchmarkPolicies(b *testing.B) {
	for _, change := range []struct {
		name string
		do   func(p *policyTenant, i int)
	}{
		{"label of an endpoint elsewhere", func(p *policyTenant, i int) { p.relabel(1000, i, 5+i%2*10) }},
		{"label of an endpoint here", func(p *policyTenant, i int) { p.relabel(60, i, 5+i%2*10) }},
		{"policy's order", func(p *policyTenant, i int) { p.c.SetPolicy(p.policy(7, 10+i%2)) }},
		{"policy's selector", func(p *policyTenant, i int) {
			v := p.policy(7, 10)
			v.Applies.MatchLabels = map[string]string{"app": fmt.Sprint("a", 7+i%2)}
			p.c.SetPolicy(v)
		}},
		{"policy that comes and goes", func(p *policyTenant, i int) {
			v := p.policy(7, 10)
			if v.Key.Name = "another"; i%2 == 0 {
				p.c.SetPolicy(v)
			} else {
				p.c.DeletePolicy(v.Key)
			}
		}},
		{"endpoint elsewhere starts or stops", func(p *policyTenant, i int) {
			if e := p.endpoint(1<<20, 77); i%2 == 0 {
				p.c.SetEndpoint(e)
			} else {
				p.c.DeleteEndpoint(e.Key)
			}
		}},
		{"endpoint here starts or stops", func(p *policyTenant, i int) {
			e := p.endpoint(1<<20, 7)
			if e.Host = "h1"; i%2 == 0 {
				p.c.SetEndpoint(e)
			} else {
				p.c.DeleteEndpoint(e.Key)
			}
		}},
		{"endpoint here, the first with its policy", func(p *policyTenant, i int) {
			e := p.endpoint(1<<20, 77)
			if e.Host = "h1"; i%2 == 0 {
				p.c.SetEndpoint(e)
			} else {
				p.c.DeleteEndpoint(e.Key)
			}
		}},
		{"rule", func(p *policyTenant, i int) { p.c.SetRule(p.rule(7, 3, uint16(80+i%2))) }},
	} {
		for _, policies := range []int{100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", change.name, policies), func(b *testing.B) {
				p := newPolicyTenant(policies)
				run(b, p, change.do)
			})
		}
	}
	for _, rules := range []int{10, 10000} {
		b.Run(fmt.Sprintf("rule of many/%d", rules), func(b *testing.B) {
			p := newPolicyTenant(100)
			for i := range rules {
				p.c.SetRule(p.rule(7, i, uint16(1000+i)))
			}
			run(b, p, func(p *policyTenant, i int) { p.c.SetRule(p.rule(7, 3, uint16(80+i%2))) })
		})
	}
}

func run(b *testing.B, p *policyTenant, do func(p *policyTenant, i int)) {
	b.Helper()
	pic, problems := p.c.Compile(1)
	if len(problems) > 0 {
		b.Fatal(problems[0])
	}
	for i := range 2 {
		do(p, i)
		pic, _ = p.c.Compile(1)
	}
	runtime.GC() // the waste of the preparation is not the subject
	b.ResetTimer()
	changes := 0
	for i := range b.N {
		do(p, i)
		next, _ := p.c.Compile(int64(i))
		changes += walk(pic, next)
		pic = next
	}
	if changes == 0 {
		b.Fatal("nothing changed")
	}
	b.ReportMetric(float64(changes)/float64(b.N), "changes")
}
