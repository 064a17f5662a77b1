package apiserver

import (
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/archtest"
)

var _ = tested("netprofiles", kindCases{
	object: `{"tenantName":"blue","profileName":"x"}`, key: []string{"tenantName", "profileName"},
	fields: map[string]cases{
		"owner":       ownerCases(),
		"tenantName":  tenantCases(),
		"profileName": nameCases("profileName"),
		"bandwidth": {
			[]string{`{"bandwidth":""}`, `{"bandwidth":"10 kbps"}`, `{"bandwidth":"100mbps"}`, `{"bandwidth":"1gbps"}`, `{"bandwidth":"5Mb"}`, `{"bandwidth":"2g"}`, `{"bandwidth":"20 Mbps"}`, `{"bandwidth":"10000g"}`},
			[]string{`{"bandwidth":"10"}`, `{"bandwidth":"Mbps"}`, `{"bandwidth":"10Tbps"}`, `{"bandwidth":"0k"}`, `{"bandwidth":"-1k"}`, `{"bandwidth":"1.5g"}`, `{"bandwidth":"10001g"}`, `{"bandwidth":"99999999999999Gbps"}`, `{"bandwidth":"10 kbps "}`, `{"bandwidth":10}`},
		},
		"DSCP":  {[]string{`{"DSCP":0}`, `{"DSCP":1}`, `{"DSCP":63}`}, []string{`{"DSCP":-1}`, `{"DSCP":64}`, `{"DSCP":"1"}`}},
		"burst": {[]string{`{"burst":0}`, `{"burst":2}`, `{"burst":10486}`}, []string{`{"burst":-1}`, `{"burst":1}`, `{"burst":10487}`}},
		"receiveBandwidth": {
			[]string{`{"receiveBandwidth":""}`, `{"receiveBandwidth":"10 kbps"}`, `{"receiveBandwidth":"10000g"}`},
			[]string{`{"receiveBandwidth":"10"}`, `{"receiveBandwidth":"0m"}`, `{"receiveBandwidth":"10001g"}`, `{"receiveBandwidth":10}`},
		},
		"receiveBurst": {[]string{`{"receiveBurst":0}`, `{"receiveBurst":2}`, `{"receiveBurst":10486}`}, []string{`{"receiveBurst":-1}`, `{"receiveBurst":1}`, `{"receiveBurst":10487}`}},
	},
	effects: map[string]archtest.Effect{
		"owner":            archtest.By("TestKubernetesObjectsRefuseChangesByREST"),
		"tenantName":       archtest.By("TestMatrix"),
		"profileName":      archtest.By("TestMatrix"),
		"bandwidth":        archtest.By("TestNetProfilesLimitTheirGroups"),
		"burst":            archtest.By("TestPortHasTheRateOfItsGroup"),
		"DSCP":             archtest.By("TestNetProfilesLimitTheirGroups"),
		"receiveBandwidth": archtest.By("TestNetProfilesLimitTheirGroups"),
		"receiveBurst":     archtest.By("TestPortHasTheRateOfItsGroup"),
	},
})

// TestIneffectiveBurstIsWarnedOf: a burst of no limit is taken, as by 1.x, and told to have no effect.
func TestIneffectiveBurstIsWarnedOf(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	c, told := f.warned(t)
	for _, tt := range []struct {
		profile api.NetProfile
		want    []string
	}{
		{api.NetProfile{Burst: 2}, []string{"burst has no effect without bandwidth: nothing is limited"}},
		{api.NetProfile{Burst: 2, Bandwidth: "1m", ReceiveBurst: 2}, []string{"receiveBurst has no effect without receiveBandwidth: nothing is limited"}},
		{api.NetProfile{Burst: 2, Bandwidth: "1m", ReceiveBurst: 2, ReceiveBandwidth: "1m"}, nil},
		{api.NetProfile{Bandwidth: "1m"}, nil},
	} {
		tt.profile.TenantName, tt.profile.ProfileName, *told = "blue", "burst", nil
		if _, err := c.NetProfiles().Create(t.Context(), tt.profile); err != nil || !slices.Equal(*told, tt.want) {
			t.Errorf("%+v: %v, told %q, want %q", tt.profile, err, *told, tt.want)
		}
	}
}
