package archtest

import (
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netctl"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// A kind of object is in the registry of every layer, once: see
// docs/design/adding-a-kind.md.
func TestEveryLayerHasEveryKind(t *testing.T) {
	var want, collections []string
	orders := map[int]string{}
	for _, k := range model.Kinds() {
		want = append(want, k.Name)
		if k.Collection != "" {
			collections = append(collections, k.Collection)
		}
		if other, taken := orders[k.Order]; taken {
			t.Errorf("%s and %s have the same order, %d", k.Name, other, k.Order)
		}
		orders[k.Order] = k.Name
	}
	slices.Sort(want)
	slices.Sort(collections)
	for layer, have := range map[string][]string{
		"internal/store/tables": tables.Kinds(), "internal/netmaster/control": control.Kinds(),
		"internal/netmaster/apiserver": apiserver.Kinds(), "internal/netctl": netctl.Kinds(),
	} {
		slices.Sort(have)
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("%s has other kinds than internal/model: %s", layer, d)
		}
	}
	if d := cmp.Diff(collections, clientCollections(t)); d != "" {
		t.Errorf("api.Client has other collections than internal/model: %s", d)
	}
}

// clientCollections calls the methods of the client that return a collection.
func clientCollections(t *testing.T) []string {
	t.Helper()
	c, err := api.NewClient("http://127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out []string
	type resource interface{ Collection() string }
	for _, m := range reflect.ValueOf(c).Methods() {
		if m.Type().NumIn() != 0 || m.Type().NumOut() != 1 || !m.Type().Out(0).Implements(reflect.TypeFor[resource]()) {
			continue
		}
		if r, ok := reflect.TypeAssert[resource](m.Call(nil)[0]); ok {
			out = append(out, r.Collection())
		}
	}
	slices.Sort(out)
	return out
}
