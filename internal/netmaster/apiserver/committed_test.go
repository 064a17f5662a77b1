package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// TestPutIsAnsweredWithItsCommit: a PUT is answered with what it committed and with the
// revision of that commit, although others delete and change the same objects
// all the time: never with 404, nor with somebody else's values.
func TestPutIsAnsweredWithItsCommit(t *testing.T) {
	f := serve(t, 0)
	f.must("POST", "/api/v1/tenants/t/", `{"tenantName":"t"}`)
	const writers, each = 4, 150
	var all sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]string{} // revision -> who
	for w := range writers {
		all.Go(func() {
			for i := range each {
				key := fmt.Sprintf("t:p%d", i%2)
				mine := (w*each+i)%9000 + 2
				body := fmt.Sprintf(`{"tenantName":"t","profileName":"p%d","burst":%d}`, i%2, mine)
				method := http.MethodPut
				if (w+i)%3 == 0 {
					method, body = http.MethodDelete, ""
				}
				req, err := http.NewRequestWithContext(t.Context(), method, f.url+"/api/v1/netprofiles/"+key, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := f.http.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				var got strings.Builder
				_ = resp.Write(&got)
				_ = resp.Body.Close()
				switch {
				case resp.StatusCode == http.StatusNotFound && method == http.MethodDelete:
					continue
				case resp.StatusCode != http.StatusOK:
					t.Errorf("%s %s: %s", method, key, got.String())
					continue
				case method == http.MethodPut && !strings.Contains(got.String(), `"burst":`+strconv.Itoa(mine)):
					t.Errorf("PUT of %d is answered with another's values: %s", mine, got.String())
				}
				revision := resp.Header.Get(revisionHeader)
				mu.Lock()
				if n, err := strconv.ParseInt(revision, 10, 64); err != nil || n <= 0 || seen[revision] != "" {
					t.Errorf("%s %s has revision %q, which %q has too", method, key, revision, seen[revision])
				}
				seen[revision] = method + " " + body
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

// TestRevisionOfEveryWrite: each kind of write carries the revision of its
// commit; reads and refusals carry none; a write that changes nothing carries
// the last one.
func TestRevisionOfEveryWrite(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	last := int64(0)
	for _, c := range []struct {
		method, path, body string
		grows              bool
	}{
		{http.MethodPut, "/api/v1/tenants/x", `{"tenantName":"x"}`, true},
		{http.MethodPut, "/api/v1/tenants/x", `{"tenantName":"x"}`, false},
		{http.MethodPost, "/api/v1/networks/x:n", `{"tenantName":"x","networkName":"n","encap":"vxlan","subnet":"10.5.0.0/24"}`, true},
		{http.MethodPost, "/api/v1/apply", `{"objects":[{"kind":"policy","tenantName":"x","policyName":"p"}]}`, true},
		{http.MethodPost, "/plugin/createEndpoint", `{"TenantName":"x","NetworkName":"n","EndpointID":"e","ConfigEP":{"Host":"h"}}`, true},
		{http.MethodPost, "/plugin/updateEndpoint", `{"Tenant":"x","Network":"n","EndpointID":"e","Event":"start","ContainerID":"c","EPCommonName":"z"}`, true},
		{http.MethodPost, "/api/v1/endpoints/x:n:e/drain", "{}", true},
		{http.MethodDelete, "/api/v1/endpoints/c/drain", "", true},
		{http.MethodPost, "/plugin/deleteEndpoint", `{"TenantName":"x","NetworkName":"n","EndpointID":"e"}`, true},
		{http.MethodPost, "/plugin/allocAddress", `{"NetworkID":"n.x","PreferredIPv4Address":"10.5.0.9"}`, true},
		{http.MethodPost, "/plugin/releaseAddress", `{"NetworkID":"n.x","IPv4Address":"10.5.0.9"}`, true},
		{http.MethodDelete, "/debug/epcleanup/tenant/blue/ep/e1", "", true},
		{http.MethodDelete, "/api/v1/networks/x:n", "", true},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, f.url+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		n, err := strconv.ParseInt(resp.Header.Get(revisionHeader), 10, 64)
		if resp.StatusCode != http.StatusOK || err != nil || c.grows && n <= last || !c.grows && n != last {
			t.Errorf("%s %s: %d, revision %d after %d, %v", c.method, c.path, resp.StatusCode, n, last, err)
		}
		last = max(last, n)
	}
	for _, path := range []string{"/api/v1/tenants/x", "/api/v1/tenants/nosuch"} {
		resp, err := f.http.Get(f.url + path) //nolint:noctx // a test's server
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if r := resp.Header.Get(revisionHeader); r != "" {
			t.Errorf("GET %s has revision %s", path, r)
		}
	}
}

// TestJSONClientsGetTheErrorsKind: who accepts JSON gets each refusal with its kind, others get
// the same sentence as text.
func TestJSONClientsGetTheErrorsKind(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	for _, c := range []struct{ method, path, body, kind string }{
		{http.MethodGet, "/api/v1/tenants/nosuch", "", api.KindNotFound},
		{http.MethodGet, "/api/v1/nosuch/", "", api.KindNoRoute},
		{http.MethodPatch, "/api/v1/tenants/blue", "", api.KindMethod},
		{http.MethodPut, "/api/v1/tenants/a_b", `{"tenantName":"a_b"}`, api.KindInvalid},
		{http.MethodDelete, "/api/v1/tenants/blue", "", api.KindInUse},
		{http.MethodPut, "/api/v1/networks/blue:n", `{"tenantName":"blue","networkName":"n","encap":"vlan","subnet":"10.1.1.0/24"}`, api.KindConflict},
		{http.MethodPost, "/plugin/createEndpoint", endpoint("tiny", "", "t3", ""), api.KindExhausted},
	} {
		_, text := f.do(c.method, c.path, c.body)
		err := f.Do(t.Context(), c.method, c.path, jsonOf(c.body), nil)
		if api.KindOf(err) != c.kind || err.Error() != strings.TrimSpace(text) {
			t.Errorf("%s %s: %q of kind %q, as text %q; want %s", c.method, c.path, err, api.KindOf(err), text, c.kind)
		}
	}
}

func jsonOf(body string) any {
	if body == "" {
		return nil
	}
	return json.RawMessage(body)
}
