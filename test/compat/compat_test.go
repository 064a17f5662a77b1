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
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
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
	st := memory.New()
	if _, err := st.Update(t.Context(), func(tx store.Tx) error {
		return tables.Hosts.Put(tx, model.Host{Name: "host1"})
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

// TestRecordedExchangesOf1xAreAnsweredAlike replays every recorded exchange in order and compares
// status class and answer; differences must be listed in differences.
func TestRecordedExchangesOf1xAreAnsweredAlike(t *testing.T) {
	s := newServer(t)
	client := s.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	unused := make(map[int]bool)
	for n := range differences {
		unused[n] = true
	}
	compared := 0
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
		if strings.Contains(string(answer), noField) != (x.N == unknownField) {
			t.Errorf("%d %s %s: %s", x.N, x.Method, x.Path, answer)
		}
		found := differs(x, resp.StatusCode, answer, state)
		if slices.Contains(filled.at, x.N) && found != "" {
			if more := differs(x, resp.StatusCode, answer, state, filledFields...); more != "" {
				t.Errorf("%d %s %s differs in more than %q:\n%s", x.N, x.Method, x.Path, filledFields, more)
			}
		}
		state.follow(x, resp.StatusCode)
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
	t.Logf("%d exchanges compared, %d intended differences", compared, len(differences))
}

func clip(b []byte) string {
	if len(b) > 300 {
		return string(b[:300]) + "..."
	}
	return string(b)
}

// differs compares an answer with the recorded one; "" = equal as far as a
// client can tell, but for the fields in but.
func differs(x exchange, status int, answer []byte, state exists, but ...string) string {
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
	if d := cmp.Diff(normal(state.without(x, want), "", but...), normal(state.without(x, got), "", but...)); d != "" {
		return d
	}
	return ""
}

// additions are fields of this version's answers that 1.x did not have.
var additions = []string{"revision", "globalRevision", "labelMap", "chosenMacAddress"}

// normal brings an answer into the form in which it is compared: without the
// fields in but, lists of objects in one order, and where a server is free to choose a value, its shape.
func normal(v any, at string, but ...string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any)
		for k, x := range v {
			shape, chosen := shapes[k]
			if k == "ipAddress" && v["selectors"] != nil || k == "pktTag" && !strings.HasPrefix(at, "Oper") {
				chosen = false // as the request has it
			}
			next := at
			if k == "Oper" || k == "Config" {
				next = k
			}
			switch {
			case slices.Contains(additions, k), slices.Contains(but, k), x == nil:
			case chosen:
				out[k] = shape(x)
			default:
				out[k] = normal(x, next, but...)
			}
		}
		return out
	case []any:
		var texts []string
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = normal(x, at, but...)
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
