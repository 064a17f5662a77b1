package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// answers is a server that always answers the same.
type answers struct {
	status              int
	kind, warning, body string
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{"Content-Type": {a.kind}, "Warning": {a.warning}}
	return &http.Response{StatusCode: a.status, Header: h, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

// FuzzAnswers: the client decodes any answer of any server. A valid JSON answer is a value,
// every other one an error that describes it. A refusal has the answer's status. A warning
// is passed on unchanged, or not at all.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{`{"key":"blue","tenantName":"blue"}`, `{"status":7,"message":"no"}`, `{"message":""}`, `[`, `<html>`, ``, "\xff"} {
		f.Add(uint16(200), "application/json", `299 - "said"`, s)
		f.Add(uint16(404), "application/json; charset=utf-8", `299 - 'x'`, s)
		f.Add(uint16(500), "text/plain;;", `299 - "\xff`, s)
	}
	f.Fuzz(func(t *testing.T, code uint16, kind, warning, body string) {
		status := 200 + int(code)%400
		if status == http.StatusServiceUnavailable {
			return // it is asked again
		}
		var told []string
		c, err := NewClient("http://127.0.0.1:1", WithHTTPClient(&http.Client{Transport: answers{status, kind, warning, body}}), WithWarnings(func(s string) { told = append(told, s) }))
		if err != nil {
			t.Fatal(err)
		}
		var out Tenant
		err = c.Do(t.Context(), http.MethodGet, "/api/v1/tenants/blue/", nil, &out)
		if good := status == http.StatusOK && json.Unmarshal([]byte(body), new(Tenant)) == nil; good != (err == nil) && status == http.StatusOK {
			t.Errorf("%d %q is %+v, %v", status, body, out, err)
		}
		if e, ok := errors.AsType[*Error](err); ok && (e.Status != status || e.Error() == "") {
			t.Errorf("%d %q of %q is %d: %v", status, body, kind, e.Status, e)
		}
		for _, s := range told {
			if !strings.HasPrefix(warning, `299 - `) {
				t.Errorf("%q is told as %q", warning, s)
			}
		}
	})
}
