package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// Of what a host tells a tenant admin's monitor, it shows that tenant's packets alone.
func TestMonitorOfTenantAdmin(t *testing.T) {
	s := startSecured(t, "--tokens")
	admin, nobody, host := s.as("root", pki.ClusterAdmin), s.as("", ""), s.as("h1", pki.Host)
	s.things(admin)
	var made struct{ Secret string }
	if err := json.Unmarshal([]byte(s.must(200, admin, "POST", "/api/v1/tokens", `{"name":"anna","role":"tenant-admin","tenants":["blue"],"life":3600}`, "")), &made); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/v1/monitor", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+made.Secret)
	resp, err := nobody.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("monitor: %v, %v", resp, err)
	}
	defer resp.Body.Close()
	id := ""
	eventually(t, "hosts are asked", func() error {
		for key := range s.dump() {
			if strings.Contains(key, "/oper/monitor/") {
				id = path.Base(key)
				return nil
			}
		}
		return errors.New("not yet")
	})
	lines := `{"event":"drop","tenant":"red","network":"vault","from":{"endpoint":"red:vault:r1","address":"10.1.2.1"}}
{"event":"lost","count":99}
{"event":"note","text":"vault"}
{"event":"drop","tenant":"blue","network":"net","from":{"endpoint":"blue:net:e1","address":"10.1.1.1"},"to":{"endpoint":"red:vault:r1","group":"red:crypt","address":"10.1.2.1"}}
`
	s.must(200, host, "POST", "/plugin/monitor/"+id+"?host=h1", lines, "")
	var shown []api.FlowEvent
	for in := bufio.NewScanner(resp.Body); len(shown) < 3 && in.Scan(); {
		var e api.FlowEvent
		if strings.Contains(in.Text(), "vault") || strings.Contains(in.Text(), "crypt") || strings.Contains(in.Text(), `"count":99`) {
			t.Errorf("it shows %s", in.Text())
		}
		if json.Unmarshal(in.Bytes(), &e) == nil {
			shown = append(shown, e)
		}
	}
	if len(shown) != 3 || shown[0].Text != "watching h1, h2" || shown[1].Event != api.FlowLost || shown[2].From.Endpoint != "blue:net:e1" || shown[2].To.Address != "10.1.2.1" {
		t.Errorf("it shows %+v", shown)
	}
}
