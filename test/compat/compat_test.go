package compat

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/apiserver"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exchange is one recorded request with its answer.
type exchange struct {
	N        int               `json:"n"`
	Section  string            `json:"section"`
	Method   string            `json:"method"`
	Path     string            `json:"path"`
	Headers  map[string]string `json:"headers"`
	Request  json.RawMessage   `json:"request"`
	Status   int               `json:"status"`
	Response json.RawMessage   `json:"response"`
}

// body is what was sent: an object, or a text that was sent as it is.
func (x exchange) body(t *testing.T) string {
	t.Helper()
	if len(x.Request) == 0 || string(x.Request) == "null" {
		return ""
	}
	if x.Request[0] == '"' {
		var s string
		if err := json.Unmarshal(x.Request, &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	return string(x.Request)
}

func load(t *testing.T) []exchange {
	t.Helper()
	f, err := os.Open("testdata/rest-trace.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var xs []exchange
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var x exchange
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		xs = append(xs, x)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return xs
}

// class reduces a status code to what a 1.x client may rely on: success,
// redirection, refusal. 1.x answered 500 to everything, and sometimes nothing.
func class(status int) string {
	switch {
	case status >= 200 && status < 300:
		return "success"
	case status >= 300 && status < 400:
		return "redirect"
	case status >= 500:
		return "fault"
	}
	return "refusal"
}

func recorded(status int) string {
	if c := class(status); c != "fault" && status != 0 {
		return c
	}
	return "refusal"
}

// noCluster is a cluster of one netmaster that is the leader.
type noCluster struct{}

func (noCluster) Info(context.Context) (api.Info, error) {
	return api.Info{
		CurrentState: "leader", LeaderIP: "10.99.0.1:9999", LocalIP: "10.99.0.1",
		NetmasterNodes: []string{"10.99.0.1"}, NetpluginNodes: []string{},
	}, nil
}

func (noCluster) Masters(context.Context) ([]api.Master, error) {
	return []api.Master{{Address: "10.0.0.1:9999", Role: "leader"}}, nil
}

func (noCluster) Stores(context.Context) []api.StoreServer {
	return []api.StoreServer{{Address: "memory"}}
}

func (noCluster) Health(context.Context) api.Health { return api.Health{Ready: true} }

// newServer serves the API over an in-memory store, where the agent of host1
// has told of its host.
func newServer(t *testing.T) *httptest.Server {
	t.Helper()
	st := store.NewMemory()
	if _, err := st.Update(t.Context(), func(tx store.Tx) error {
		return store.Hosts.Put(tx, model.Host{Name: "host1"})
	}); err != nil {
		t.Fatal(err)
	}
	ctrl := control.New(st, control.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ctrl.Run(ctx) }()
	h, err := apiserver.New(apiserver.Config{Control: ctrl, Cluster: noCluster{}, Mode: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("control: %v", err)
		}
	})
	return s
}

// TestTrace replays every recorded exchange in order and compares
// status class and answer; differences must be listed in differences.
func TestTrace(t *testing.T) {
	s := newServer(t)
	client := s.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	unused := make(map[int]bool)
	for n := range differences {
		unused[n] = true
	}
	compared, consequences := 0, 0
	state := make(exists)
	for _, x := range load(t) {
		req, err := http.NewRequestWithContext(t.Context(), x.Method, s.URL+x.Path, strings.NewReader(x.body(t)))
		if err != nil {
			t.Fatal(err)
		}
		if x.Headers == nil {
			req.Header.Set("Content-Type", "application/json")
		}
		for k, v := range x.Headers {
			req.Header.Set(k, v)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("%d %s %s: %v", x.N, x.Method, x.Path, err)
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		compared++
		if got := class(resp.StatusCode); got == "fault" {
			t.Errorf("%d %s %s: %d %s", x.N, x.Method, x.Path, resp.StatusCode, answer)
			continue
		}
		follows := state.follows(x, resp.StatusCode)
		found := differs(x, resp.StatusCode, answer, state)
		if state.follow(x, resp.StatusCode); follows && class(resp.StatusCode) != recorded(x.Status) {
			found = ""
			consequences++
		}
		reason, listed := differences[x.N]
		switch {
		case found != "" && !listed:
			t.Errorf("%d %s %s %s\nrecorded %d %s\n%s", x.N, x.Method, x.Path, x.Request, x.Status, clip(x.Response), found)
		case found == "" && listed:
			t.Errorf("%d %s %s is listed as different (%s) and is not", x.N, x.Method, x.Path, reason)
		}
		delete(unused, x.N)
	}
	for n := range unused {
		t.Errorf("%d is listed and was not compared", n)
	}
	t.Logf("%d exchanges compared, %d intended differences, %d that follow from them", compared, len(differences), consequences)
}

func clip(b []byte) string {
	if len(b) > 300 {
		return string(b[:300]) + "..."
	}
	return string(b)
}

// differs compares an answer with the recorded one; "" = equal as far as a
// client can tell.
func differs(x exchange, status int, answer []byte, state exists) string {
	if want, got := recorded(x.Status), class(status); want != got {
		return fmt.Sprintf("class is %s (%d), want %s: %s", got, status, want, clip(answer))
	}
	if x.Status != 200 || x.Method == http.MethodHead {
		return ""
	}
	var want, got any
	if json.Unmarshal(x.Response, &want) != nil {
		return ""
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return fmt.Sprintf("answer is not JSON: %s", clip(answer))
	}
	if d := cmp.Diff(normal(state.without(x, want), ""), normal(state.without(x, got), "")); d != "" {
		return d
	}
	return ""
}

// normal drops what clients cannot rely on: the order of lists of objects, and
// fields that stand for what differs by design.
func normal(v any, at string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any)
		for k, x := range v {
			switch {
			case k == "revision": // an addition
			case k == "ipAddress" && v["selectors"] == nil, k == "ipaddress", k == "serviceVip", k == "ipv6Address", k == "macAddress", k == "IPv4Address", k == "allocatedIPAddresses", k == "availableIPAddresses", k == "allocatedAddressesCount": // which address is free depends on the order of search, and on what others were refused
			case k == "intfName", k == "containerId", k == "containerID": // 1.x learnt them later
			case k == "endpointGroupId", k == "pktTag" && strings.HasPrefix(at, "Oper"), k == "externalPktTag": // numbers that the server chooses
			case k == "numNetworks", k == "vlansInUse", k == "vxlansInUse", k == "freeVXLANsStart": // by state that differs
			case k == "Version", k == "GitCommit", k == "BuildTime":
			case x == nil:
			default:
				next := at
				if k == "Oper" || k == "Config" {
					next = k
				}
				out[k] = normal(x, next)
			}
		}
		return out
	case []any:
		var texts []string
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = normal(x, at)
			b, _ := json.Marshal(out[i])
			texts = append(texts, string(b))
		}
		if len(v) > 0 {
			if _, isObject := v[0].(map[string]any); isObject {
				slices.Sort(texts)
				return texts
			}
		}
		return out
	default:
		return v
	}
}
