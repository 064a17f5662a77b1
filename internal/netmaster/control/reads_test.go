package control

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestReadsWhatItTouches: finding endpoints by host, network or group, removing a
// host, and refusing to delete what is in use read what they touch, not what else
// there is.
func TestReadsWhatItTouches(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	c.ok(c.hosts("host1", "few"))
	for i := range 200 { // others
		_, err := c.st.Update(ctx, func(tx store.Tx) error {
			return tables.HostStatuses.Create(tx, tables.HostStatus{Host: model.HostName(fmt.Sprint("other", i))})
		})
		c.ok(err)
	}
	c.put(network("n", "10.1.0.0/16"), network("other", "10.2.0.0/16"), network("small", "10.3.0.0/24"), group("web", "n"), policy("p"))
	for i := range 300 {
		c.create(endpoint("n", fmt.Sprint("e", i), inGroup("web")))
		c.create(endpoint("other", fmt.Sprint("e", i)))
		c.put(rule("p", strconv.Itoa(i), func(r *model.Rule) { r.Network, r.Priority = "small", 1+i%100 }))
	}
	for i := range 3 {
		c.create(endpoint("n", fmt.Sprint("f", i), inGroup("web"), func(e *model.Endpoint) { e.Host = "few" }))
	}
	inUse := func(k any) func() error {
		return func() error {
			if err := c.remove(k); !errors.Is(err, model.ErrInUse) {
				return fmt.Errorf("want model.ErrInUse: %w", err)
			}
			return nil
		}
	}
	for _, test := range []struct {
		name string
		most int // keys read
		do   func() error
	}{
		{"endpoints of a host", 1, func() error {
			if n := len(c.fresh().Endpoints.OfHost("few")); n != 3 {
				return fmt.Errorf("%d endpoints", n)
			}
			return nil
		}},
		{"endpoints of a network", 1, func() error {
			if n := len(c.fresh().Endpoints.OfNetwork(netKey("other"))); n != 300 {
				return fmt.Errorf("%d endpoints", n)
			}
			return nil
		}},
		{"a rule, which may be locked", 0, func() error {
			c.put(rule("p", "new", func(r *model.Rule) { r.Network, r.Priority = "small", 1 }))
			return nil
		}},
		{"a group in use", 24, inUse(groupKey("web"))},
		{"a network in use by endpoints", 30, inUse(netKey("other"))},
		{"a network in use by rules", 66, inUse(netKey("small"))},
		{"a tenant in use", 40, func() error {
			c.put(model.Tenant{Name: "blue"}, network("blue:n", "10.1.0.0/24"))
			c.st.KeysRead()
			return inUse(model.TenantName("blue"))()
		}},
		{"a host and its endpoints", 40, func() error {
			n, _, err := c.Hosts.RemoveHost(ctx, Admin(), "few", true)
			if err == nil && n != 3 {
				err = fmt.Errorf("%d endpoints are released", n)
			}
			return err
		}},
	} {
		c.fresh()
		c.st.KeysRead()
		err := test.do()
		n := c.st.KeysRead()
		t.Logf("%2d keys: %s", n, test.name)
		if err != nil || n > test.most {
			t.Errorf("%s: %d keys were read, want %d at most; %v", test.name, n, test.most, err)
		}
	}
}
