package ovs

import (
	"errors"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestUplinkWithHostAddressIsRefused: an interface that carries an address of the host is no
// uplink, when the driver starts, and when it gets the address before it is in the bridge.
// A link-local address is none of the host's, and what is in the bridge stays there.
func TestUplinkWithHostAddressIsRefused(t *testing.T) {
	r := rig{Server: ovstest.Start(t)}
	r.Run("ip", "-n", r.NS, "link", "add", "up0", "type", "veth", "peer", "name", "cable0")
	r.Run("ip", "-n", r.NS, "link", "set", "up0", "up")
	cfg := r.config(t)
	cfg.Uplinks = []string{"nosuch0", "up0"}
	open := func() (d *Driver, err error) {
		err = inNamespace(r.NS, func() (err error) {
			d, err = open(t.Context(), cfg)
			return err
		})
		return d, err
	}
	bridged := func() bool { return strings.Contains(r.Vsctl("list-ports", "contivBr"), "up0") }
	r.Run("ip", "-n", r.NS, "addr", "add", "10.88.0.1/24", "dev", "up0")
	_, err := open()
	if !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), "10.88.0.1") || !strings.Contains(err.Error(), "up0") {
		t.Fatalf("New() = %v, want a refusal that names interface and address", err)
	}
	r.Run("ip", "-n", r.NS, "addr", "flush", "dev", "up0")
	r.Run("ip", "-n", r.NS, "addr", "add", "169.254.7.7/16", "dev", "up0", "scope", "link")
	d, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, address := range []string{"add", "del"} {
		r.Run("ip", "-n", r.NS, "addr", address, "10.88.0.1/24", "dev", "up0")
		var told bool
		if err := inNamespace(r.NS, func() error {
			rep, err := d.Apply(t.Context(), desired.Host{Name: "h1", Revision: 1})
			for _, p := range rep.Problems {
				told = told || p.Object == "uplink up0" && errors.Is(p.Err, model.ErrInvalid)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if had := address == "add"; told != had || bridged() == had {
			t.Errorf("address there: %v; told: %v, in the bridge: %v", had, told, bridged())
		}
	}
	r.Run("ip", "-n", r.NS, "addr", "add", "10.88.0.1/24", "dev", "up0")
	if d, err := open(); err != nil || !bridged() {
		t.Errorf("of an uplink in the bridge: %v", err)
	} else {
		_ = d.Close()
	}
}
