package model

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/pagetest"
)

var update = flag.Bool("update", false, "write docs/reference/limits.md")

// limits are the constants Max... of the package, by object.
var limits = []struct {
	name    string
	most    int
	of, has string
}{
	{"MaxName", MaxName, "any object", "characters of a name, unless said below"},
	{"MaxCfgdTag", MaxCfgdTag, "network, group", "characters of `cfgdTag`"},
	{"MaxVLAN", MaxVLAN, "network", "VLAN id"},
	{"MaxVNI", MaxVNI, "network", "VNI"},
	{"MaxShared", MaxShared, "tenant", "networks of other tenants in `sharedNetworks`"},
	{"MaxGroupPolicies", MaxGroupPolicies, "group", "policies"},
	{"MaxGroupRefs", MaxGroupRefs, "group", "policies and groups of external contracts together"},
	{"MaxNetworkPolicyRules", MaxNetworkPolicyRules, "network policy", "rules"},
	{"MaxOrder", MaxOrder, "network policy", "order"},
	{"MaxRulePeers", MaxRulePeers, "rule of a network policy", "peers"},
	{"MaxRulePorts", MaxRulePorts, "rule of a network policy", "blocks of ports"},
	{"MaxRuleExcept", MaxRuleExcept, "rule of a network policy", "exceptions of a peer"},
	{"MaxSelectorLabels", MaxSelectorLabels, "selector", "labels and expressions together"},
	{"MaxSelectorValues", MaxSelectorValues, "selector", "values of an expression"},
	{"MaxPolicyRules", MaxPolicyRules, "policy as an object of Kubernetes", "rules"},
	{"MaxPolicyEntries", MaxPolicyEntries, "policies of one group", "entries in a host's tables (driver ebpf)"},
	{"MaxPolicyFlows", MaxPolicyFlows, "policies of one host", "flows (driver ovs)"},
	{"MaxDSCP", MaxDSCP, "network profile", "DSCP"},
	{"MaxBurst", MaxBurst, "network profile", "burst in kilobytes"},
	{"MaxBandwidth", MaxBandwidth, "network profile", "bandwidth in kbit/s"},
	{"MaxRate", MaxRate, "rates of a runtime (CNI)", "bit/s"},
	{"MaxRateBurst", MaxRateBurst, "rates of a runtime (CNI)", "burst in bytes"},
	{"MaxServices", MaxServices, "services of all tenants and Kubernetes", "services"},
	{"MaxServiceFrontends", MaxServiceFrontends, "services of all tenants and Kubernetes", "pairs of address and port"},
	{"MaxServiceName", MaxServiceName, "service", "characters of the name"},
	{"MaxServicePorts", MaxServicePorts, "service", "ports"},
	{"MaxServiceSelectors", MaxServiceSelectors, "service", "selectors"},
	{"MaxProviders", MaxProviders, "service", "providers that get connections"},
	{"MaxClusterPorts", MaxClusterPorts, "service of Kubernetes", "ports"},
	{"MaxBalancedAddrs", MaxBalancedAddrs, "service of Kubernetes", "addresses of its load balancer"},
	{"MaxExternalAddrs", MaxExternalAddrs, "service of Kubernetes", "external addresses"},
	{"MaxBalancedPrefixes", MaxBalancedPrefixes, "service of Kubernetes", "source ranges of its load balancer"},
	{"MaxSlicePorts", MaxSlicePorts, "EndpointSlice", "ports"},
	{"MaxSliceBackends", MaxSliceBackends, "EndpointSlice", "backends"},
	{"MaxHints", MaxHints, "EndpointSlice", "zone hints, and node hints, of a backend"},
	{"MaxNodeAddrs", MaxNodeAddrs, "node of Kubernetes", "addresses"},
	{"MaxServiceRanges", MaxServiceRanges, "Kubernetes", "ranges of service addresses"},
	{"MaxIdentities", MaxIdentities, "endpoints of all tenants", "identities: different sets of network, group and counted labels"},
	{"MaxHostName", MaxHostName, "host", "characters of the name"},
	{"MaxEndpointText", MaxEndpointText, "endpoint", "characters of the common name, and of the container id"},
	{"MaxLabels", MaxLabels, "endpoint", "labels"},
	{"MaxLabelKey", MaxLabelKey, "endpoint", "characters of a label's key"},
	{"MaxLabelValue", MaxLabelValue, "endpoint", "bytes of a label's value"},
	{"MaxNamedPorts", MaxNamedPorts, "endpoint", "named ports"},
	{"MaxLabelFilter", MaxLabelFilter, "global settings", "entries of `generatedLabels`, with the default list"},
	{"MaxPrefixes", MaxPrefixes, "global settings", "entries of `tenantPrefixes`"},
	{"MaxAppProfileGroups", MaxAppProfileGroups, "app profile", "groups"},
	{"MaxBgpRouters", MaxBgpRouters, "BGP settings of a host", "neighbors"},
	{"MaxBgpPassword", MaxBgpPassword, "BGP settings of a host", "characters of the password"},
	{"MaxBgpPrefixes", MaxBgpPrefixes, "BGP settings of a host", "`maxPrefixes`"},
	{"MaxContracts", MaxContracts, "group of external contracts", "contracts"},
	{"MaxContractName", MaxContractName, "group of external contracts", "characters of a contract's name"},
	{"MaxPhysicalDomain", MaxPhysicalDomain, "ACI gateway", "characters of the physical domain"},
	{"MaxAssertedPorts", MaxAssertedPorts, "assertion", "entries of `ports`"},
	{"MaxAssertionText", MaxAssertionText, "assertion", "characters of `from`, `to`, `owner` and `reason`"},
	{"MaxBindings", MaxBindings, "ACI gateway", "paths, and nodes"},
}

// TestReferencePageHasEachLimit: the page of the limits has each constant.
func TestReferencePageHasEachLimit(t *testing.T) {
	p := &pagetest.Page{
		Name: "limits.md", Command: "go test ./internal/model -run TestReferencePageHasEachLimit -update", Title: "Limits of objects",
		Purpose: "On this page you look up how many, how long and how large the parts of objects may be; [restrictions](restrictions.md) has the limits of hosts, drivers and servers.",
	}
	p.Printf("\nIn requests netmaster refuses larger values with status 400, and with 409 where the limit is of several objects together. [Policies of Kubernetes](../how-to/kubernetes-policies.md#find-out-what-does-not-apply-as-written) says what becomes of its objects.\n")
	var rows [][]string
	listed := map[string]bool{}
	for _, l := range limits {
		listed[l.name] = true
		rows = append(rows, []string{l.of, l.has, strconv.Itoa(l.most)})
	}
	p.Table([]string{"of", "what", "at most"}, rows...)
	p.Check(t, *update)
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	constant := regexp.MustCompile(`(?m)^(?:const|\t)\s*(Max[A-Z]\w*)\s*=`)
	found := 0
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range constant.FindAllStringSubmatch(string(text), -1) {
			if found++; !listed[m[1]] {
				t.Errorf("%s of %s is not in the list of limits: add it, and it is on the page", m[1], file)
			}
		}
	}
	if found != len(limits) {
		t.Errorf("%d constants, and %d limits", found, len(limits))
	}
}
