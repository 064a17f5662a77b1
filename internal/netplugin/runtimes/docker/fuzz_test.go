package docker

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzCalls: whatever Docker's engine, or somebody at the socket, sends, is answered
// with JSON, which says the error where there is one, and no call is a failure of ours.
func FuzzCalls(f *testing.F) {
	calls := []string{
		"NetworkDriver.CreateNetwork", "NetworkDriver.DeleteNetwork", "NetworkDriver.AllocateNetwork", "NetworkDriver.CreateEndpoint",
		"NetworkDriver.DeleteEndpoint", "NetworkDriver.EndpointOperInfo", "NetworkDriver.Join", "NetworkDriver.Leave",
		"NetworkDriver.ProgramExternalConnectivity", "NetworkDriver.RevokeExternalConnectivity",
		"IpamDriver.RequestPool", "IpamDriver.ReleasePool", "IpamDriver.RequestAddress", "IpamDriver.ReleaseAddress",
	}
	for i, body := range []string{
		`{"NetworkID":"n1","Options":{"com.docker.network.generic":{"tenant":"default","net-name":"net1"}},"IPv4Data":[{"Pool":"10.1.1.0/24","Gateway":"10.1.1.254/24"}]}`,
		`{"NetworkID":"n1"}`, `{"NetworkID":"n1","Options":null,"IPv4Data":[{}]}`,
		`{"NetworkID":"n1","EndpointID":"e1","Interface":{"Address":"10.1.1.5/24","AddressIPv6":"fd00:1::5/64","MacAddress":"02:00:00:00:00:01"}}`,
		`{"NetworkID":"n1","EndpointID":"e1"}`, `{"NetworkID":"n1","EndpointID":"e1"}`, `{"NetworkID":"n1","EndpointID":"e1","SandboxKey":"/x"}`, `{}`,
		`{"NetworkID":"n1","EndpointID":"e1","Options":{"com.docker.network.portmap":[{"Proto":6,"Port":80,"HostPort":8080}]}}`, `null`,
		`{"AddressSpace":"x","Pool":"10.1.1.0/24","Options":{"tenant":"default"},"V6":false}`, `{"PoolID":"default/net1//10.1.1.0/24"}`,
		`{"PoolID":"default/net1//10.1.1.0/24","Address":"10.1.1.7","Options":{}}`, `{"PoolID":"blue/n/g/fd00::/64","Address":"::"}`,
	} {
		f.Add(byte(i), body)
	}
	dir := f.TempDir()
	p, err := New(f.Context(), Config{Name: "netplugin", SocketDir: dir, StateDir: dir, Backend: newCluster().backend(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = p.Close() })
	h := p.handler()
	f.Fuzz(func(t *testing.T, call byte, body string) {
		w := httptest.NewRecorder()
		path := "/" + calls[int(call)%len(calls)]
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %q: %d %s", path, body, w.Code, w.Body)
		}
		var said struct{ Err, Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || said.Err != said.Error || w.Code == http.StatusBadRequest && said.Err == "" {
			t.Errorf("%s %q is answered %d %s, %v", path, body, w.Code, w.Body, err)
		}
	})
}
