package statemirror

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestUnsupportedFeaturesAreReported: a feature that the driver lacks is reported while a desired state asks for
// it, and only for such a driver.
func TestUnsupportedFeaturesAreReported(t *testing.T) {
	set := func(log bool, audits ...desired.PolicySetID) *desired.PolicySet {
		return &desired.PolicySet{ID: 1, Audits: audits, In: []desired.Tier{{Rules: desired.RulesOf(desired.Rule{ID: "a"}, desired.Rule{ID: "b", Log: log})}}}
	}
	var services, routes, rates, six desired.Host
	six.HostNAT = desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16"))
	six.Networks = six.Networks.Set(1, &desired.Network{ID: 1, Subnet6: netip.MustParsePrefix("fd00::/64")})
	native := six
	native.Networks = native.Networks.Set(1, &desired.Network{ID: 1, Routed: true, Subnet6: netip.MustParsePrefix("fd00::/64")})
	services.Services = services.Services.Set(model.ServiceKey{Tenant: "t", Name: "s"}, &desired.Service{})
	var exposed desired.Host
	exposed.Services = exposed.Services.Set(model.ServiceKey{Tenant: "t", Name: "s"}, &desired.Service{Exposed: true})
	var faced desired.Host
	faced.Services = faced.Services.Set(model.ServiceKey{Tenant: "t", Name: "s"}, &desired.Service{Frontends: []desired.Frontend{{Port: 80}}})
	routes.FwdMode = model.FwdRouting
	rates.Bandwidth = rates.Bandwidth.Set("v1", &desired.Rate{Send: desired.Limit{Bits: 1e6}})
	all := desired.Host{Services: services.Services, FwdMode: routes.FwdMode, Bandwidth: rates.Bandwidth}
	steps := []struct {
		name string
		pic  desired.Host
		sets []*desired.PolicySet
		want string // objects
	}{
		{"none", desired.Host{}, nil, ""},
		{"no wish", desired.Host{}, []*desired.PolicySet{set(false)}, ""},
		{"a rule with log", desired.Host{}, []*desired.PolicySet{set(true)}, "log of rules"},
		{"the same again", desired.Host{}, []*desired.PolicySet{set(true)}, "log of rules"},
		{"an audit besides", desired.Host{}, []*desired.PolicySet{set(true, 2)}, "log of rules,audited policies"},
		{"an audit", desired.Host{}, []*desired.PolicySet{set(false, 2)}, "audited policies"},
		{"gone", desired.Host{}, nil, ""},
		{"a service", services, nil, "services"},
		{"an exposed one", exposed, nil, "services,services from outside"},
		{"the same again", exposed, nil, "services,services from outside"},
		{"one with frontends", faced, nil, "services,services of Kubernetes"},
		{"none any more", desired.Host{}, nil, ""},
		{"a route", routes, nil, "routes"},
		{"forwarding mode routing", desired.Host{FwdMode: model.FwdRouting}, nil, "routes"},
		{"forwarding mode bridge", desired.Host{FwdMode: model.FwdBridge}, nil, ""},
		{"a rate", rates, nil, "bandwidth"},
		{"all of these", all, []*desired.PolicySet{set(true)}, "services,routes,bandwidth,log of rules"},
		{"all gone", desired.Host{}, nil, ""},
		{"IPv6 and egress", six, nil, "IPv6 egress"},
		{"a native network with IPv6", native, nil, "native networks,IPv6 egress"},
		{"the same again", native, nil, "native networks,IPv6 egress"},
		{"not native", six, nil, "IPv6 egress"},
		{"no network with IPv6", desired.Host{HostNAT: six.HostNAT}, nil, ""},
	}
	for _, can := range []driver.Capabilities{
		{}, {Log: true}, {Audit: true}, {Log: true, Audit: true}, {Services: true}, {Routes: true}, {Bandwidth: true, Log: true, Audit: true}, {RoutedNetworks: true}, {Egress6: true}, reference.New().Capabilities(),
	} {
		has := map[string]bool{"services": can.Services, "services from outside": can.ExternalServices || !can.Services, "services of Kubernetes": can.Frontends || !can.Services, "routes": can.Routes, "bandwidth": can.Bandwidth, "log of rules": can.Log, "audited policies": can.Audit, "IPv6 egress": can.Egress6, "native networks": can.RoutedNetworks}
		l := NewUnsupported("third", can)
		for _, s := range steps {
			pic := s.pic
			for _, x := range s.sets {
				pic.PolicySets = pic.PolicySets.Set(x.ID, x)
			}
			var got []string
			for _, p := range l.Problems(pic) {
				if !strings.HasPrefix(p.Text, "no effect: the data plane, third, ") {
					t.Errorf("text %q", p.Text)
				}
				got = append(got, p.Object)
			}
			var want []string
			for object := range strings.SplitSeq(s.want, ",") {
				if object != "" && !has[object] {
					want = append(want, object)
				}
			}
			if strings.Join(got, ",") != strings.Join(want, ",") {
				t.Errorf("%+v, %s: %q, want %q", can, s.name, got, want)
			}
		}
	}
}
