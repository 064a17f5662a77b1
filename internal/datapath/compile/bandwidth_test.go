package compile

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The rate of a port follows its group, the group's profile and the profile itself; a
// change of something else leaves it, and the port, as they are.
func TestPortHasTheRateOfItsGroup(t *testing.T) {
	c := New("h1")
	n := model.Network{Key: model.NetworkKey{Tenant: "t", Name: "n"}, Encap: model.EncapVXLAN, ID: 1, Tag: 1, Subnet: netip.MustParsePrefix("10.1.1.0/24")}
	c.SetNetwork(n)
	group := model.Group{Key: model.GroupKey{Tenant: "t", Name: "g"}, Network: "n"}
	c.SetGroup(group)
	e := model.Endpoint{Key: model.EndpointKey{Network: n.Key, ID: "e"}, Group: "g", Identity: 256, Host: "h1", IPv4: netip.MustParseAddr("10.1.1.1"), MAC: model.MAC{2, 1}}
	c.SetEndpoint(e)
	elsewhere := e
	elsewhere.Key.ID, elsewhere.Host, elsewhere.MAC = "f", "h2", model.MAC{2, 2}
	c.SetEndpoint(elsewhere)
	port := IfName(e.Key)

	var last desired.Host
	expect := func(when string, want desired.Rate, problem bool) {
		t.Helper()
		pic, problems := c.Compile(1)
		got, has := pic.Bandwidth.Get(port)
		if has != (want != desired.Rate{}) || has && *got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
		if pic.Bandwidth.Len() > 1 {
			t.Errorf("%s: %d rates for one port", when, pic.Bandwidth.Len())
		}
		told := false
		for _, p := range problems {
			told = told || strings.Contains(p.Text, "net profile gold is unknown")
		}
		if told != problem {
			t.Errorf("%s: problems %v", when, problems)
		}
		last = pic
	}
	expect("no profile", desired.Rate{}, false)
	group.NetProfile = "gold"
	c.SetGroup(group)
	expect("an unknown profile", desired.Rate{}, true)
	gold := model.NetProfile{
		Key: model.NetProfileKey{Tenant: "t", Name: "gold"}, Bandwidth: model.Bandwidth{Kbps: 5000, Text: "5m"}, Burst: 20,
		ReceiveBandwidth: model.Bandwidth{Kbps: 7, Text: "7k"}, DSCP: 46,
	}
	c.SetNetProfile(gold)
	want := desired.Rate{Send: desired.Limit{Bits: 5_000_000, Burst: 20_000}, Receive: desired.Limit{Bits: 7000}, DSCP: 46}
	expect("its profile", want, false)

	before := last
	other := gold
	other.Key.Name = "silver"
	c.SetNetProfile(other)
	c.SetEndpoint(elsewhere)
	expect("another profile", want, false)
	for range last.Bandwidth.Diff(before.Bandwidth) {
		t.Error("another profile's change touches the rates")
	}
	gold.Bandwidth, gold.ReceiveBandwidth, gold.ReceiveBurst = model.Bandwidth{}, model.Bandwidth{Kbps: 9, Text: "9k"}, 3
	c.SetNetProfile(gold)
	want = desired.Rate{Receive: desired.Limit{Bits: 9000, Burst: 3000}, DSCP: 46}
	expect("the profile changed", want, false)
	for range last.Ports.Diff(before.Ports) {
		t.Error("a profile's change touches the ports")
	}
	e.Host = "h2"
	c.SetEndpoint(e)
	expect("the endpoint has moved", desired.Rate{}, false)
	e.Host = "h1"
	c.SetEndpoint(e)
	expect("it is back", want, false)
	c.DeleteNetProfile(gold.Key)
	expect("the profile is gone", desired.Rate{}, true)
	group.NetProfile = ""
	c.SetGroup(group)
	c.SetNetProfile(gold)
	expect("the group names none", desired.Rate{}, false)
	group.NetProfile = "gold"
	c.SetGroup(group)
	expect("and again", want, false)
	c.DeleteEndpoint(e.Key)
	expect("the endpoint is gone", desired.Rate{}, false)
}

// An endpoint's own rates count where they are lower than its group's profile, which
// alone marks; they follow the endpoint's record.
func TestLowerOwnRatesCount(t *testing.T) {
	c := New("h1")
	n := model.Network{Key: model.NetworkKey{Tenant: "t", Name: "n"}, Encap: model.EncapVXLAN, ID: 1, Tag: 1, Subnet: netip.MustParsePrefix("10.1.1.0/24")}
	c.SetNetwork(n)
	c.SetGroup(model.Group{Key: model.GroupKey{Tenant: "t", Name: "g"}, Network: "n", NetProfile: "gold"})
	c.SetNetProfile(model.NetProfile{
		Key: model.NetProfileKey{Tenant: "t", Name: "gold"}, Bandwidth: model.Bandwidth{Kbps: 5000}, Burst: 20, DSCP: 46,
	})
	e := model.Endpoint{Key: model.EndpointKey{Network: n.Key, ID: "e"}, Identity: 256, Host: "h1", IPv4: netip.MustParseAddr("10.1.1.1"), MAC: model.MAC{2, 1}}
	profile := desired.Limit{Bits: 5_000_000, Burst: 20_000}
	for _, tc := range []struct {
		group model.GroupName
		own   model.Rates
		want  desired.Rate
	}{
		{"", model.Rates{}, desired.Rate{}},
		{"", model.Rates{Send: model.Rate{Bits: 9, Burst: 3}}, desired.Rate{Send: desired.Limit{Bits: 9, Burst: 3}}},
		{"", model.Rates{Send: model.Rate{Bits: 8}, Receive: model.Rate{Bits: 7}}, desired.Rate{Send: desired.Limit{Bits: 8}, Receive: desired.Limit{Bits: 7}}},
		{"g", model.Rates{Receive: model.Rate{Bits: 7}}, desired.Rate{Send: profile, Receive: desired.Limit{Bits: 7}, DSCP: 46}},
		{"g", model.Rates{Send: model.Rate{Bits: 5_000_001, Burst: 5000}}, desired.Rate{Send: profile, DSCP: 46}},
		{"g", model.Rates{Send: model.Rate{Bits: 5_000_000, Burst: 5000}}, desired.Rate{Send: profile, DSCP: 46}},
		{"g", model.Rates{Send: model.Rate{Bits: 4_999_999}}, desired.Rate{Send: desired.Limit{Bits: 4_999_999}, DSCP: 46}},
		{"g", model.Rates{}, desired.Rate{Send: profile, DSCP: 46}},
	} {
		e.Group, e.Rates = tc.group, tc.own
		c.SetEndpoint(e)
		pic, _ := c.Compile(1)
		var got desired.Rate
		if r, has := pic.Bandwidth.Get(IfName(e.Key)); has {
			got = *r
		}
		if got != tc.want {
			t.Errorf("group %q, own %+v: %+v, want %+v", tc.group, tc.own, got, tc.want)
		}
	}
}

// What is left open follows from the rate.
func TestBurstFollowsTheRate(t *testing.T) {
	for _, tc := range []struct {
		l    desired.Limit
		want uint64
	}{
		{desired.Limit{Bits: 1e9}, 500_000},
		{desired.Limit{Bits: 1e13}, 5_000_000_000},
		{desired.Limit{Bits: 1000}, 4542},
		{desired.Limit{Bits: 1e9, Burst: 2000}, 2000},
	} {
		if got := tc.l.Bucket(); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc.l, got, tc.want)
		}
	}
}
