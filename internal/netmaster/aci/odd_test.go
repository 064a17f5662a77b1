package aci_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
)

// spoken is an APIC that answers a login as it should, unless login says otherwise, and
// all else with the given text.
func spoken(status, login, text string) func(*aci.APICConfig) {
	if login == "" {
		login = `{"totalCount":"1","imdata":[{"aaaLogin":{"attributes":{"token":"t","refreshTimeoutSeconds":"600"}}}]}`
	}
	return func(c *aci.APICConfig) {
		c.Password = "hunter2"
		c.Transport = transport(func(r *http.Request) (*http.Response, error) {
			body := text
			if strings.HasSuffix(r.URL.Path, "aaaLogin.json") {
				body = login
			}
			code := http.StatusOK
			if status != "" {
				code = http.StatusInternalServerError
			}
			return &http.Response{StatusCode: code, Status: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})
	}
}

// TestUnexpectedAPICAnswersAreReported: any unexpected answer of an APIC is reported as such, in a short text
// without a password that a terminal and a store accept.
func TestUnexpectedAPICAnswersAreReported(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	refusal := func(text string) string {
		return `{"totalCount":"1","imdata":[{"error":{"attributes":{"code":"1","text":"` + text + `"}}}]}`
	}
	login := func(seconds string) string {
		return `{"totalCount":"1","imdata":[{"aaaLogin":{"attributes":{"token":"t","refreshTimeoutSeconds":"` + seconds + `"}}}]}`
	}
	for name, tt := range map[string]struct{ status, login, text string }{
		"a status that repeats the password": {"500 no hunter2 " + strings.Repeat("x", 5000), "", "{}"},
		"a session of a long time":           {"", login(long), "{}"},
		"a session of a secret time":         {"", login("hunter2"), "{}"},
		"a long number of objects":           {"", "", `{"totalCount":"` + long + `","imdata":[]}`},
		"many objects":                       {"", "", `{"totalCount":"300000","imdata":[` + strings.Repeat("{},", 299_999) + `{}]}`},
		"an object of numbers":               {"", "", `{"totalCount":"1","imdata":[{"fvTenant":{"attributes":{"dn":7}}}]}`},
		"an object of text":                  {"", "", `{"totalCount":"1","imdata":["fvTenant"]}`},
		"objects of nothing":                 {"", "", `{"totalCount":"1","imdata":[null]}`},
		"no list":                            {"", "", `{"totalCount":"0","imdata":{}}`},
		"a list of null":                     {"", "", `{"totalCount":"0","imdata":null}`},
		"two answers":                        {"", "", `{"totalCount":"0","imdata":[]}{}`},
		"a deep one":                         {"", "", strings.Repeat("[", 1_000_000)},
		"an object that nobody asked for":    {"", "", `{"totalCount":"1","imdata":[{"fvTenant":{"attributes":{"dn":"uni/tn-x"}}}]}`},
		"a refusal that breaks a terminal":   {"", "", refusal(`a\u001b[2J\nb\u0007`)},
		"a refusal cut within a letter":      {"", "", refusal("x" + long)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newAPIC(t, newSim(t), spoken(tt.status, tt.login, tt.text)).Apply(t.Context(), shop())
			if !errors.Is(err, model.ErrUnavailable) && !errors.Is(err, model.ErrInvalid) {
				t.Fatalf("%.300v", err)
			}
			text := err.Error()
			if len(text) > 800 || !utf8.ValidString(text) || strings.Contains(text, "hunter2") || strings.ContainsFunc(text, unicode.IsControl) {
				t.Errorf("%d bytes: %.400q", len(text), text)
			}
			if name == "many objects" && !strings.Contains(text, "more than 200000 objects") { // and not that some are missing, after all were read
				t.Errorf("many objects: %v", err)
			}
		})
	}
}

// TestLongForeignNamesAreShortened: long names of others' objects are shortened.
func TestLongForeignNamesAreShortened(t *testing.T) {
	sim := newSim(t)
	a := newAPIC(t, sim)
	apply(t, a, shop())
	put(t, sim, "uni/tn-blue/ap-shop/epg-db/rsprov-x", "fvRsProv")
	long := "uni/tn-blue/ap-shop/epg-db/rsprov-" + strings.Repeat("x", 9000)
	b := newAPIC(t, sim, func(c *aci.APICConfig) {
		inner := c.Transport
		c.Transport = transport(func(r *http.Request) (*http.Response, error) {
			resp, err := inner.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body = io.NopCloser(strings.NewReader(strings.ReplaceAll(string(text), `"uni/tn-blue/ap-shop/epg-db/rsprov-x"`, `"`+long+`"`)))
			return resp, err
		})
	})
	r, err := b.Apply(t.Context(), aci.Fabric{Settings: settings()})
	if err != nil || len(r.Problems) == 0 {
		t.Fatalf("%v, %v", r.Problems, err)
	}
	for _, p := range r.Problems {
		if len(p.Text) > 600 {
			t.Errorf("a problem of %d bytes", len(p.Text))
		}
	}
}

// TestICMPMeansBothFamilies: "icmp" in a rule means both families, as hosts enforce it.
func TestICMPMeansBothFamilies(t *testing.T) {
	sim := newSim(t)
	apply(t, newAPIC(t, sim), shop())
	for _, prot := range []string{"icmp", "icmpv6"} {
		if want := "uni/tn-blue/ap-shop/epg-web may " + prot + " unspecified-unspecified to uni/tn-blue/ap-shop/epg-db"; !permits(sim.Tree())[want] {
			t.Errorf("not let through: %s", want)
		}
	}
}

// TestEndlessSessionIsRefreshed: a session that may last forever is refreshed, not replaced.
func TestEndlessSessionIsRefreshed(t *testing.T) {
	sim := newSim(t)
	now := time.Unix(1_000_000, 0)
	sim.Now, sim.Life = func() time.Time { return now }, 1_500_000_000*time.Second
	a := newAPIC(t, sim)
	apply(t, a, shop())
	sim.Requests()
	now = now.Add(400 * time.Second)
	apply(t, a, shop())
	for _, r := range sim.Requests() {
		if strings.Contains(r.Path, "aaaLogin") {
			t.Error("it logged in anew")
		}
	}
}

// TestOddNamesStayDistinct: names as long and as odd as Contiv takes make a fabric, and none meets
// another.
func TestOddNamesStayDistinct(t *testing.T) {
	long := strings.Repeat("x", 62)
	f, sim := shop(), newSim(t)
	f.Rules = nil
	f.Groups, f.Profiles[0].Groups = nil, nil
	for i, name := range []string{long + "-a", long + "-b", long + ".b", "0", "a.b", "a-b", "A.b"} {
		g := group(name, uint16(200+i), model.PolicyName(name))
		f.Groups = append(f.Groups, g)
		f.Profiles[0].Groups = append(f.Profiles[0].Groups, g.Key.Name)
		f.Rules = append(f.Rules, rule(name, "1", long+"-a", model.ProtoTCP, uint16(1000+i)))
	}
	a := newAPIC(t, sim)
	if r := apply(t, a, f); len(r.Problems) > 0 {
		t.Errorf("problems: %v", r.Problems)
	}
	n := 0
	for p := range permits(sim.Tree()) {
		if strings.Contains(p, " may ") {
			n++
		}
	}
	if n != len(f.Groups) {
		t.Errorf("%d permissions of %d", n, len(f.Groups))
	}
	apply(t, a, aci.Fabric{Settings: settings()})
	for dn, o := range sim.Tree() {
		if o.Props["annotation"] == "orchestrator:contiv-one" {
			t.Errorf("left: %s", dn)
		}
	}
}
