package hostsync

import (
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// fakeSettings are the cluster's settings; nil = they are not known.
type fakeSettings struct{ global *model.Global }

func (s *fakeSettings) Global() (model.Global, bool) {
	if s.global == nil {
		return model.Global{}, false
	}
	return *s.global, true
}

// noInput is a Compiler that learns nothing.
type noInput struct{}

func (noInput) SetEgress(*desired.HostNAT)               {}
func (noInput) SetPrivate(model.EndpointKey, netip.Addr) {}

// TestPrivateAddressesAreHandedOutOnce: every address of the subnet that may be an endpoint's is
// handed out once; then the error says what is full.
func TestPrivateAddressesAreHandedOutOnce(t *testing.T) {
	w := newPrivateAddresses(slog.New(slog.DiscardHandler), &fakeSettings{&model.Global{PvtSubnet: netip.MustParsePrefix("172.19.0.0/29")}}, noInput{}, EgressConfig{Able: true})
	take := func(i int) (netip.Addr, error) {
		return w.Take(attach.Key{Container: "c" + strconv.Itoa(i)}, model.EndpointKey{})
	}
	seen := map[netip.Addr]bool{}
	for i := range 4 { // .1 to .4; .5 is the relay's, .6 the host's
		x, err := take(i)
		if err != nil || seen[x] || !w.Subnet().Contains(x) {
			t.Fatalf("address %d = %s, %v (taken: %v)", i, x, err, seen)
		}
		seen[x] = true
	}
	if _, err := take(4); !errors.Is(err, model.ErrExhausted) || !strings.Contains(err.Error(), "172.19.0.0/29") {
		t.Errorf("the fifth: %v", err)
	}
	gone := netip.MustParseAddr("172.19.0.4")
	w.Release(attach.Key{Container: "c3"}, model.EndpointKey{}, gone)
	if x, err := take(6); err != nil || x != gone {
		t.Errorf("after a release: %s, %v", x, err)
	}
	w.enabled = false
	if x, err := take(7); err != nil || x.IsValid() {
		t.Errorf("without egress: %s, %v", x, err)
	}
}

// TestEgressStaysUntilSettingsAreKnown: until the cluster's settings are known, Refresh says so, and the
// agent applies no desired state: one without egress would have the data plane remove
// the host's interface, with all flows that name it, that an earlier netplugin made.
func TestEgressStaysUntilSettingsAreKnown(t *testing.T) {
	cluster := &fakeSettings{}
	w := newPrivateAddresses(slog.New(slog.DiscardHandler), cluster, noInput{}, EgressConfig{Able: true})
	for _, look := range []bool{false, true} {
		if w.Refresh(look) {
			t.Errorf("look %t: known before the settings are", look)
		}
	}
	cluster.global = &model.Global{} // known, and there is no private subnet
	if !w.Refresh(false) {
		t.Error("unknown with settings")
	}
	w.enabled, cluster.global = false, nil
	if !w.Refresh(false) {
		t.Error("a driver without egress waits for it")
	}
}
