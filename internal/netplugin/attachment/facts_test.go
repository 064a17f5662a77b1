package attachment

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
)

// teller is a Service with one attachment that stands, "ep1", and a netmaster
// that keeps the last thing that it was told.
type teller struct {
	*Service
	got    api.UpdateEndpointRequest
	status int         // that netmaster answers; 0 = success
	kicked chan string // by what
}

var (
	attachedKey = attach.Key{Container: "ep1", IfName: "eth0"}
	standsAs    = model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "net1"}, ID: "cni:h1:ep1:eth0"}
)

func newTeller(t *testing.T) *teller {
	t.Helper()
	x := &teller{kicked: make(chan string, 10)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if x.got = (api.UpdateEndpointRequest{}); r.URL.Path != "/plugin/updateEndpoint" {
			t.Errorf("asked for %s", r.URL)
		}
		if err := json.NewDecoder(r.Body).Decode(&x.got); err != nil {
			t.Error(err)
		}
		if x.status != 0 {
			http.Error(w, "no", x.status)
			return
		}
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(srv.Close)
	m, err := masterclient.New(masterclient.Config{Host: "h1", Fixed: srv.URL, Allowed: func() error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	j, err := openJournal(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	x.Service = join(&deps{log: slog.New(slog.DiscardHandler), masters: m, journal: j, agent: kicker{kicked: x.kicked}})
	x.recordEntry(Entry{State: StateDone, HostIf: "v1", Endpoint: standsAs, Request: attach.Request{Key: attachedKey, Labels: map[string]string{"tier": "web"}}})
	return x
}

// tells tells a fact of ep1 and checks what netmaster hears.
func (x *teller) tells(t *testing.T, what string, f attach.Fact, want api.UpdateEndpointRequest) {
	t.Helper()
	x.got = api.UpdateEndpointRequest{}
	f.Key = attachedKey
	if err := x.Report(t.Context(), f); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if want.Event != "" {
		want.Tenant, want.Network, want.EndpointID = "blue", "net1", string(standsAs.ID)
	}
	if diff := cmp.Diff(want, x.got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestFactsReachNetmasterWithoutBadLabels: what an orchestrator tells goes to the endpoint at netmaster with what
// is known already, without labels that would have the whole refused; a label that
// is gone is taken back; what is old changes nothing.
func TestFactsReachNetmasterWithoutBadLabels(t *testing.T) {
	x := newTeller(t)
	x.tells(t, "name and labels", attach.Fact{Rev: 5, ID: "c1", Name: "web", Labels: map[string]string{"app": "shop", "zone": "a", "": "no key"}},
		api.UpdateEndpointRequest{Event: api.EventStart, ContainerID: "c1", EPCommonName: "web", Labels: map[string]string{"app": "shop", "zone": "a", "tier": "web"}})
	x.tells(t, "an old fact", attach.Fact{Rev: 4, Name: "before", Labels: map[string]string{}}, api.UpdateEndpointRequest{})
	x.tells(t, "a name alone", attach.Fact{Rev: 6, Name: "web2"},
		api.UpdateEndpointRequest{Event: api.EventStart, ContainerID: "c1", EPCommonName: "web2", Labels: map[string]string{"app": "shop", "zone": "a", "tier": "web"}})
	changed := attach.Fact{Rev: 7, Labels: map[string]string{"app": "shop2"}}
	x.status = http.StatusServiceUnavailable
	changed.Key = attachedKey
	if err := x.Report(t.Context(), changed); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("no netmaster: %v", err)
	}
	x.status = 0
	x.tells(t, "the same again: what was not heard is told", changed,
		api.UpdateEndpointRequest{Event: api.EventStart, ContainerID: "c1", EPCommonName: "web2", Labels: map[string]string{"app": "shop2", "tier": "web"}, RemovedLabels: []string{"zone"}})
	told := api.UpdateEndpointRequest{Event: api.EventStart, ContainerID: "c1", EPCommonName: "web2", Labels: map[string]string{"app": "shop2", "tier": "web"}}
	told.Health = api.Unhealthy
	x.tells(t, "its health check", attach.Fact{Rev: 7, Health: attach.Unhealthy}, told)
	x.tells(t, "what says nothing of it", attach.Fact{Rev: 7}, told)
	e, _ := x.journal.get(attachedKey)
	if req := createRequest("h1", e, target{tenant: "blue", network: "net1"}); req.ConfigEP.Health != api.Unhealthy {
		t.Errorf("put back as %+v", req)
	}
	told.Health = api.Healthy
	x.tells(t, "its health check again", attach.Fact{Rev: 7, Health: attach.Healthy}, told)
	if err := x.Report(t.Context(), attach.Fact{Key: attachedKey, Rev: 7, Health: "fine"}); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("of unknown health: %v", err)
	}
	x.tells(t, "its end", attach.Fact{Rev: 8, Ended: true},
		api.UpdateEndpointRequest{Event: api.EventDie, ContainerID: "c1", EPCommonName: "web2"})
	x.tells(t, "its labels from before its end", changed, api.UpdateEndpointRequest{})

	// Another netplugin on the same journal has the reports, and counts from zero.
	j, err := openJournal(x.journal.dir, x.log)
	if err != nil {
		t.Fatal(err)
	}
	x.journal = j
	x.tells(t, "it runs again", attach.Fact{Rev: 1},
		api.UpdateEndpointRequest{Event: api.EventStart, ContainerID: "c1", EPCommonName: "web2", Health: api.Healthy, Labels: map[string]string{"app": "shop2", "tier": "web"}})
	if err := x.Report(t.Context(), attach.Fact{Name: "nobody"}); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("of nobody: %v", err)
	}
}

// TestRefusedLabelsAreAProblem: a container whose labels netmaster refuses is a problem of the
// host, which names both, until netmaster takes its labels or the container is gone.
func TestRefusedLabelsAreAProblem(t *testing.T) {
	x := newTeller(t)
	many := attach.Fact{Key: attachedKey, Name: "web", Labels: map[string]string{}}
	for i := range model.MaxLabels {
		many.Labels["l"+strconv.Itoa(i)] = "x"
	}
	refused := func() {
		t.Helper()
		x.status = http.StatusBadRequest
		if err := x.Report(t.Context(), many); !errors.Is(err, model.ErrInvalid) {
			t.Fatalf("netmaster refuses the labels: %v", err)
		}
		p := x.Problems()
		if len(p) != 1 || p[0].Object != "endpoint "+standsAs.String() || !strings.Contains(p[0].Text, "no policy selects it by labels") || len(x.got.Labels) <= model.MaxLabels {
			t.Errorf("with %d labels: %v", len(x.got.Labels), p)
		}
	}
	refused()
	refused()
	if len(x.kicked) != 1 {
		t.Errorf("the host's problems were compiled %d times for one change", len(x.kicked))
	}
	x.status = http.StatusServiceUnavailable // says nothing of the labels
	if err := x.Report(t.Context(), many); err == nil || len(x.Problems()) != 1 {
		t.Errorf("without a netmaster: %v, %v", err, x.Problems())
	}
	x.status = 0
	x.tells(t, "fewer labels", attach.Fact{Name: "web", Labels: map[string]string{"app": "shop"}},
		api.UpdateEndpointRequest{Event: api.EventStart, EPCommonName: "web", Labels: map[string]string{"app": "shop", "tier": "web"}})
	if p := x.Problems(); len(p) > 0 || len(x.kicked) != 2 {
		t.Errorf("with fewer labels: %v", p)
	}
	refused()
	if err := x.journal.remove(attachedKey); err != nil {
		t.Fatal(err)
	}
	if p := x.Problems(); len(p) > 0 || len(x.facts.refused.all) > 0 {
		t.Errorf("of a container that is gone: %v, %v", p, x.facts.refused.all)
	}
}

// TestReportsRestoreLostEndpoints: reports about an endpoint that the store has lost are part of its
// restoration.
func TestReportsRestoreLostEndpoints(t *testing.T) {
	x := newTeller(t)
	x.status = http.StatusNotFound
	if err := x.Report(t.Context(), attach.Fact{Key: attachedKey, ID: "c1", Name: "web", Labels: map[string]string{"app": "shop"}}); err != nil {
		t.Fatal(err)
	}
	e, _ := x.journal.get(attachedKey)
	req := createRequest("h1", e, target{tenant: "blue", network: "net1"})
	if diff := cmp.Diff(map[string]string{"app": "shop", "tier": "web"}, req.ConfigEP.Labels); diff != "" || req.EPCommonName != "web" || req.ConfigEP.Container != "c1" {
		t.Errorf("put back as %+v\n%s", req, diff)
	}
}

// TestFactsWaitForTheirAttachment: facts of an attachment that does not stand wait for it, the newer
// ones of it, not for ever, and not all that somebody tells.
func TestFactsWaitForTheirAttachment(t *testing.T) {
	x := newTeller(t)
	k := attach.Key{Container: "c9", IfName: "eth0"}
	x.recordEntry(Entry{State: StatePendingRelease, HostIf: "v9", Endpoint: standsAs, Request: attach.Request{Key: k}})
	for _, f := range []attach.Fact{
		{Rev: 2, Name: "db", Labels: map[string]string{"app": "db"}}, {Rev: 1, Labels: map[string]string{"app": "old"}}, {Rev: 3, ID: "id9"},
	} {
		f.Key = k
		if err := x.Report(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	got := x.facts.pending.take(k, now)
	if want := (attach.Fact{Key: k, Rev: 3, ID: "id9", Name: "db", Labels: map[string]string{"app": "db"}}); !got.Equal(want) || got.Rev != want.Rev {
		t.Errorf("it will be attached as %+v", got)
	}
	x.facts.pending.add(attach.Fact{Key: k, Rev: 4, Ended: true}, now)
	again := Entry{Request: attach.Request{Labels: map[string]string{"tier": "data"}}, Facts: x.facts.pending.take(k, now)}
	if diff := cmp.Diff(map[string]string{"app": "db", "tier": "data"}, labelsOf(again)); diff != "" {
		t.Errorf("labels of one that has ended and is attached anew (-want +got):\n%s", diff)
	}
	if old := x.facts.pending.take(k, now.Add(pendingFactTime)); old.Name != "" {
		t.Errorf("after its time: %+v", old)
	}
	if x.got.Event != "" {
		t.Errorf("netmaster has heard %+v", x.got)
	}
	for i := range 2 * maxPendingFacts {
		x.facts.pending.add(attach.Fact{Key: attach.Key{Container: strconv.Itoa(i)}, Name: "x"}, now.Add(time.Duration(i)))
	}
	last := attach.Key{Container: strconv.Itoa(2*maxPendingFacts - 1)}
	if n := len(x.facts.pending.facts); n != maxPendingFacts || x.facts.pending.take(k, now).Name != "" || x.facts.pending.take(last, now).Name == "" {
		t.Errorf("%d wait; the last: %+v", n, x.facts.pending.take(last, now))
	}
	x.facts.pending.addReplaced(attach.Fact{Key: last, ID: "former", Name: "before", Rev: 9}, now)
	if got := x.facts.pending.take(last, now); got.ID != "former" || got.Name != "x" {
		t.Errorf("with what was told before: %+v", got)
	}
	x.facts.pending.forget(last)
	if x.facts.pending.take(last, now).Name != "" {
		t.Error("it is not forgotten")
	}
}

// TestFactsWaitNoLongerThanTheirCaller: a fact waits for a request for its attachment no longer than its
// caller does.
func TestFactsWaitNoLongerThanTheirCaller(t *testing.T) {
	x := newTeller(t)
	end, err := x.journal.turns.Lock(t.Context(), attachedKey)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.Report(ctx, attach.Fact{Key: attachedKey}); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestSelectableLabelsComeFirst: labels that no policy can select by, however many an image has, do not
// push out labels that policies can, by this list of generated labels or another. Of the
// latter none is left out, since it may be the one that denies. Later labels do not push
// out the ones given with the attachment.
func TestSelectableLabelsComeFirst(t *testing.T) {
	labels := map[string]string{"quarantine": "yes", "org.opencontainers.x": "1", "long": strings.Repeat("x", model.MaxLabelValue+1)}
	for i := range model.MaxLabels {
		labels["0 "+strconv.Itoa(i)] = "x"
	}
	got := labelsOf(Entry{Request: attach.Request{Labels: map[string]string{"asked": "1"}}, Facts: attach.Fact{Labels: labels}})
	if len(got) != model.MaxLabels || got["quarantine"] != "yes" || got["asked"] != "1" {
		t.Errorf("%d labels are kept, quarantine=%q, asked=%q", len(got), got["quarantine"], got["asked"])
	}
	if err := model.ValidateLabels(got); err != nil || got["org.opencontainers.x"] != "1" {
		t.Error(err, got["org.opencontainers.x"])
	}
	for i := range 1000 {
		labels["l"+strconv.Itoa(i)] = "x"
	}
	if got = usableLabels(labels, model.MaxLabels); len(got) != 1002 || model.ValidateLabels(got) == nil {
		t.Errorf("of 1,002 that policies can select by, %d are told", len(got))
	}
}
