package apiserver

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// roundTrip decodes a body as an object of a kind; what is accepted comes back
// as it was written, and is accepted again.
func roundTrip[A, M any](t *testing.T, data []byte, from func(A) (M, error), to func(M) A) {
	t.Helper()
	var o A
	if decodeJSON(data, &o) != nil {
		return
	}
	m, err := from(o)
	if err != nil {
		if !errors.Is(err, model.ErrInvalid) {
			t.Fatalf("%q: %v is not a refusal", data, err)
		}
		return
	}
	back := to(m)
	again, err := from(back)
	if err != nil {
		t.Fatalf("%q: what was accepted is refused when sent back: %v", data, err)
	}
	if d := cmp.Diff(back, to(again)); d != "" {
		t.Fatalf("%q: changes when sent back: %s", data, d)
	}
}

// FuzzConvert: no object of the remaining kinds is accepted and then refused,
// or changed, when a client puts back what it got.
func FuzzConvert(f *testing.F) {
	for _, k := range fieldCases {
		f.Add([]byte(k.object))
		for _, c := range k.fields {
			f.Add([]byte(c.pass[0]))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		roundTrip(t, data, netProfileFromAPI, netProfileToAPI)
		roundTrip(t, data, appProfileFromAPI, appProfileToAPI)
		roundTrip(t, data, serviceFromAPI, serviceToAPI)
		roundTrip(t, data, bgpFromAPI, bgpToAPI)
		roundTrip(t, data, extContractsFromAPI, extContractsToAPI)
		roundTrip(t, data, aciGwFromAPI, aciGwToAPI)
		roundTrip(t, data, volumeFromAPI, volumeToAPI)
		roundTrip(t, data, volumeProfileFromAPI, volumeProfileToAPI)
		roundTrip(t, data, groupFromAPI, groupToAPI)
		roundTrip(t, data, ruleFromAPI, ruleToAPI)
	})
}

// TestServiceAddressEcho: the answer tells the address that was asked for; the
// inspection tells the one that the service has.
func TestServiceAddressEcho(t *testing.T) {
	o := api.ServiceLB{TenantName: "t", NetworkName: "n", ServiceName: "s", Selectors: []string{"a=b"}, Ports: []string{"1:2:UDP"}}
	s, err := serviceFromAPI(o)
	if err != nil {
		t.Fatal(err)
	}
	s.VIP = netip.MustParseAddr("10.1.1.7")
	if got := serviceToAPI(s); got.IPAddress != "" || got.Ports[0] != "1:2:UDP" {
		t.Errorf("%+v", got)
	}
}
