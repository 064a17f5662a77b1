package aci_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/acitest"
)

// readable reports whether an answer is one of objects, as many as it says.
func readable(text []byte) bool {
	var a struct {
		Total  any              `json:"totalCount"`
		Imdata []map[string]any `json:"imdata"`
	}
	n := 0
	if json.Unmarshal(text, &a) != nil || a.Imdata == nil {
		return false
	}
	for _, o := range a.Imdata {
		if n += len(o); o["error"] != nil {
			return false
		}
	}
	return fmt.Sprint(a.Total) == strconv.Itoa(n)
}

// FuzzAnswer: any single answer of an APIC, to a login, a read or a change, is handled. The
// error says that it is malformed or a refusal, briefly and without the password. An answer
// that cannot be read changes nothing. Once the APIC answers correctly, the fabric becomes
// what it should be, and objects of others stay.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", `{"totalCount":"0","imdata":[]}`, `{"totalCount":"hunter2","imdata":[]}`, `{"totalCount":0,"imdata":[{}]}`,
		`{"totalCount":"1","imdata":[{"aaaLogin":{"attributes":{"token":"t","refreshTimeoutSeconds":"600","maximumLifetimeSeconds":"1"}}}]}`,
		`{"totalCount":"1","imdata":[{"aaaLogin":{"attributes":{"token":"a b;\n","refreshTimeoutSeconds":"hunter2"}}}]}`,
		`{"totalCount":"1","imdata":[{"error":{"attributes":{"code":"1","text":"no hunter2\u001b"}}}]}`,
		`{"totalCount":"1","imdata":[{"fvTenant":{"attributes":{"dn":"uni/tn-blue","annotation":"orchestrator:contiv-one","name":"blue"},"children":[{"fvAp":{}}]}}]}`,
		`{"totalCount":"1","imdata":[{"fvTenant":{"attributes":{"dn":"uni/tn-green","annotation":"orchestrator:contiv-one"}}}]}`,
		`{"totalCount":"2","imdata":[{"fvTenant":{"attributes":{"dn":"uni/tn-blue/ap-x"}},"fvAp":{"attributes":{"dn":"uni/tn-blue/ap-x"}}}]}`,
	} {
		at := uint8(1)
		if strings.Contains(seed, "aaaLogin") {
			at = 0
		}
		f.Add(at, uint16(http.StatusOK), []byte(seed))
	}
	f.Add(uint8(2), uint16(http.StatusForbidden), []byte("x"))
	f.Add(uint8(8), uint16(http.StatusBadRequest), []byte(`{"imdata":[{"error":{}}]}`))
	right := newSim(f)
	apply(f, newAPIC(f, right), shop())
	should := right.Tree()
	f.Fuzz(func(t *testing.T, at uint8, status uint16, text []byte) {
		if status < 200 || status > 999 {
			status = http.StatusOK
		}
		sim := newSim(t)
		sim.Password = "hunter2"
		direct, n, written, odd := acitest.Direct(sim), 0, 0, ""
		a := newAPIC(t, sim, func(c *aci.APICConfig) {
			c.Transport = transport(func(r *http.Request) (*http.Response, error) {
				if n++; n == int(at)+1 {
					odd, written = r.Method, 0 // what came before it led to what was before
					return &http.Response{StatusCode: int(status), Status: "nothing hunter2", Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, nil
				}
				if r.Method != http.MethodGet && !strings.HasPrefix(r.URL.Path, "/api/aaa") {
					written++
				}
				return direct.RoundTrip(r)
			})
		})
		_, err := a.Apply(t.Context(), shop())
		n = 1 << 20 // once is over
		if err != nil {
			if !errors.Is(err, model.ErrUnavailable) && !errors.Is(err, model.ErrInvalid) {
				t.Errorf("%d %q: of no kind: %v", status, text, err)
			}
			if s := err.Error(); len(s) > 800 || !utf8.ValidString(s) || strings.Contains(s, "hunter2") || strings.ContainsFunc(s, unicode.IsControl) {
				t.Errorf("%d %q: told as %q", status, text, s)
			}
		}
		if status == http.StatusOK && odd == http.MethodGet && written > 0 && !readable(text) {
			t.Errorf("%q was taken for an answer", text)
		}
		apply(t, a, shop())
		if diff := differences(sim.Tree(), should); len(diff) > 0 {
			t.Errorf("%d %q: afterwards differ %v", status, text, diff)
		}
	})
}
