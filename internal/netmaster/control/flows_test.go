package control

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestRulesBeyondTheFlowLimitAreRefused: where a host runs on Open vSwitch, rules are refused that
// take more flows than it holds, with the count and the first one that is too
// much; 10,000 that name an address range and a range of ports as they like are
// not.
func TestRulesBeyondTheFlowLimitAreRefused(t *testing.T) {
	rules := func(n int, change func(*model.PolicyRule)) []model.PolicyRule {
		var out []model.PolicyRule
		for i := range n {
			r := model.PolicyRule{
				Key: model.RuleKey{Tenant: "default", Policy: "p", Rule: model.RuleID(strconv.Itoa(i))}, Direction: model.In, Action: model.Allow,
				Peers: []model.Peer{{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)}},
				Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: 1, Hi: 65534}},
			}
			if change != nil {
				change(&r)
			}
			out = append(out, r)
		}
		return out
	}
	many := func(r *model.PolicyRule) {
		r.Ports = nil
		for i := range uint16(64) {
			r.Ports = append(r.Ports, model.PortMatch{Protocol: model.ProtoTCP, Lo: 1000*i + 1, Hi: 1000*i + 1})
			r.Peers = append(r.Peers, model.Peer{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i) + 11, 0, 0, 0}), 24)})
		}
	}
	c := newCluster(t)
	for _, driver := range []string{"ebpf", model.DriverOVS} {
		if _, err := c.st.Update(testContext(t), func(tx store.Tx) error {
			return tables.Hosts.Put(tx, model.Host{Name: "h1", Driver: driver})
		}); err != nil {
			t.Fatal(err)
		}
		v := c.fresh()
		if _, err := v.Policies.checkLimits(rules(10000, nil), nil, nil); err != nil && strings.Contains(err.Error(), "flows") {
			t.Errorf("%s: 10,000 rules: %v", driver, err)
		}
		i, err := v.Policies.checkLimits(rules(200, many), nil, nil)
		refused := err != nil && strings.Contains(err.Error(), fmt.Sprintf("up to %d flows", 200*65*64))
		if refused != (driver == model.DriverOVS) || refused && (i != model.MaxPolicyFlows/(65*64) || !errors.Is(err, model.ErrExhausted)) {
			t.Errorf("%s: 200 rules of 4160 flows: rule %d, %v", driver, i, err)
		}
	}
}
