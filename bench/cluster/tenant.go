package main

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
)

// labelled is a tenant of policies by label: as many labels app=N as policies,
// each on ten identities, each identity on two endpoints. Of all endpoints the first
// locals are on host h1. Policy N applies to app=N and has ten rules, whose peers
// are app=N+1 to N+10.
type labelled struct {
	c        *compile.Compiler
	policies int
	net      model.NetworkKey
}

const perApp, perIdentity, locals = 10, 2, 100

func newLabelled(policies int, vtep netip.Addr) *labelled {
	p := &labelled{compile.New("h1"), policies, model.NetworkKey{Tenant: "t", Name: "n"}}
	p.c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy, PvtSubnet: netip.MustParsePrefix("172.19.0.0/16")})
	for i := range 11 {
		p.c.SetHost(model.Host{Name: model.HostName(fmt.Sprint("h", i+1)), Control: vtep, VTEP: vtep})
		vtep = vtep.Next()
	}
	p.c.SetNetwork(model.Network{Key: p.net, Encap: model.EncapVXLAN, Tag: 7, ID: 7, Subnet: netip.MustParsePrefix("10.0.0.0/8")})
	for i := range policies {
		p.c.SetPolicy(p.policy(i, i, 10))
		for r := range 10 {
			p.c.SetRule(p.rule(i, r, 80))
		}
	}
	for i := range policies * perApp {
		p.c.SetIdentity(p.identity(i, i%policies))
	}
	for i := range p.endpoints() {
		p.c.SetEndpoint(p.endpoint(i, i/perIdentity))
	}
	return p
}

func (p *labelled) identities() int { return p.policies * perApp }

func (p *labelled) endpoints() int { return p.identities() * perIdentity }

func app(i int) map[string]string { return map[string]string{"app": fmt.Sprint("a", i), "env": "live"} }

// policy makes the i-th policy, which applies to the label of toApp.
func (p *labelled) policy(i, toApp, order int) model.Policy {
	return model.Policy{
		Key: model.PolicyKey{Tenant: "t", Name: model.PolicyName(fmt.Sprint("p", i))}, Kind: model.KindNetwork, Owner: model.OwnerUser,
		Tier: model.TierContiv, Order: order, Default: model.Defaults{In: model.Deny},
		Applies: model.Selector{Tenant: "t", MatchLabels: map[string]string{"app": fmt.Sprint("a", toApp)}},
	}
}

func (p *labelled) rule(policy, i int, port uint16) model.PolicyRule {
	s := &model.Selector{Tenant: "t", MatchLabels: map[string]string{"app": fmt.Sprint("a", (policy+1+i)%p.policies)}}
	return model.PolicyRule{
		Key:       model.RuleKey{Tenant: "t", Policy: model.PolicyName(fmt.Sprint("p", policy)), Rule: model.RuleID(fmt.Sprint("r", i))},
		Direction: model.In, Priority: 1 + i, Action: model.Allow, Peers: []model.Peer{{Selector: s}},
		Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: port, Hi: port + 9}},
	}
}

func (p *labelled) identity(i, ofApp int) model.IdentityRecord {
	return model.IdentityRecord{ID: model.IdentityFirst + model.Identity(i), Network: p.net, Labels: app(ofApp)}
}

func (p *labelled) endpoint(i, identity int) model.Endpoint {
	host := "h1"
	if i >= locals {
		host = fmt.Sprint("h", 2+i%10)
	}
	v4 := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	return model.Endpoint{
		Key:      model.EndpointKey{Network: p.net, ID: model.EndpointID(fmt.Sprint("e", i))},
		Identity: model.IdentityFirst + model.Identity(identity), Host: model.HostName(host),
		IPv4: v4, MAC: model.EndpointMAC(p.net, v4, netip.Addr{}),
	}
}

// extra is an endpoint that comes and goes, on h1 (here) or elsewhere; for the former,
// h1 has an interface.
func (p *labelled) extra(here bool, identity int) model.Endpoint {
	e := p.endpoint(1<<20, identity)
	if here {
		e = p.endpoint(1<<20+1, identity)
		e.Host = "h1"
	}
	return e
}

// relabel gives the i-th endpoint a label set that no endpoint has had, alternately of one
// app and another. It does what control does: it adds a new identity and deletes the one
// before. The number which distinguishes relabelled endpoints.
func (p *labelled) relabel(which, i, turn, ofApp int) {
	id := p.identities() + 2*which + turn%2
	p.c.SetIdentity(p.identity(id, ofApp+turn%2*10))
	p.c.SetEndpoint(p.endpoint(i, id))
	p.c.DeleteIdentity("t", model.IdentityFirst+model.Identity(p.identities()+2*which+(turn+1)%2))
}

// labelChange is a kind of change; undo, if any, is not measured. Each kind has
// policies of its own, so that none finds another's change still settling.
type labelChange struct {
	name     string
	do, undo func(p *labelled, turn int)
}

var labelChanges = []labelChange{
	{name: "label of an endpoint elsewhere, which rules here name", do: func(p *labelled, turn int) { p.relabel(0, 1000, turn, 5) }},
	{name: "label of an endpoint elsewhere, which none names", do: func(p *labelled, turn int) { p.relabel(1, 1001, turn, 75) }},
	{name: "label of an endpoint here, and by it its policy", do: func(p *labelled, turn int) { p.relabel(2, 60, turn, 15) }},
	{name: "policy's order", do: func(p *labelled, turn int) { p.c.SetPolicy(p.policy(7, 7, 10+turn%2)) }},
	{name: "policy's selector", do: func(p *labelled, turn int) { p.c.SetPolicy(p.policy(17, 17+turn%2, 10)) }},
	{
		name: "policy comes",
		do:   func(p *labelled, _ int) { p.c.SetPolicy(p.policy(1<<20, 27, 10)) },
		undo: func(p *labelled, _ int) { p.c.DeletePolicy(p.policy(1<<20, 27, 10).Key) },
	},
	{name: "rule's ports", do: func(p *labelled, turn int) { p.c.SetRule(p.rule(37, 3, uint16(80+turn%2))) }},
	{
		name: "endpoint elsewhere starts",
		do:   func(p *labelled, _ int) { p.c.SetEndpoint(p.extra(false, 77)) },
		undo: func(p *labelled, _ int) { p.c.DeleteEndpoint(p.extra(false, 77).Key) },
	},
	{
		name: "endpoint here starts",
		do:   func(p *labelled, _ int) { p.c.SetEndpoint(p.extra(true, 7)) },
		undo: func(p *labelled, _ int) { p.c.DeleteEndpoint(p.extra(true, 7).Key) },
	},
	{
		name: "endpoint here starts, the first with its policy",
		do:   func(p *labelled, _ int) { p.c.SetEndpoint(p.extra(true, 77)) },
		undo: func(p *labelled, _ int) { p.c.DeleteEndpoint(p.extra(true, 77).Key) },
	},
}
