package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// Report implements Backend: it keeps descriptions of attachments in described, and refuses
// the name "refused".
func (c *cluster) Report(_ context.Context, d attach.Fact) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.attached[d.Key]; !ok {
		return nil // it waits
	}
	if c.described == nil {
		c.described = map[string][]string{}
	}
	if c.away {
		return model.Errorf(model.ErrUnavailable, "no netmaster")
	}
	what := fmt.Sprint(d.ID, " ", d.Name, " ", d.Labels)
	if d.Health == attach.Unhealthy {
		what += " ill"
	}
	if d.Ended {
		what = "stopped"
	}
	c.described[d.Container] = append(c.described[d.Container], what)
	if d.Name == "refused" {
		return model.Errorf(model.ErrInvalid, "no such name")
	}
	return nil
}

func (c *cluster) reports() map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string][]string{}
	for k, v := range c.described {
		out[k] = slices.Clone(v)
	}
	return out
}

func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// running is an engine reduced to its events and its list of containers.
type running struct {
	mu      sync.Mutex
	list    map[string]container // by id
	created map[string]container // that do not run, by id; they have joined the network n1
	streams map[chan string]bool
}

func (r *running) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	switch strings.TrimPrefix(q.URL.Path, engineVersion) {
	case "/events":
		var f map[string][]string
		if err := json.Unmarshal([]byte(q.URL.Query().Get("filters")), &f); err != nil || !slices.Contains(f["event"], "rename") || !slices.Contains(f["event"], "health_status") {
			http.Error(w, "bad filters", http.StatusBadRequest)
			return
		}
		events := make(chan string, 10)
		r.mu.Lock()
		r.streams[events] = true
		r.mu.Unlock()
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for e := range events {
			_, _ = fmt.Fprintln(w, e)
			w.(http.Flusher).Flush()
		}
	case "/containers/json":
		r.mu.Lock()
		defer r.mu.Unlock()
		out := []any{}
		list := r.list
		if q.URL.Query().Get("all") != "" {
			var f map[string][]string
			_ = json.Unmarshal([]byte(q.URL.Query().Get("filters")), &f)
			list = map[string]container{}
			for _, id := range f["id"] {
				c := r.created[id]
				c.endpoints = nil // as the engine has it
				list[id] = c
			}
		}
		for _, c := range list {
			nets := map[string]any{}
			for _, ep := range c.endpoints {
				nets["n"+ep] = map[string]string{"EndpointID": ep}
			}
			out = append(out, map[string]any{
				"Id": c.id, "Status": "Up 2 minutes" + c.health, "Names": []string{"/other/alias", "/" + c.name}, "Labels": c.labels,
				"NetworkSettings": map[string]any{"Networks": nets},
			})
		}
		_ = json.NewEncoder(w).Encode(out)
	case "/networks/n1":
		r.mu.Lock()
		defer r.mu.Unlock()
		joined := map[string]any{"ep-other": map[string]string{"EndpointID": "other"}}
		for id, c := range r.created {
			joined[id] = map[string]string{"EndpointID": c.endpoints[0]}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Containers": joined})
	default:
		http.NotFound(w, q)
	}
}

// change changes the containers and says so, unless the event is lost.
func (r *running) change(f func(), lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	for s := range r.streams {
		if !lost {
			s <- `{"Type":"container","Action":"start","Actor":{"ID":"x"}}`
		}
	}
}

// hangUp ends the streams of events.
func (r *running) hangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.streams {
		close(s)
	}
	clear(r.streams)
}

// TestNamesFollowTheEngine: names and labels follow the engine's containers, by events, after a gap in
// them, and when netmaster was away; each change is sent once.
func TestNamesFollowTheEngine(t *testing.T) {
	r := &running{list: map[string]container{}, streams: map[chan string]bool{}}
	var sock string
	b := newBed(t, func(c *Config) { sock = filepath.Join(c.StateDir, "docker.sock") })
	b.stop()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: r, ReadHeaderTimeout: time.Second}
	served := make(chan struct{})
	go func() { _ = srv.Serve(l); close(served) }()
	b.cfg.Endpoint = "unix://" + sock
	p, err := New(t.Context(), b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.followNames(ctx); close(done) }()
	t.Cleanup(func() {
		stop()
		r.hangUp()
		<-done
		p.engine.close()
		_ = srv.Close()
		<-served
		_ = p.Close()
	})
	want := map[string][]string{}
	follows := func(what string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; {
			diff := cmp.Diff(want, b.c.reports())
			if diff == "" {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s (-want +got):\n%s", what, diff)
			}
		}
	}
	attached := func(ids ...string) {
		b.c.change(func() {
			for _, id := range ids {
				b.c.attached[endpointAttachment(id)] = attach.Result{}
			}
		})
	}
	attached("ep1", "ep2", "lone")
	r.change(func() {
		r.list["c1"] = container{id: "c1", name: "web", labels: map[string]string{"app": "shop"}, endpoints: []string{"ep1", "ep2"}}
		r.list["c2"] = container{id: "c2", name: "foreign", endpoints: []string{"of another driver"}}
	}, false)
	want["ep1"] = []string{"c1 web map[app:shop]"}
	want["ep2"] = []string{"c1 web map[app:shop]"}
	follows("a start")

	r.change(func() { c := r.list["c1"]; c.name = "web2"; r.list["c1"] = c }, false)
	for _, ep := range []string{"ep1", "ep2"} {
		want[ep] = append(want[ep], "c1 web2 map[app:shop]")
	}
	follows("a rename")

	r.change(func() { c := r.list["c1"]; c.endpoints = []string{"ep1"}; r.list["c1"] = c }, true) // a lost event
	r.hangUp()
	want["ep2"] = append(want["ep2"], "stopped")
	follows("a gap in the events")

	b.c.change(func() { b.c.away = true })
	r.change(func() { delete(r.list, "c1") }, false)
	b.c.change(func() { b.c.away = false })
	want["ep1"] = append(want["ep1"], "stopped")
	follows("netmaster comes back")

	attached("ep7")
	r.change(func() {
		r.list["c7"] = container{id: "c7", name: "checked", health: " (health: starting)", endpoints: []string{"ep7"}}
	}, false)
	want["ep7"] = []string{"c7 checked map[]"}
	follows("a container with a health check")
	for _, health := range []string{" (unhealthy)", " (healthy)"} {
		r.change(func() { c := r.list["c7"]; c.health = health; r.list["c7"] = c }, false)
		if what := "c7 checked map[]"; health == " (unhealthy)" {
			want["ep7"] = append(want["ep7"], what+" ill")
		} else {
			want["ep7"] = append(want["ep7"], what)
		}
		follows("its check says" + health)
	}
	r.change(func() { delete(r.list, "c7") }, false)
	want["ep7"] = append(want["ep7"], "stopped")
	follows("its end")

	attached("ep3")
	r.change(func() { r.list["c3"] = container{id: "c3", name: "refused", endpoints: []string{"ep3"}} }, false)
	want["ep3"] = []string{"c3 refused map[]"}
	follows("what is not taken")
	// The end of an attachment is the end of its name: nothing is sent.
	b.c.change(func() { maps.DeleteFunc(b.c.attached, func(attach.Key, attach.Result) bool { return true }) })
	attached("ep4")
	r.change(func() { r.list["c4"] = container{id: "c4", name: "last", endpoints: []string{"ep4"}} }, false)
	want["ep4"] = []string{"c4 last map[]"}
	follows("after all")

	attached("ep4", "ep5", "ep6")
	p.preStart.add(endpointAttachment("ep5"), "n1")
	p.preStart.add(endpointAttachment("ep6"), "gone")
	r.change(func() {
		r.created = map[string]container{"c5": {id: "c5", name: "soon", labels: map[string]string{"app": "shop"}, endpoints: []string{"ep5"}}}
	}, false)
	want["ep5"] = []string{"c5 soon map[app:shop]"}
	follows("a container that does not run yet")
	r.change(func() { c := r.list["c4"]; c.name = "last2"; r.list["c4"] = c; clear(r.created) }, false)
	want["ep4"] = append(want["ep4"], "c4 last2 map[]")
	follows("one that neither runs nor has ended")
	r.change(func() {
		r.list["c5"] = container{id: "c5", name: "soon", labels: map[string]string{"app": "shop"}, endpoints: []string{"ep5"}}
		c := r.list["c4"]
		c.name = "last3"
		r.list["c4"] = c
	}, false)
	want["ep4"] = append(want["ep4"], "c4 last3 map[]")
	follows("its start, which tells nothing new")
	r.change(func() { delete(r.list, "c5") }, false)
	want["ep5"] = append(want["ep5"], "stopped")
	follows("its end")
}

// TestMissingEngineIsNoEmptyList: an engine that is away is an error, no empty list.
func TestMissingEngineIsNoEmptyList(t *testing.T) {
	e, err := newEngine("unix://" + filepath.Join(t.TempDir(), "none.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.containers(t.Context(), ""); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("containers: %v", err)
	}
	if err := e.events(t.Context(), func() { t.Error("an event") }); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("events: %v", err)
	}
}

// TestRouterIsTheDefaultRouteWithoutGateway: on a network without a gateway the default route is by
// the router's own address, which is in no subnet.
func TestRouterIsTheDefaultRouteWithoutGateway(t *testing.T) {
	b := newBed(t)
	b.is("NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"tenant":"blue","network":"lone"}},"IPv4Data":[{"Pool":"10.1.2.0/24"}]}`, `{}`)
	b.is("NetworkDriver.CreateEndpoint", `{"NetworkID":"n9","EndpointID":"e9","Interface":{"Address":"10.1.2.1/24","MacAddress":"02:00:00:00:00:07"}}`, `{}`)
	b.is("NetworkDriver.Join", `{"NetworkID":"n9","EndpointID":"e9","SandboxKey":"/x"}`,
		`{"InterfaceName":{"SrcName":"cwx","DstPrefix":"eth"},"Gateway":"169.254.1.1","GatewayIPv6":"fe80::1:ff:fe00:1","StaticRoutes":[{"Destination":"169.254.1.1/32","RouteType":1},{"Destination":"fe80::1:ff:fe00:1/128","RouteType":1}],"DisableGatewayService":true}`)
}
