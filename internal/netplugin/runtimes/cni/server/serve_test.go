package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
)

// service keeps what it was asked and answers res and err.
type service struct {
	attach.Service // nil: what CNI does not ask for
	asked          any
	published      *attach.PublishRequest
	detached       int
	res            attach.Result
	err            error
	publishErr     error
}

func (s *service) Publish(_ context.Context, r attach.PublishRequest) (attach.PublishResult, error) {
	s.published = &r
	return attach.PublishResult{Ports: r.Ports}, s.publishErr
}

func (s *service) Attach(_ context.Context, r attach.Request) (attach.Result, error) {
	s.asked = r
	return s.res, s.err
}

func (s *service) Detach(_ context.Context, r attach.DetachRequest) error {
	s.asked = r
	s.detached++
	return s.err
}

func (s *service) Check(_ context.Context, r attach.CheckRequest) error { s.asked = r; return s.err }

func (s *service) Collect(_ context.Context, r attach.CollectRequest) error {
	s.asked = r
	return s.err
}

func (s *service) Ready(context.Context) error { return s.err }

// post hands an invocation to the handler as the plugin does.
func post(t *testing.T, s *service, verb, conf string) (status int, body string) {
	t.Helper()
	q := url.Values{"verb": {verb}, "container": {"c1"}, "netns": {"/ns"}, "ifname": {"eth0"}, "args": {"GROUP=g"}}
	w := httptest.NewRecorder()
	Handler(s).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, cni.Path+"?"+q.Encode(), strings.NewReader(conf)))
	return w.Code, w.Body.String()
}

var attached = attach.Result{
	HostIf: "cv1", IfName: "eth0", Netns: "/ns", MTU: 1450,
	Addresses: []attach.Address{
		{Prefix: netip.MustParsePrefix("10.1.1.1/24"), Gateway: netip.MustParseAddr("10.1.1.254")},
		{Prefix: netip.MustParsePrefix("fd00::1/64")},
	},
	Routes: []attach.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.1.1.254")}},
}

// TestUnknownParametersAreRefused: nothing is done of an invocation with one.
func TestUnknownParametersAreRefused(t *testing.T) {
	s := &service{res: attached}
	w := httptest.NewRecorder()
	Handler(s).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, cni.Path+"?verb=DEL&container=c1&ifname=eth0&dryRun=true", strings.NewReader(`{"name":"n"}`)))
	if s.asked != nil || w.Code != cni.StatusRefused || !strings.Contains(w.Body.String(), `query parameter \"dryRun\" is not known`) {
		t.Errorf("%d %s; asked for %v", w.Code, w.Body, s.asked)
	}
}

// TestResultsMatchEachVersion: ADD answers in each version of the specification, none
// given means the first, and the library's own parser reads it.
func TestResultsMatchEachVersion(t *testing.T) {
	for _, v := range append(version.All.SupportedVersions(), "") {
		t.Run(v, func(t *testing.T) {
			s := &service{res: attached}
			status, body := post(t, s, cni.Add, `{"cniVersion":"`+v+`","name":"n"}`)
			if status != cni.StatusDone {
				t.Fatalf("%d: %s", status, body)
			}
			want := v
			if v == "" {
				want = "0.1.0"
			}
			if res, err := create.Create(want, []byte(body)); err != nil || res.Version() != want {
				t.Errorf("result %s: %v", body, err)
			}
			if !strings.HasPrefix(body, "{\n    \"") {
				t.Errorf("not printed as plugins do: %s", body)
			}
		})
	}
}

// TestVerbsBecomeRequests: each verb becomes the request that it means.
func TestVerbsBecomeRequests(t *testing.T) {
	key := attach.Key{Container: "c1", IfName: "eth0"}
	for _, tt := range []struct {
		verb, conf string
		want       any
	}{
		{cni.Add, `{"name":"n","tenant":"t"}`, attach.Request{Key: key, Netns: "/ns", Tenant: "t", Group: "g", Source: attach.SourceCNI, Config: "n"}},
		{cni.Del, `{"name":"n"}`, attach.DetachRequest{Key: key, Netns: "/ns"}},
		{
			cni.Check, `{"cniVersion":"1.0.0","name":"n","prevResult":{"cniVersion":"1.0.0",
			"interfaces":[{"name":"cv1","mac":"02:00:00:00:00:01"},{"name":"eth0","mac":"02:00:00:00:00:02","sandbox":"/ns"}],
			"ips":[{"address":"10.1.1.1/24","interface":1},{"address":"10.9.9.9/24","interface":0}]}}`,
			attach.CheckRequest{Key: key, Netns: "/ns", MAC: "02:00:00:00:00:02", Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.1.1/24")}},
		},
		{cni.GC, `{"name":"n","cni.dev/valid-attachments":[{"containerID":"c2","ifname":"eth1"}]}`, attach.CollectRequest{Config: "n", Valid: []attach.Key{{Container: "c2", IfName: "eth1"}}}},
		{cni.GC, `{"name":"n","cni.dev/valid-attachments":[]}`, attach.CollectRequest{Config: "n", Valid: []attach.Key{}}},
		{cni.GC, `{"name":"n","cni.dev/valid-attachments":null}`, attach.CollectRequest{Config: "n", Valid: []attach.Key{}}},
		{cni.Status, `{"name":"n"}`, nil},
	} {
		s := &service{res: attached}
		if status, body := post(t, s, tt.verb, tt.conf); status != cni.StatusDone || (body != "") != (tt.verb == cni.Add) {
			t.Errorf("%s: %d %q", tt.verb, status, body)
		}
		if diff := cmp.Diff(tt.want, s.asked, compareAddrs, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.verb, diff)
		}
	}
}

// TestNothingIsCollectedWithoutAList: without the list of what the runtime has nothing is collected;
// every container of the host would be.
func TestNothingIsCollectedWithoutAList(t *testing.T) {
	s := &service{}
	if status, body := post(t, s, cni.GC, `{"cniVersion":"1.1.0","name":"n"}`); status != cni.StatusRefused || !strings.Contains(body, `"code": 7`) || !strings.Contains(body, "valid-attachments") {
		t.Errorf("%d %s", status, body)
	}
	if s.asked != nil {
		t.Errorf("asked for %+v", s.asked)
	}
}

// TestErrorKindsBecomeCodes: kinds become codes, with the version that the configuration
// names; a deletion that could not be done is the plugin's to spool.
func TestErrorKindsBecomeCodes(t *testing.T) {
	fail := func(kinds ...error) error { return model.Errorf(kinds[0], "the sentence: %w", errors.Join(kinds...)) }
	const conf = `{"cniVersion":"1.1.0","name":"n"}`
	const prev = `{"cniVersion":"1.1.0","name":"n","prevResult":{"cniVersion":"1.1.0"}}`
	for _, tt := range []struct {
		verb, conf string
		err        error
		code       uint
		text       string
	}{
		{cni.Add, conf, fail(model.ErrInvalid), 7, "the sentence"},
		{cni.Add, conf, fail(model.ErrNotFound), 7, "does not exist"},
		{cni.Add, conf, fail(model.ErrExists), 102, "conflict"},
		{cni.Add, conf, fail(model.ErrConflict), 102, "conflict"},
		{cni.Add, conf, fail(model.ErrInUse), 102, "conflict"},
		{cni.Add, conf, fail(model.ErrExhausted), 101, "exhausted"},
		{cni.Add, conf, fail(model.ErrUnavailable), 11, "try again"},
		{cni.Add, conf, fail(model.ErrUnavailable, model.ErrConflict), 102, "conflict"},
		{cni.Add, conf, errors.New("odd"), 999, "odd"},
		{cni.Add, `{"cniVersion":"1.1.0","name":"n","tenant":1}`, nil, 6, "tenant: must be a string, not a number"},
		{cni.Add, `{"cniVersion":"1.1.0","name":"n","mtu":1}`, nil, 7, "mtu 1"},
		{cni.Add, `{"cniVersion":"1.1.0","name":"n","ip":"x"}`, nil, 6, `address "x"`},
		{cni.Add, prev, nil, 7, "first plugin"},
		{cni.Del, `{"cniVersion":"1.1.0","name":"n","mtu":1}`, nil, 7, "mtu 1"},
		{cni.Check, conf, nil, 7, "prevResult is missing"},
		{cni.Check, `{"cniVersion":"1.1.0","name":"n","prevResult":[]}`, nil, 6, "prevResult"},
		{cni.Check, `{"cniVersion":"1.1.0","name":"n","prevResult":{"ips":[{"address":"10.1.1"}]}}`, nil, 6, "prevResult"},
		{cni.Check, prev, fail(model.ErrNotFound), 103, "not what it was made"},
		{cni.Check, prev, fail(model.ErrConflict), 103, "not what it was made"},
		{cni.Check, prev, fail(model.ErrUnavailable), 11, "try again"},
		{cni.GC, `{"cniVersion":"1.1.0","name":"n","cni.dev/valid-attachments":[]}`, fail(model.ErrUnavailable), 11, "try again"},
		{cni.Status, conf, fail(model.ErrUnavailable), 50, "cannot attach"},
		{cni.Status, conf, fail(attach.ErrDegraded), 51, "is not in sync"},
		{"DANCE", conf, nil, 4, `"DANCE"`},
	} {
		s := &service{res: attached, err: tt.err}
		status, body := post(t, s, tt.verb, tt.conf)
		var e struct {
			CNIVersion string `json:"cniVersion"`
			types.Error
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Fatalf("%s with %v: %v: %s", tt.verb, tt.err, err, body)
		}
		if status != cni.StatusRefused || e.Code != tt.code || e.CNIVersion != "1.1.0" || !strings.Contains(e.Msg+e.Details, tt.text) {
			t.Errorf("%s with %v: %d %s, want code %d and a text with %q", tt.verb, tt.err, status, body, tt.code, tt.text)
		}
	}
	status, body := post(t, &service{err: fail(model.ErrUnavailable)}, cni.Del, conf)
	if err := attach.AnswerError(status, []byte(body)); status != http.StatusServiceUnavailable || !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("DEL that cannot be done: %d %s", status, body)
	}
	if status, body := post(t, &service{}, cni.GC, conf+strings.Repeat(" ", maxConf)); status != cni.StatusRefused || !strings.Contains(body, "too large") {
		t.Errorf("a configuration that is too long: %d %s", status, body)
	}
}
