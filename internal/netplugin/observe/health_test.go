package observe

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostsync"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

func TestProblemsHaveKinds(t *testing.T) {
	for object, want := range map[string]string{
		"global": "global", "host n1": "host", "policy set abc": "policy set", "policy 7": "policy", "port cv1": "port",
		"published ports and masquerade": "published ports", "egress": "egress", "tunnels": "other", "": "other",
		"remote 1/02:02:0a:01:01:02": "remote", "something new": "other",
	} {
		if got := problemKind(object); got != want {
			t.Errorf("kind of %q is %q, want %q", object, got, want)
		}
	}
}

// problemConditions are the conditions that problems make fail.
var problemConditions = []*condition.Condition{
	condition.HostTunnel, condition.HostSettings, condition.HostDevices, condition.HostUnconfirmedChange, condition.HostObjects, condition.HostNotes,
}

// failing returns the names of the conditions that one problem makes fail.
func failing(t *testing.T, object, text string, report driver.Report) string {
	t.Helper()
	cfg := &Config{Underlay: &hostsync.Underlay{}}
	var names []string
	for _, c := range checks {
		if !slices.Contains(problemConditions, c.Condition) {
			continue
		}
		err := c.holds(t.Context(), cfg, &observation{SyncStatus: statemirror.SyncStatus{Report: report}, problems: map[string]string{object: text}})
		if err != nil && !strings.Contains(err.Error(), object+": "+text) {
			t.Errorf("%s says of %q: %v", c.Name(), object, err)
		}
		if err != nil {
			names = append(names, c.Name())
		}
	}
	return strings.Join(names, " ")
}

// TestProblemsOfEachKindFailTheirCondition: every kind of problem that may cut containers off
// makes a condition fail that is a fault, and only kinds that cut nothing off are remarks.
func TestProblemsOfEachKindFailTheirCondition(t *testing.T) {
	want := map[string][]string{
		"tunnel":      {"tunnel", "tunnel contivt0", "tunnel underlay", "host", "host h1"},
		"settings":    {"global"},
		"devices":     {"interface", "interface contivh0", "uplink", "uplink eth1", "uplink of network blue:n1"},
		"":            {"port", "port cv1", AboutName, AboutStore, AboutAttachments}, // judged by what there is of them
		"unconfirmed": {"change 7"},
		"objects": {
			"tenant blue", "network blue:n1", "endpoint blue:n1/e1", "group blue:g1", "rule blue:p:1", "policy set 1", "policy blue:p", "remote 1/02:02:0a:01:01:02",
			"egress", "IPv6 egress", "name server", "published ports", "published ports and masquerade", "published 80/tcp of web", "firewall", "damaged journal",
			"router of tenant blue", "shared networks of tenant blue", "service blue:s", "services of Kubernetes", "services of Kubernetes from this host",
			"record x", "control plane", "infra network blue:n1", "infra networks", "forwarding mode", "health check port 80",
			"addresses of load balancers", "native networks", "tunnels of other hosts", "programs", "pin directory /x",
			"addresses of the cluster's machines", "bridge contivVlanBridge", "counts of services", "former uplink", "an unknown kind", "",
			"BGPs", "journals", "net profiles", "Docker networks2",
		},
		"remarks": {
			"net profile of group blue:g1", "bandwidth", "bandwidth of port cv1", "policies that wait", "node ports of Kubernetes at other nodes", "contivk8s of 1.x",
			"Docker networks", "flow log", "spool", "journal", "BGP", "BGP neighbor 10.0.0.1", "netplugins of other hosts",
		},
	}
	for name, objects := range want {
		for _, object := range objects {
			if got := failing(t, object, "is wrong", driver.Report{}); got != name {
				t.Errorf("%q makes %q fail, want %q", object, got, name)
			}
		}
	}
	for _, c := range problemConditions {
		if fault := c != condition.HostUnconfirmedChange && c != condition.HostNotes; fault != (c.Severity() == "error") {
			t.Errorf("%s is of severity %s", c.Name(), c.Severity())
		}
	}
	for _, kind := range slices.Concat(problemKinds, noteKinds) {
		if !slices.ContainsFunc(slices.Concat(want["tunnel"], want["settings"], want["devices"], want[""], want["unconfirmed"], want["objects"], want["remarks"]), func(object string) bool {
			return object == kind || strings.HasPrefix(object, kind+" ")
		}) {
			t.Errorf("this test has no problem of kind %q", kind)
		}
	}
	if got := failing(t, "services", model.NoEffectPrefix+"the data plane has none", driver.Report{}); got != "remarks" {
		t.Errorf("a setting without effect makes %q fail", got)
	}
	foreign := driver.Report{Problems: []driver.Problem{{Object: "flows of bridge contivVlanBridge", Unmanaged: true, Err: errors.New("is wrong")}}}
	if got := failing(t, "flows of bridge contivVlanBridge", "is wrong", foreign); got != "remarks" {
		t.Errorf("foreign flows make %q fail", got)
	}
	if got := failing(t, "egress", "is wrong", foreign); got != "objects" {
		t.Errorf("a problem beside foreign flows makes %q fail", got)
	}
}
