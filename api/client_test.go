package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func client(t *testing.T, base string, opts ...Option) *Client {
	t.Helper()
	c, err := NewClient(base, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// dead is a URL where nothing listens.
func dead(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// TestClientSendsMethodsPathsAndBodies: methods, paths, bodies and answers of a collection.
func TestClientSendsMethodsPathsAndBodies(t *testing.T) {
	var got []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, strings.TrimSpace(r.Method+" "+r.URL.EscapedPath()+" "+string(body)))
		switch {
		case strings.Contains(r.URL.Path, "/inspect/"):
			_, _ = io.WriteString(w, `{"Config":{"tenantName":"blue","networkName":"n"},"Oper":{"numEndpoints":3}}`)
		case r.Method == http.MethodDelete:
			_, _ = io.WriteString(w, `"blue:n"`)
		case strings.HasSuffix(r.URL.Path, "/networks/"):
			_, _ = io.WriteString(w, `[{"tenantName":"blue","networkName":"n"}]`)
		default:
			_, _ = io.WriteString(w, `{"tenantName":"blue","networkName":"n","pktTag":7}`)
		}
	})
	c, ctx := client(t, url), t.Context()
	n := Network{TenantName: "blue", NetworkName: "n"}
	if o, err := c.Networks().Create(ctx, n); err != nil || o.PktTag != 7 {
		t.Errorf("create: %+v, %v", o, err)
	}
	if o, err := c.Networks().Get(ctx, "blue:a/b"); err != nil || o.NetworkName != "n" {
		t.Errorf("get: %+v, %v", o, err)
	}
	if l, err := c.Networks().List(ctx); err != nil || len(l) != 1 {
		t.Errorf("list: %+v, %v", l, err)
	}
	if i, err := c.Networks().Inspect(ctx, "blue:n"); err != nil || i.Oper.NumEndpoints != 3 || i.Config.TenantName != "blue" {
		t.Errorf("inspect: %+v, %v", i, err)
	}
	if err := c.Networks().Delete(ctx, "blue:n"); err != nil {
		t.Errorf("delete: %v", err)
	}
	body, _ := json.Marshal(n)
	want := []string{
		"POST /api/v1/networks/blue:n/ " + string(body), "GET /api/v1/networks/blue:a%2Fb/",
		"GET /api/v1/networks/", "GET /api/v1/inspect/networks/blue:n/", "DELETE /api/v1/networks/blue:n/",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestRefusalsAreErrorsWithTheirSentence: answers that are no success are *Error with the sentence.
func TestRefusalsAreErrorsWithTheirSentence(t *testing.T) {
	status := http.StatusNotFound
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "tenant \"x\" does not exist", status) })
	c := client(t, url)
	_, err := c.Tenants().Get(t.Context(), "x")
	var e *Error
	if !errors.As(err, &e) || e.Status != 404 || err.Error() != `tenant "x" does not exist` || !IsNotFound(err) || IsConflict(err) || IsUnavailable(err) {
		t.Errorf("got %#v", err)
	}
	status = http.StatusServiceUnavailable
	if _, err = c.Tenants().Get(t.Context(), "x"); !IsUnavailable(err) {
		t.Errorf("503: got %#v", err)
	}
	_, err = client(t, serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })).Version(t.Context())
	if err == nil || !strings.Contains(err.Error(), "is this URL a netmaster?") {
		t.Errorf("not JSON: got %v", err)
	}
}

// TestClientAsksTheReplicaThatAnswered: what is dead, or answers 503, is passed over, and the
// replica that answered is asked first from then on.
func TestClientAsksTheReplicaThatAnswered(t *testing.T) {
	var asked atomic.Int32
	good := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, `{"Version":"2"}`)
	})
	var sick atomic.Int32
	away := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		sick.Add(1)
		http.Error(w, "the store is away", http.StatusServiceUnavailable)
	})
	c := client(t, dead(t)+", "+away+" ,"+good)
	for range 3 {
		if v, err := c.Version(t.Context()); err != nil || v.Version != "2" {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if asked.Load() != 3 || sick.Load() != 1 {
		t.Errorf("asked the good one %d times, the sick one %d times; want 3 and 1", asked.Load(), sick.Load())
	}
	_, err := client(t, dead(t)+","+away).Version(t.Context())
	var e *Error
	if !errors.As(err, &e) || e.Message != "the store is away" {
		t.Errorf("the answer of the live replica is lost: %v", err)
	}
}

// TestUnreachableErrorNamesEveryURL: the error names every URL and what to do.
func TestUnreachableErrorNamesEveryURL(t *testing.T) {
	a, b := dead(t), dead(t)
	_, err := client(t, a+","+b).Tenants().List(t.Context())
	var u *UnreachableError
	if !errors.As(err, &u) || !IsUnavailable(err) {
		t.Fatalf("got %#v", err)
	}
	for _, w := range []string{a, b, "connection refused", "start netmaster there"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q lacks %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "Get \"") {
		t.Errorf("%q shows the HTTP client's words", err)
	}
}

// TestClientRepeatsNoWriteThatMayHaveHappened: an address is not asked for twice when the first request
// may have had its effect.
func TestClientRepeatsNoWriteThatMayHaveHappened(t *testing.T) {
	greets := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/version" {
			_, _ = io.WriteString(w, "{}")
		}
		return r.URL.Path == "/version"
	}
	cut := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if greets(w, r) {
			return
		}
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		c.Close()
	})
	var asked atomic.Int32
	good := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if greets(w, r) {
			return
		}
		asked.Add(1)
		_, _ = io.WriteString(w, `{}`)
	})
	if _, err := client(t, cut+","+good).AllocAddress(t.Context(), AllocAddressRequest{}); err == nil || asked.Load() != 0 {
		t.Errorf("allocAddress was repeated: %v, %d", err, asked.Load())
	}
	if _, err := client(t, cut+","+good).CreateEndpoint(t.Context(), CreateEndpointRequest{}); err != nil || asked.Load() != 1 {
		t.Errorf("createEndpoint was not repeated: %v, %d", err, asked.Load())
	}
	if _, err := client(t, dead(t)+","+good).AllocAddress(t.Context(), AllocAddressRequest{}); err != nil || asked.Load() != 2 {
		t.Errorf("allocAddress did not go on to the next replica: %v, %d", err, asked.Load())
	}
}

// TestClientDoesNotHangWithTheServer: a server that hangs does not hold the caller, and the
// caller's context does.
func TestClientDoesNotHangWithTheServer(t *testing.T) {
	release := make(chan struct{})
	url := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	if _, err := client(t, url, WithTimeout(20*time.Millisecond)).Version(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := client(t, url).Version(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestClientURLs: schemes and ports are filled in; nonsense is refused.
func TestClientURLs(t *testing.T) {
	c, err := NewClient("10.0.0.1, http://h:80/,https://s,[::1]")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"http://10.0.0.1:9999", "http://h:80", "https://s", "http://[::1]:9999"}, c.URLs()); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"", "ftp://x", "http://", "http://x/?q", "http://x,,", "http://x:y"} {
		if _, err := NewClient(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// A monitor gives up on a netmaster that takes the request and does not answer.
func TestMonitorWithoutAnswer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer s.Close()
	c, err := NewClient(s.URL, WithTimeout(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Monitor(t.Context(), MonitorRequest{}, func(FlowEvent) error { return nil })
	if !IsUnavailable(err) || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Errorf("Monitor() = %v", err)
	}
}

// TestLongWriteIsSentToOneReplica: a write that takes its time, as of many objects, is not
// sent to a second netmaster meanwhile, with which the first would conflict.
func TestLongWriteIsSentToOneReplica(t *testing.T) {
	done := make(chan struct{})
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" {
			_, _ = io.Copy(io.Discard, r.Body)
			<-done
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer busy.Close()
	defer close(done)
	var asked atomic.Int32
	other := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, "{}")
	})
	c := client(t, busy.URL+","+other)
	c.patience = 10 * time.Millisecond
	policy := NetworkPolicy{TenantName: "blue", NetworkPolicyName: "p"}
	for range 2000 {
		policy.Rules = append(policy.Rules, NetworkPolicyRule{RuleID: "r", Direction: "in", Action: "allow"})
	}
	for name, write := range map[string]func(context.Context) error{
		"a list":         func(ctx context.Context) error { _, err := c.Apply(ctx, ApplyRequest{}); return err },
		"a large policy": func(ctx context.Context) error { _, err := c.NetworkPolicies().Update(ctx, policy); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := write(ctx); err == nil || asked.Load() != 0 {
			t.Errorf("%s: %v, and another netmaster was asked %d times", name, err, asked.Load())
		}
		cancel()
		c.current.Store(0)
		asked.Store(0)
	}
}

// TestClientLeavesAHangingReplica: a replica that accepts connections and does not answer, such as
// a stopped process, delays no client for long. Only requests that may not be repeated
// wait.
func TestClientLeavesAHangingReplica(t *testing.T) {
	goOn := make(chan struct{})
	var greets atomic.Bool
	stopped := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" && greets.Load() {
			_, _ = w.Write([]byte("{}"))
			return
		}
		<-goOn
	}))
	defer stopped.Close()
	defer close(goOn)
	live := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"Version":"live"}`)) }))
	defer live.Close()
	c, err := NewClient(stopped.URL+","+live.URL, WithTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.patience != 2*time.Second {
		t.Errorf("patience %v", c.patience)
	}
	c.patience = 10 * time.Millisecond
	begin := time.Now()
	var v Version
	if err := c.Do(t.Context(), http.MethodPost, "/plugin/createEndpoint", struct{}{}, &v); err != nil || v.Version != "live" {
		t.Errorf("%v, %+v", err, v)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("a silent replica held the client for %v", took)
	}
	c.current.Store(0)
	if _, err := c.AllocAddress(t.Context(), AllocAddressRequest{}); err != nil {
		t.Errorf("what may not be repeated is not sent to the one that answers: %v", err)
	}
	c.current.Store(0)
	greets.Store(true) // it falls silent when it has the request
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.AllocAddress(ctx, AllocAddressRequest{}); err == nil {
		t.Error("a request that may not be repeated was sent to a second replica")
	}
}
