package serviceaccount

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/internal/model"
)

const (
	recordPath = "/api/v1/namespaces/ns1/configmaps/contiv-authority"
	leasePath  = "/apis/coordination.k8s.io/v1/namespaces/ns1/leases/contiv-netmaster-founder"
)

// objectServer has objects by their paths, and takes changes of their newest version alone.
type objectServer struct {
	has     map[string]map[string]any
	version int
	loses   bool   // answers to changes, which it makes
	between func() // called once, after the next read of the record
}

// set makes an object, or changes it as another client does.
func (s *objectServer) set(path, kind string, fields map[string]any) {
	s.version++
	o := map[string]any{"kind": kind, "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}}
	maps.Copy(o, fields)
	s.has[path] = o
}

func (s *objectServer) record(text string) {
	s.set(recordPath, "ConfigMap", map[string]any{"data": map[string]any{BundleKey: text}})
}

func (s *objectServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fail := func(code int, reason metav1.StatusReason) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Message: string(reason)})
	}
	is := s.has[r.URL.Path]
	if is == nil {
		fail(http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	version := func(o map[string]any) any { return o["metadata"].(map[string]any)["resourceVersion"] }
	if r.Method == http.MethodPut {
		var next map[string]any
		if json.NewDecoder(r.Body).Decode(&next) != nil || version(next) != version(is) {
			fail(http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		s.version++
		next["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.version)
		s.has[r.URL.Path] = next
		if s.loses {
			fail(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
			return
		}
	}
	_ = json.NewEncoder(w).Encode(s.has[r.URL.Path])
	if between := s.between; between != nil && r.URL.Path == recordPath && r.Method == http.MethodGet {
		s.between = nil
		between()
	}
}

// founders has an API server with an empty record and a free Lease, and netmasters whose clock
// the test sets.
func founders(t *testing.T) (s *objectServer, clock *time.Time, founder func(node string) *Founder) {
	t.Helper()
	s = &objectServer{has: map[string]map[string]any{}}
	s.set(recordPath, "ConfigMap", nil)
	s.set(leasePath, "Lease", nil)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	now := time.Now()
	return s, &now, func(node string) *Founder {
		f, err := NewFounder(FounderConfig{API: &rest.Config{Host: server.URL}, Namespace: "ns1", Identity: node, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		f.now = func() time.Time { return now }
		return f
	}
}

// mayFound holds what a netmaster finds out: may found, or the recorded authority, or neither.
func mayFound(t *testing.T, f *Founder, may bool, recorded, told string) {
	t.Helper()
	var got []byte
	done, err := f.attempt(t.Context(), &got)
	switch {
	case string(got) != recorded, (recorded != "" || may) != done, (told == "") != (err == nil), err != nil && !strings.Contains(err.Error(), told):
		t.Errorf("%s: done %v, recorded %q, %v; want may found %v, recorded %q, %q", f.cfg.Identity, done, got, err, may, recorded, told)
	}
}

// TestLostLeaseFoundsNothing: a netmaster founds while it holds the Lease. When that is lost
// before anything is recorded, another one founds, and the first one does not. When it is
// lost afterwards, no netmaster founds.
func TestLostLeaseFoundsNothing(t *testing.T) {
	s, clock, founder := founders(t)
	a, b := founder("a"), founder("b")
	first, second := authority(t, filepath.Join(t.TempDir(), "a")).Text(), authority(t, filepath.Join(t.TempDir(), "b")).Text()
	mayFound(t, a, true, "", "")
	mayFound(t, b, false, "", "the netmaster of a founds the cluster")
	*clock = clock.Add(leaseDuration - 1)
	mayFound(t, b, false, "", "the netmaster of a founds the cluster")
	mayFound(t, founder("c"), false, "", "the netmaster of a") // it has just begun to watch the Lease
	mayFound(t, founder("a"), true, "", "")                    // it was restarted
	mayFound(t, b, false, "", "the netmaster of a")            // which it sees by the Lease's version
	*clock = clock.Add(leaseDuration)
	mayFound(t, b, true, "", "")

	s.loses = true // b's record is written, and b does not hear of it
	if done, err := b.put(t.Context(), second); done || err == nil {
		t.Errorf("an answer that was lost: %v, %v", done, err)
	}
	s.loses = false
	if err := b.Record(t.Context(), second); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := a.Record(t.Context(), first); !errors.Is(err, model.ErrExists) {
		t.Errorf("a, whose Lease was lost, founds: %v", err)
	}
	mayFound(t, a, false, string(second), "")
	for _, lease := range []map[string]any{nil, {"spec": map[string]any{"holderIdentity": "c"}}} {
		s.set(leasePath, "Lease", lease)
		mayFound(t, founder("c"), false, string(second), "")
	}
	delete(s.has, leasePath)
	mayFound(t, founder("c"), false, string(second), "")
	s.record("") // by hand, without a Lease
	mayFound(t, founder("c"), false, "", "Lease ns1/contiv-netmaster-founder does not exist")
}

// TestOneNetmasterRecordsTheCluster: of two netmasters that take the Lease at once, or record at once, one
// succeeds. A renewed authority is still the founder's.
func TestOneNetmasterRecordsTheCluster(t *testing.T) {
	s, _, founder := founders(t)
	ours := authority(t, filepath.Join(t.TempDir(), "ours"))
	other := authority(t, filepath.Join(t.TempDir(), "other")).Text()
	joiner := founder("d")
	joiner.cfg.OnlyJoins = "it is not in the list"
	mayFound(t, joiner, false, "", "founds none: it is not in the list")
	s.between = func() { s.record(string(other)) }
	if done, err := founder("a").put(t.Context(), ours.Text()); done || err == nil || !strings.Contains(err.Error(), "Conflict") {
		t.Errorf("the record was written meanwhile: %v, %v", done, err)
	}
	if err := founder("a").Record(t.Context(), ours.Text()); !errors.Is(err, model.ErrExists) {
		t.Errorf("another's is recorded: %v", err)
	}
	former := ours.Text()
	if err := ours.RenewAuthority(); err != nil {
		t.Fatal(err)
	}
	s.record(string(ours.Text()))
	if err := founder("a").Record(t.Context(), former); err != nil {
		t.Errorf("it was renewed: %v", err)
	}
	mayFound(t, joiner, false, string(ours.Text()), "")
}

// TestUnknownRecordFoundsNoCluster: where it is not known whether a cluster is recorded, no netmaster
// founds one, and the error says what to do.
func TestUnknownRecordFoundsNoCluster(t *testing.T) {
	s, _, founder := founders(t)
	s.record("-----BEGIN CERT")
	mayFound(t, founder("a"), false, "", `patch configmap contiv-authority -p '{"data":null}'`)
	if done, err := founder("a").put(t.Context(), authority(t, filepath.Join(t.TempDir(), "a")).Text()); done || !errors.Is(err, model.ErrConflict) {
		t.Errorf("it is overwritten: %v, %v", done, err)
	}
	delete(s.has, recordPath)
	mayFound(t, founder("a"), false, "", "ConfigMap ns1/contiv-authority does not exist")
	f := founder("a")
	f.cfg.Namespace = "ns2"
	mayFound(t, f, false, "", "ns2/contiv-authority does not exist")
}
