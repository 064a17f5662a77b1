package picture

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestUrgency: endpoints of other hosts can wait for the others of their burst;
// those of this host, and everything that decides who may talk to whom, cannot.
func TestUrgency(t *testing.T) {
	c := newCluster(t, nil)
	network := model.NetworkKey{Tenant: "blue", Name: "n"}
	key := func(id model.EndpointID) model.EndpointKey { return model.EndpointKey{Network: network, ID: id} }
	endpoint := func(id model.EndpointID, host model.HostName) tables.Change {
		return tables.Change{Key: key(id), Value: model.Endpoint{Key: key(id), Host: host, IPv4: netip.MustParseAddr("10.0.0.1"), MAC: model.MAC{2}}}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.startLocked("blue")
	c.hidden[key("hidden")] = c.held.since
	for _, test := range []struct {
		name   string
		change tables.Change
		want   urgency
	}{
		{"of another host", endpoint("a", "h2"), whenQuiet},
		{"changed there", endpoint("a", "h3"), whenQuiet},
		{"moved here", endpoint("a", "h1"), atOnce},
		{"moved away", endpoint("a", "h2"), atOnce},
		{"deleted there", tables.Change{Key: key("a")}, whenQuiet},
		{"of this host", endpoint("b", "h1"), atOnce},
		{"deleted here", tables.Change{Key: key("b")}, atOnce},
		{"of this host, not plumbed yet", endpoint("hidden", "h1"), irrelevant},
		{"a rule", tables.Change{Key: model.RuleKey{Tenant: "blue", Policy: "p", Rule: "1"}}, atOnce},
		{"a network", tables.Change{Key: network}, atOnce},
		{"a tenant", tables.Change{Key: model.TenantName("blue")}, irrelevant},
	} {
		if got := c.enterLocked(m, test.change); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}
