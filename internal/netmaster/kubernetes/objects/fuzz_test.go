package objects

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// FuzzTranslate: whatever an object says, it means something valid or is refused as
// invalid, and what it stands for has a name.
func FuzzTranslate(f *testing.F) {
	for _, s := range []string{
		`{"spec":{"defaultNetwork":"n","sharedNetworks":["a:b","a:c"]}}`,
		`{"spec":{"networkName":"n","encap":"vlan","pktTag":7,"subnet":"10.1.1.0/24","gateway":"10.1.1.254","ipv6Subnet":"fd00::/64"}}`,
		`{"spec":{"networkName":"n","policies":["p","p"],"ipPool":"10.1.1.1-10.1.1.9"}}`,
		`{"spec":{"rules":[{"ruleId":"1","direction":"in","action":"deny","fromEndpointGroup":"g","port":80,"protocol":"tcp"},{"ruleId":"2","direction":"out","action":"allow","toNetwork":"n"}]}}`,
		`{"spec":{"burst":2,"bandwidth":"10 mbps","DSCP":63}}`,
	} {
		f.Add([]byte(s), byte(0))
		f.Add([]byte(s), byte(5))
	}
	f.Fuzz(func(t *testing.T, data []byte, there byte) {
		known := Known{
			Network: func(model.NetworkKey) Presence { return Presence(there % 3) },
			Group:   func(model.GroupKey) Presence { return Presence(there / 3 % 3) },
		}
		invalid := func(what string, err error) {
			if err != nil && !errors.Is(err, model.ErrInvalid) {
				t.Errorf("%s: %v is not a refusal", what, err)
			}
		}
		tenant, network, group, policy, profile := &Tenant{}, &Network{}, &EndpointGroup{}, &Policy{}, &NetProfile{}
		for _, o := range []Object{tenant, network, group, policy, profile} {
			_ = json.Unmarshal(data, o) // what it read counts
			o.SetName("name")           // an API server's are good
			if Owned(o).Key == "" {
				t.Errorf("%T stands for nothing", o)
			}
		}
		v, _, err := TranslateTenant(tenant, known)
		if invalid("tenant", err); err == nil {
			invalid("tenant", v.Err())
		}
		n, err := TranslateNetwork(network)
		if invalid("network", err); err == nil {
			invalid("network", n.Err())
		}
		g, err := TranslateGroup(group)
		if invalid("group", err); err == nil {
			invalid("group", g.Err())
		}
		p, err := TranslateNetProfile(profile)
		if invalid("net profile", err); err == nil {
			invalid("net profile", p.Err())
		}
		for _, ends := range []bool{false, true} {
			r, missing, err := TranslatePolicy(policy, known, ends)
			invalid("policy", err)
			if err == nil && len(r.Value().Rules)+len(missing) < len(policy.Spec.Rules) {
				t.Errorf("of %d rules there are %d, and %d are missing", len(policy.Spec.Rules), len(r.Value().Rules), len(missing))
			}
		}
	})
}
