package serve

import (
	"net/netip"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/attach"
)

// TestResultDNS: the result names the name server where there is one.
func TestResultDNS(t *testing.T) {
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
