package hostsync

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestHealthPortsCountLocalBackends: a port tells how many backends are here, and whether anybody is led
// to them; it is there with its service alone, and a port that is taken is a problem.
func TestHealthPortsCountLocalBackends(t *testing.T) {
	var last net.Listener
	kicked := make(chan struct{}, 1)
	h := newHealthPorts(slog.New(slog.DiscardHandler), func(ctx context.Context, addr string) (net.Listener, error) {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		last = l
		return l, err
	}, func() { kicked <- struct{}{} })
	defer h.close()
	proxy := false
	h.beside = func(context.Context) bool { return proxy }
	const port = 31999
	key := model.ServiceKey{Tenant: "default", Name: "shop/web:tcp/80"}
	var all desired.Map[model.ServiceKey, *desired.Service]
	put := func(backends ...desired.Backend) {
		s := &desired.Service{HealthPort: port}
		for i, b := range backends {
			s.Backends = s.Backends.Set(model.EndpointKey{ID: model.EndpointID(strconv.Itoa(i))}, &b)
		}
		all = all.Set(key, s)
		if p := h.follow(t.Context(), all, true); len(p) > 0 {
			t.Fatalf("problems %v", p)
		}
	}
	ask := func(to uint16) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", to), nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			return 0, ""
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, r.Header.Get("X-Load-Balancing-Endpoint-Weight") + " " + strings.TrimSpace(string(b))
	}
	says := func(status, local int, healthy bool) {
		t.Helper()
		want := fmt.Sprintf(`%d {"service":{"namespace":"shop","name":"web"},"localEndpoints":%d,"serviceProxyHealthy":%v}`, local, local, healthy)
		if code, text := ask(port); code != status || text != want {
			t.Errorf("%d %s, want %d %s", code, text, status, want)
		}
	}
	put(desired.Backend{Local: true}, desired.Backend{Local: true}, desired.Backend{}, desired.Backend{Local: true, State: desired.BackendLeaving})
	if mine, other := h.serviceOf(port), h.serviceOf(port+1); mine != key.String() || other != "" {
		t.Errorf("whose the ports are: %q, %q", mine, other)
	}
	says(200, 2, true)
	// A port of the service that has backends of its own counts too, each backend once.
	part := model.ServiceKey{Tenant: "default", Name: "shop/web:tcp/81"}
	ofPart := &desired.Service{HealthPort: port}
	for i, b := range []desired.Backend{{Local: true}, {}, {}, {}, {Local: true}} {
		ofPart.Backends = ofPart.Backends.Set(model.EndpointKey{ID: model.EndpointID(strconv.Itoa(i))}, &b)
	}
	all = all.Set(part, ofPart)
	put(desired.Backend{Local: true}, desired.Backend{Local: true}, desired.Backend{})
	says(200, 3, true)
	all = all.Delete(part)
	put(desired.Backend{Local: true}, desired.Backend{Local: true}, desired.Backend{})
	// kube-proxy has the port, as long as there is one.
	for _, proxy = range []bool{true, false} {
		if p := h.follow(t.Context(), all, true); len(p) > 0 {
			t.Errorf("beside kube-proxy %v: problems %v", proxy, p)
		}
		if code, _ := ask(port); (code == 0) != proxy {
			t.Errorf("beside kube-proxy %v the port answers %d", proxy, code)
		}
	}
	h.unhealthy()
	says(503, 2, false)
	put(desired.Backend{Local: true, State: desired.BackendLeaving, Split: true}, desired.Backend{}) // active by IPv6
	says(200, 1, true)
	put(desired.Backend{}, desired.Backend{Local: true, State: desired.BackendLeaving})
	says(503, 0, true)
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	other := uint16(taken.Addr().(*net.TCPAddr).Port)
	all = all.Set(key, &desired.Service{HealthPort: other})
	if p := h.follow(t.Context(), all, true); len(p) != 1 || !strings.Contains(p[0].Text, "in use") {
		t.Errorf("problems of a port that is taken: %v", p)
	}
	if whose := h.serviceOf(other); whose != "" {
		t.Errorf("a process has the port, and it is said to be of %s", whose)
	}
	if code, _ := ask(port); code != 0 {
		t.Errorf("the former port answers %d", code)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if p := h.follow(t.Context(), all, true); len(p) > 0 {
		t.Errorf("problems of a port that is free again: %v", p)
	}
	if code, _ := ask(other); code != 503 {
		t.Errorf("the port that is free again answers %d", code)
	}
	// Its unexpected end is reported and repaired.
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	<-kicked
	if p := h.follow(t.Context(), all, true); len(p) != 1 || !strings.Contains(p[0].Text, "stopped answering") {
		t.Errorf("problems of a port that has ended: %v", p)
	}
	if p := h.follow(t.Context(), all, true); len(p) > 0 {
		t.Errorf("problems of a port that was opened again: %v", p)
	}
	if code, _ := ask(other); code != 503 {
		t.Errorf("the port that was opened again answers %d", code)
	}
	if h.follow(t.Context(), all, false); len(h.ports) > 0 {
		t.Error("a port is there while nothing is served")
	}
	if code, _ := ask(other); code != 0 {
		t.Errorf("and answers %d", code)
	}
}
