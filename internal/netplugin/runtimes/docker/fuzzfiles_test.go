package docker

import (
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// fixedEngine is an engine that always answers the same.
type fixedEngine string

func (a fixedEngine) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(a))), Request: r}, nil
}

// FuzzEngine: whatever the engine says of networks and containers is an error, or
// networks of the driver that was asked for and containers of which all that is read is
// theirs; and whatever stands in the file of Docker's networks is refused, or the same
// when it is written and read again.
func FuzzEngine(f *testing.F) {
	for _, s := range []string{
		`[{"Id":"n1","Name":"net","Driver":"netplugin","Scope":"local","Labels":{"a":"b"}}]`,
		`[{"Id":"c1","Names":["/web","/db/alias"],"Status":"Up 5 minutes (unhealthy)","Labels":null,"NetworkSettings":{"Networks":{"n":{"EndpointID":"e1"},"m":null}}}]`,
		`{"version":1,"networks":{"n1":{"network":{"tenant":"default","name":"net1"},"created":true}}}`,
		`{"version":2}`, `[null]`, `{}`, `null`, ``,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e := &engine{http: &http.Client{Transport: fixedEngine(text)}}
		networks, err := e.networks(t.Context(), "netplugin")
		for _, n := range networks {
			if err != nil || n.Driver != "netplugin" {
				t.Errorf("%q: network %+v, %v", text, n, err)
			}
		}
		containers, err := e.containers(context.Background(), "")
		for _, c := range containers {
			if err != nil || c.labels == nil || strings.Contains(c.name, "/") || c.health != attach.Healthy && c.health != attach.Unhealthy {
				t.Errorf("%q: container %+v, %v", text, c, err)
			}
			for _, id := range c.endpoints {
				if id == "" {
					t.Errorf("%q: an endpoint without id", text)
				}
			}
		}
		path := filepath.Join(t.TempDir(), "networks.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := openNetworks(path)
		if err != nil {
			return
		}
		n.mu.Lock()
		err = n.saveLocked()
		n.mu.Unlock()
		if err != nil {
			t.Fatalf("%q cannot be written again: %v", text, err)
		}
		again, err := openNetworks(path)
		if err != nil {
			t.Fatalf("%q cannot be read again: %v", text, err)
		}
		if !maps.EqualFunc(n.byID, again.byID, func(a, b binding) bool {
			return a.Ref == b.Ref && a.Created == b.Created && a.hasPendingName() == b.hasPendingName()
		}) {
			t.Errorf("%q is %+v, again %+v", text, n.byID, again.byID)
		}
	})
}
