package server

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// TestResultsNameTheirPolicyRevision: a result of each version says which policies were in force,
// and the library reads it as if it did not.
func TestResultsNameTheirPolicyRevision(t *testing.T) {
	r := attach.Result{
		HostIf: "cv1", IfName: "eth0", Netns: "/run/netns/c", MTU: 1450, NameServer: netip.MustParseAddr("172.19.255.254"), Search: "blue",
		Addresses: []attach.Address{{Prefix: netip.MustParsePrefix("10.1.1.1/24"), Gateway: netip.MustParseAddr("10.1.1.254")}},
		Routes:    []attach.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.1.1.254")}},
	}
	for _, v := range version.All.SupportedVersions() {
		read := func(revision int64) types.Result {
			t.Helper()
			r.PolicyRevision = revision
			text, err := resultJSON(r, v)
			if err != nil {
				t.Fatal(err)
			}
			var keys struct {
				Revision int64 `json:"io.contiv.policyRevision"`
			}
			if err := json.Unmarshal(text, &keys); err != nil || keys.Revision != revision {
				t.Errorf("version %s: %v, revision %d, want %d", v, err, keys.Revision, revision)
			}
			got, err := create.CreateFromBytes(text)
			if err != nil {
				t.Fatalf("version %s: %v", v, err)
			}
			return got
		}
		if diff := cmp.Diff(read(0), read(1234)); diff != "" {
			t.Errorf("version %s (-without +with the revision):\n%s", v, diff)
		}
	}
}

// TestResultNamesTheNameServer: the result names the name server where there is one.
func TestResultNamesTheNameServer(t *testing.T) {
	for _, tc := range []struct {
		res  attach.Result
		want types.DNS
	}{
		{attach.Result{}, types.DNS{}},
		{
			attach.Result{NameServer: netip.MustParseAddr("172.19.255.254"), Search: "blue"},
			types.DNS{Nameservers: []string{"172.19.255.254"}, Search: []string{"blue"}},
		},
	} {
		if diff := cmp.Diff(tc.want, result(tc.res, "1.0.0").DNS); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
