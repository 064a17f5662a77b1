package apiserver

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
)

// roundTrip decodes a body as an object of a kind; what is accepted comes back
// as it was written, and is accepted again.
func (k *kind) roundTrip(t *testing.T, data []byte) {
	t.Helper()
	read := func(body []byte) (desiredWrite, error) {
		if err := strictjson.Decode(body, new(json.RawMessage)); err != nil {
			return desiredWrite{}, err
		}
		return k.read(new(control.Controller), body)
	}
	want, err := read(data)
	if err != nil {
		if !errors.Is(err, model.ErrInvalid) {
			t.Fatalf("%s %q: %v is not a refusal", k.name, data, err)
		}
		return
	}
	back := k.render(want.object)
	body, err := json.Marshal(back)
	if err != nil {
		t.Fatal(err)
	}
	again, err := read(body)
	if err != nil {
		t.Fatalf("%s %q: what was accepted is refused when sent back: %v", k.name, data, err)
	}
	if d := cmp.Diff(back, k.render(again.object), cmp.AllowUnexported(endpointRequest{})); d != "" {
		t.Fatalf("%s %q: changes when sent back: %s", k.name, data, d)
	}
}

// FuzzConvert: no object is accepted and then refused, or changed, when a client
// puts back what it got.
func FuzzConvert(f *testing.F) {
	for _, k := range fieldCases {
		f.Add([]byte(k.object))
		for _, c := range k.fields {
			f.Add([]byte(c.pass[0]))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, k := range registry {
			if k.name != "global" { // a change of it is not what it is
				k.roundTrip(t, data)
			}
		}
	})
}
