package control

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestZeroActorHasNoRights: the zero actor reads no tenant, and changes no object of a host.
func TestZeroActorHasNoRights(t *testing.T) {
	c := newCluster(t)
	c.put(model.Tenant{Name: "blue"})
	c.fresh()
	var a Actor
	if s := a.Scope(); !s.Limited() || s.Has("blue") || s.Has("") || len(s.Tenants()) > 0 {
		t.Errorf("scope %+v", s)
	}
	if _, err := c.Put(testContext(t), a, c.Networks.ChangeNetwork(valid(infraNetwork("blue:i", "10.1.0.0/24")))); err == nil {
		t.Error("it makes an infra network")
	}
	if hosts, err := c.Hosts.List(testContext(t), a); err != nil || len(hosts) > 0 {
		t.Errorf("hosts %v, %v", hosts, err)
	}
}

// TestWritesTakeAnActor: each method of the use-cases that takes a context takes an Actor or
// a Leader too, but for the ones that only read. All that commits gets it from there: an
// administrator is made up only where the program acts by itself.
func TestWritesTakeAnActor(t *testing.T) {
	reads := []string{
		"Addresses.AddressHost", "Analysis.Check", "Analysis.Explain", "Analysis.Exposure", "Analysis.Plan", "Analysis.Probe", "Analysis.Reach", "Analysis.Verdicts", "Committer.ReportAssertions", "Committer.View", "Committer.WaitFor", "Heartbeats.Overdue", "Hosts.HostStatuses",
		"Repair.Owners", "Store.Backup", "Store.Identity",
	}
	var none []string
	ctx := reflect.TypeFor[context.Context]()
	for field := range reflect.TypeFor[Controller]().Fields() {
		if !field.IsExported() {
			continue
		}
		for m := range field.Type.Methods() {
			in := slices.Collect(m.Type.Ins())
			if slices.Contains(in, ctx) && !slices.Contains(in, reflect.TypeFor[Actor]()) && !slices.Contains(in, reflect.TypeFor[Leader]()) {
				none = append(none, field.Name+"."+m.Name)
			}
		}
	}
	slices.Sort(none)
	if !slices.Equal(none, reads) {
		t.Errorf("without an actor are %q, and only %q may be", none, reads)
	}

	// "Admin" is a call of Admin, "Update" one that commits.
	want := map[string]bool{
		"Admin in Actor":         true, // of a leader
		"Admin in updateBy":      true, // settles what another has left
		"Admin in replaceStaged": true, // settles
		"Admin in commitBatch":   true, // for several hosts at once
		"Update in report":       true, // with its actor
		"Update in untilDone":    true, // the defaults of a new cluster, before any use-case
	}
	found := map[string]bool{}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					switch f := call.Fun.(type) {
					case *ast.Ident:
						if f.Name == "Admin" {
							found["Admin in "+fn.Name.Name] = true
						}
					case *ast.SelectorExpr:
						if f.Sel.Name == "Update" {
							found["Update in "+fn.Name.Name] = true
						}
					}
				}
				return true
			})
		}
	}
	if !maps.Equal(found, want) {
		t.Errorf("calls %v, want %v", slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(want)))
	}
}
