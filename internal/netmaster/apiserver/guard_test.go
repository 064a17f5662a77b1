package apiserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

// TestUnknownHostHeadersAreRefused: only names that are known to be this server's are answered.
func TestUnknownHostHeadersAreRefused(t *testing.T) {
	f := serveWith(t, func(c *Config) { c.Hosts = []string{"netmaster.corp.example"} })
	f.addHosts("m1.rack.example")
	for host, want := range map[string]int{
		"127.0.0.1": 200, "10.0.0.1:9999": 200, "[::1]:9999": 200, "localhost:1": 200, "x.localhost": 200, "netmaster:9999": 200,
		"netmaster.corp.example": 200, "NETMASTER.corp.example.:9999": 200, "m1.rack.example:9999": 200,
		"evil.example": http.StatusForbidden, "evil.example:9999": http.StatusForbidden, "127.0.0.1.evil.example": http.StatusForbidden, "corp.example": http.StatusForbidden,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			req, err := http.NewRequestWithContext(t.Context(), method, f.url+"/api/v1/tenants/blue", strings.NewReader(`{"tenantName":"blue"}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			if want == http.StatusForbidden { // a page of that name, for which the browser sees one origin
				req.Header.Set("Origin", "http://"+host)
			}
			resp, err := f.http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if (resp.StatusCode == http.StatusForbidden) != (want == http.StatusForbidden) || want == http.StatusForbidden && !strings.Contains(string(body), "--allowed-hosts") {
				t.Errorf("%s with Host %s: %d %s", method, host, resp.StatusCode, body)
			}
		}
	}
}

// TestBodiesOtherThanJSONAreRefused: what is not JSON, or compressed, is refused with 415.
func TestBodiesOtherThanJSONAreRefused(t *testing.T) {
	f := serve(t, 0)
	for header, want := range map[string]int{
		"Content-Type: application/json": 200, "Content-Type: application/x-www-form-urlencoded": 200,
		"Content-Type: text/plain": 415, "Content-Type: text/plain;charset=UTF-8": 415,
		"Content-Encoding: gzip": 415, "Content-Encoding: identity": 200,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, f.url+"/api/v1/tenants/blue", strings.NewReader(`{"tenantName":"blue"}`))
		if err != nil {
			t.Fatal(err)
		}
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
		resp, err := f.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", header, resp.StatusCode, want)
		}
	}
}

// TestReadsAndDeletionsOfAnyContentType: they have no body whose type could matter.
func TestReadsAndDeletionsOfAnyContentType(t *testing.T) {
	f := serve(t, 0)
	f.must("PUT", "/api/v1/tenants/blue", `{"tenantName":"blue"}`)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		req, err := http.NewRequestWithContext(t.Context(), method, f.url+"/api/v1/tenants/blue", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "text/plain")
		resp, err := f.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", method, resp.StatusCode)
		}
	}
}

// TestSmuggledRequestsAreNotServed: after a request with a length and chunks nothing else on the
// connection is taken for a request.
func TestSmuggledRequestsAreNotServed(t *testing.T) {
	f := serve(t, 0)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	second := "PUT /api/v1/tenants/evil HTTP/1.1\r\nHost: x\r\nContent-Length: 21\r\n\r\n{\"tenantName\":\"evil\"}"
	fmt.Fprintf(conn, "PUT /api/v1/tenants/blue HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", second)
	answers := 0
	r := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			break
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		answers++
	}
	if _, err := f.Tenants().Get(t.Context(), "evil"); answers != 1 || !api.IsNotFound(err) {
		t.Errorf("%d answers; the second request: %v", answers, err)
	}
}

// TestLegacyErrorsHaveStatus500: where it is asked for, clients that send no Accept header
// get refusals as of 1.x: status 500 and the sentence.
func TestLegacyErrorsHaveStatus500(t *testing.T) {
	f := serveWith(t, func(c *Config) { c.LegacyErrors = true })
	if status, body := f.do("DELETE", "/api/v1/tenants/nosuch/", ""); status != 500 || !strings.Contains(body, `tenant "nosuch" does not exist`) {
		t.Errorf("%d %s", status, body)
	}
	if _, err := f.Tenants().Get(t.Context(), "nosuch"); !api.IsNotFound(err) {
		t.Errorf("our own client: %v", err)
	}
	if status, _ := f.do("GET", "/api/v1/tenants/default/", ""); status != 200 {
		t.Errorf("a success: %d", status)
	}
}

// TestServersFieldsInRequestsAreIgnored: what a client sends in the server's fields is ignored,
// whatever it is; an emptied field is taken away, one left out stays.
func TestServersFieldsInRequestsAreIgnored(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	for _, links := range []string{`[]`, `"junk"`, `7`, `null`, `{"Networks":[1]}`} {
		f.must("PUT", "/api/v1/tenants/blue/", `{"tenantName":"blue","link-sets":`+links+`,"links":`+links+`}`)
		f.must("POST", "/api/v1/apply", `{"objects":[{"kind":"tenant","tenantName":"blue","link-sets":`+links+`}]}`)
	}
	f.must("PUT", "/api/v1/tenants/blue/", `{"tenantName":"blue","defaultNetwork":"n"}`)
	if got := f.must("PUT", "/api/v1/tenants/blue/", `{"tenantName":"blue"}`); !strings.Contains(got, `"defaultNetwork":"n"`) {
		t.Errorf("left out: %s", got)
	}
	if got := f.must("PUT", "/api/v1/tenants/blue/", `{"tenantName":"blue","defaultNetwork":""}`); strings.Contains(got, `"defaultNetwork"`) {
		t.Errorf("emptied: %s", got)
	}
}
