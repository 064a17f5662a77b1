package cluster

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// kind is a kind of objects that clients write.
type kind struct {
	name  string
	slots int // how many objects of it there are at a time
	// key and body are what the API calls an object in a generation of names, and
	// what asks for a value; read finds the value in an answer.
	key  func(slot, generation int) string
	body func(o object, value int) string
	read func(answer []byte) (int, error)
	pick func(chance *rand.Rand) int // a value to ask for
	// plugin: it is made and deleted by the calls of agents.
	plugin bool
}

// object is one of a kind.
type object struct {
	*kind
	slot, generation int
}

func (o object) String() string { return o.name + " " + o.id() }

func (o object) id() string { return o.key(o.slot, o.generation) }

// request is the HTTP request that does what is asked.
func (o object) request(in asked) (method, path, body string) {
	if !o.plugin {
		if in.method == http.MethodPut {
			body = o.body(o, in.value)
		}
		return in.method, "/api/v1/" + o.name + "/" + o.id() + "/", body
	}
	switch in.method {
	case http.MethodPut:
		return http.MethodPost, "/plugin/createEndpoint", o.body(o, in.value)
	case http.MethodDelete:
		part := strings.Split(o.id(), ":")
		return http.MethodPost, "/plugin/deleteEndpoint", fmt.Sprintf(`{"TenantName":%q,"NetworkName":%q,"EndpointID":%q}`, part[0], part[1], part[2])
	}
	return http.MethodGet, "/api/v1/inspect/endpoints/" + o.id(), ""
}

const (
	tenant   = "base" // of all objects but tenants
	busyNet  = "n0"   // small, so that its addresses are given again and again
	policies = 4      // that groups choose from: p0...
)

func one(*rand.Rand) int { return 1 }

// there reads an object that has no value: it is there.
func there([]byte) (int, error) { return 1, nil }

func named(format string) func(slot, generation int) string {
	return func(slot, generation int) string { return fmt.Sprintf(format, slot, generation) }
}

// kinds are what clients write. Rules are of a policy that stays, since a policy
// takes its rules along.
var kinds = []*kind{
	{
		name: "tenants", slots: 2, key: named("t%dg%d"), pick: one, read: there,
		body: func(o object, _ int) string { return fmt.Sprintf(`{"tenantName":%q}`, o.id()) },
	},
	{
		// Three fight for four subnets; one that is there has its own.
		name: "networks", slots: 3, key: named(tenant + ":net%dg%d"),
		pick: func(c *rand.Rand) int { return 1 + c.IntN(4) },
		body: func(o object, value int) string {
			return fmt.Sprintf(`{"tenantName":%q,"networkName":%q,"encap":%q,"subnet":"10.%d.%d.0/24","gateway":"10.%d.%d.254"}`,
				tenant, last(o.id()), []string{"vxlan", "vlan"}[value%2], value, o.generation%250, value, o.generation%250)
		},
		read: func(b []byte) (int, error) {
			var v struct{ Subnet string }
			if err := json.Unmarshal(b, &v); err != nil {
				return 0, err
			}
			p, err := netip.ParsePrefix(v.Subnet)
			if err != nil {
				return 0, err
			}
			return int(p.Addr().As4()[1]), nil
		},
	},
	{
		name: "endpointGroups", slots: 3, key: named(tenant + ":grp%dg%d"),
		pick: func(c *rand.Rand) int { return 1 + c.IntN(1<<policies) },
		body: func(o object, value int) string {
			var list []string
			for i := range policies {
				if (value-1)>>i&1 == 1 {
					list = append(list, "p"+strconv.Itoa(i))
				}
			}
			text, _ := json.Marshal(list) //nolint:errchkjson // of strings
			return fmt.Sprintf(`{"tenantName":%q,"groupName":%q,"networkName":%q,"policies":%s}`, tenant, last(o.id()), busyNet, text)
		},
		read: func(b []byte) (int, error) {
			var v struct{ Policies []string }
			err := json.Unmarshal(b, &v)
			value := 0
			for _, p := range v.Policies {
				i, _ := strconv.Atoi(p[1:])
				value |= 1 << i
			}
			if bits.OnesCount(uint(value)) != len(v.Policies) {
				return 0, fmt.Errorf("policies %q are not of this test", v.Policies)
			}
			return 1 + value, err
		},
	},
	{
		name: "policys", slots: 2, key: named(tenant + ":pol%dg%d"), pick: one, read: there,
		body: func(o object, _ int) string {
			return fmt.Sprintf(`{"tenantName":%q,"policyName":%q}`, tenant, last(o.id()))
		},
	},
	{
		name: "rules", slots: 3, key: named(tenant + ":p0:r%dg%d"),
		pick: func(c *rand.Rand) int { return 1 + c.IntN(1000) },
		body: func(o object, value int) string {
			return fmt.Sprintf(`{"tenantName":%q,"policyName":"p0","ruleId":%q,"direction":"in","action":"allow","protocol":"tcp","port":%d}`, tenant, last(o.id()), value)
		},
		read: func(b []byte) (int, error) {
			var v struct{ Port int }
			err := json.Unmarshal(b, &v)
			return v.Port, err
		},
	},
	{
		name: "netprofiles", slots: 2, key: named(tenant + ":prof%dg%d"),
		pick: func(c *rand.Rand) int { return 2 + c.IntN(1000) },
		body: func(o object, value int) string {
			return fmt.Sprintf(`{"tenantName":%q,"profileName":%q,"burst":%d}`, tenant, last(o.id()), value)
		},
		read: func(b []byte) (int, error) {
			var v struct{ Burst int }
			err := json.Unmarshal(b, &v)
			return v.Burst, err
		},
	},
	endpoints("quiet endpoints", 8, busyNet),
	endpoints("endpoints of networks that go", 2, "net0g%d"),
}

// endpoints are such in a network, whose name may say the generation. Their value
// is the address that they are given.
func endpoints(name string, slots int, network string) *kind {
	if strings.Contains(network, "%") {
		network = strings.ReplaceAll(network, "%d", "%[2]d")
	}
	return &kind{
		name: name, slots: slots, plugin: true,
		key: func(slot, generation int) string {
			return fmt.Sprintf(tenant+":"+network+":x%[1]dg%[2]d", slot, generation)
		},
		pick: func(*rand.Rand) int { return anyValue },
		body: func(o object, _ int) string {
			part := strings.Split(o.id(), ":")
			group := ""
			if o.slot%3 == 2 && part[1] == busyNet {
				group = fmt.Sprintf("grp0g%d", o.generation)
			}
			return fmt.Sprintf(`{"TenantName":%q,"NetworkName":%q,"EndpointID":%q,"ServiceName":%q,"ConfigEP":{"Container":%q,"Host":"elsewhere","Labels":{"app":"a%d"}}}`,
				part[0], part[1], part[2], group, part[2], o.slot%4)
		},
		read: func(b []byte) (int, error) {
			var v struct {
				EndpointConfig struct{ IPAddress string }
				Oper           struct{ IPAddress []string }
			}
			if err := json.Unmarshal(b, &v); err != nil {
				return 0, err
			}
			text := v.EndpointConfig.IPAddress
			if len(v.Oper.IPAddress) > 0 {
				text = v.Oper.IPAddress[0]
			}
			a, err := netip.ParseAddr(text)
			if err != nil {
				return 0, fmt.Errorf("%w in %s", err, b)
			}
			four := a.As4()
			return int(four[0])<<24 | int(four[1])<<16 | int(four[2])<<8 | int(four[3]), nil
		},
	}
}

// last is the last part of a key.
func last(key string) string { return key[strings.LastIndexByte(key, ':')+1:] }

// setup are the objects that all others need.
func setup() (out [][2]string) {
	add := func(path, body string) { out = append(out, [2]string{"/api/v1/" + path + "/", body}) }
	add("tenants/"+tenant, fmt.Sprintf(`{"tenantName":%q}`, tenant))
	add("networks/"+tenant+":"+busyNet, fmt.Sprintf(`{"tenantName":%q,"networkName":%q,"encap":"vxlan","subnet":"10.200.0.0/26","gateway":"10.200.0.62"}`, tenant, busyNet))
	for i := range policies {
		add(fmt.Sprintf("policys/%s:p%d", tenant, i), fmt.Sprintf(`{"tenantName":%q,"policyName":"p%d"}`, tenant, i))
	}
	return out
}
