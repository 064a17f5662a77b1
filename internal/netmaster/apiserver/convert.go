package apiserver

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// addrText is an address's text, empty for none.
func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func tenantLink(t model.TenantName) api.Link { return api.Link{Type: "tenant", Key: string(t)} }

func addLink(set *api.LinkSet, kind, key string) {
	if *set == nil {
		*set = make(api.LinkSet)
	}
	(*set)[key] = api.Link{Type: kind, Key: key}
}

// networkID is a network's name in 1.x's runtime interface: network.tenant.
func networkID(k model.NetworkKey) string { return string(k.Name) + "." + string(k.Tenant) }

// groupID is a group's key there: group:tenant.
func groupID(t model.TenantName, g model.GroupName) string {
	if g == "" {
		return ""
	}
	return string(g) + ":" + string(t)
}

// labelText writes labels as 1.x did, the way Go prints a map: "map[a:1 b:2]".
func labelText(labels map[string]string) string {
	var b strings.Builder
	b.WriteString("map[")
	for i, k := range sortedKeys(labels) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(k + ":" + labels[k])
	}
	b.WriteByte(']')
	return b.String()
}

// sortedKeys returns a map's keys in order.
func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
