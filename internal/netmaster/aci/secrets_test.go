package aci_test

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
)

// TestPasswordGoesToTheConfiguredAPICOnly: the password is sent only to the configured APIC, also after
// redirects, and is in no error, whatever the APIC answers; answers are shortened.
func TestPasswordGoesToTheConfiguredAPICOnly(t *testing.T) {
	const password = "hunter2-and-more"
	long := strings.Repeat("x", 5000)
	for name, tt := range map[string]struct {
		status int
		text   string
		header http.Header
	}{
		"a refusal that repeats what was said": {http.StatusBadRequest, "no " + password, nil},
		"one with status 200":                  {http.StatusOK, "no " + password, nil},
		"one of the login":                     {http.StatusUnauthorized, "no " + password, nil},
		"a long one":                           {http.StatusBadRequest, long, nil},
		"one that is cut within":               {http.StatusBadRequest, long[:295] + password, nil},
		"another server":                       {http.StatusTemporaryRedirect, "", http.Header{"Location": {"https://elsewhere/api/aaaLogin.json"}}},
	} {
		a := newAPIC(t, newSim(t), func(c *aci.APICConfig) {
			c.Password = password
			c.Transport = transport(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host != "apic1" {
					t.Errorf("%s: %s was asked", name, r.URL)
				}
				body := `{"totalCount":"1","imdata":[{"error":{"attributes":{"code":"1","text":` + strconv.Quote(tt.text) + `}}}]}`
				h := tt.header.Clone()
				if h == nil {
					h = http.Header{}
				}
				return &http.Response{StatusCode: tt.status, Status: http.StatusText(tt.status), Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
			})
		})
		_, err := a.Apply(t.Context(), shop())
		if err == nil || strings.Contains(err.Error(), "hunter") || len(err.Error()) > 500 {
			t.Errorf("%s: %v", name, err)
		}
		if !errors.Is(err, model.ErrInvalid) && !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("%s: of no kind: %v", name, err)
		}
	}
}
