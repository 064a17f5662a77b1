package statusreport

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/pagetest"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
)

var update = flag.Bool("update", false, "write docs/reference/events.md")

// TestReferencePageHasEachReason: the page of the events has each reason that netmaster reports.
func TestReferencePageHasEachReason(t *testing.T) {
	const kubernetes, ours = "any object that netmaster syncs, such as NetworkPolicy, Service, Pod", "objects of group `contiv.io`"
	events := [][]string{
		{"EndpointsGivenUp", "Node", "Warning", "the host was away for `--evict-after`, and its endpoints were released"},
		{"HostAway", "Node", "Warning", "the host's netplugin sends no heartbeat; not reported while more than half of the hosts are away"},
		{"HostBack", "Node", "Normal", "the host's netplugin sends heartbeats again"},
		{"RolledBack", "Node", "Warning", "the host has rolled back an unconfirmed change by itself"},
		{reasonNotAsWritten, kubernetes, "Warning", "a part of the object cannot be applied; the message names the field and what holds instead"},
		{reasonNotWritten, kubernetes, "Warning", "the store does not have the object's present state; the message says why"},
		{objects.ReasonMissing, ours, "Warning", "something that the object refers to does not exist; the rest is applied"},
		{objects.ReasonOwned, ours, "Warning", "users or another object own what the object stands for, so nothing of it is applied"},
		{objects.ReasonRefused, ours, "Warning", "the cluster refuses the object; the message says why"},
	}
	p := &pagetest.Page{
		Name: "events.md", Command: "go test ./internal/netmaster/kubernetes/statusreport -run TestReferencePageHasEachReason -update", Title: "Events in Kubernetes",
		Purpose: "On this page you look up what an event of netmaster on an object of Kubernetes means; [Policies of Kubernetes](../how-to/kubernetes-policies.md#find-out-what-does-not-apply-as-written) explains what cannot be applied.",
	}
	p.Printf("\nnetmaster writes them, as controller `%s`. An equal message about an object is the same event.\n", controller)
	p.Table([]string{"reason", "object", "type", "when"}, events...)
	p.Check(t, *update)
	reason, found := regexp.MustCompile(`(?:\bEvent\{h\.Name, |\bReason: +)"([A-Z]\w+)"`), 0
	for _, dir := range []string{"../../liveness", "../../control", "../controller", "."} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range reason.FindAllStringSubmatch(string(text), -1) {
				if found++; !slices.ContainsFunc(events, func(e []string) bool { return e[0] == m[1] }) {
					t.Errorf("%s reports an event %s, which is not on the page", file, m[1])
				}
			}
		}
	}
	if found != 4 {
		t.Errorf("%d reasons of Nodes' events were found in the code, 4 are on the page", found)
	}
}
