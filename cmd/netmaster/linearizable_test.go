package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// TestRequestsToReplicasAreLinearizable: clients see single objects through any replica, while all clients
// write, read and delete the same few. Each request looks as if it had happened at one
// moment between its beginning and its answer. A write answers with what it committed, and
// its revision is later than every revision that it follows.
func TestRequestsToReplicasAreLinearizable(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		mem := memory.New()
		isLinearizable(t, replica(t, mem, nil), replica(t, mem.Client(), nil))
	})
	t.Run("etcd", func(t *testing.T) {
		listen := storetest.FreePort(t)
		own := start(t, nil, "--data-dir", t.TempDir(), "--etcd-listen", listen)
		own.ready()
		other := start(t, nil, "--etcd-endpoints", "http://"+listen)
		other.ready()
		isLinearizable(t, "http://"+own.api, "http://"+other.api)
		other.stop()
		own.stop()
	})
}

func isLinearizable(t *testing.T, urls ...string) {
	t.Helper()
	for round := range uint64(4) {
		h := contend(t, round, urls...)
		if got := porcupine.CheckOperationsTimeout(registers, h, patience); got != porcupine.Ok {
			t.Errorf("round %d: a history of %d requests is %s, want that it is linearizable", round, len(h), got)
		}
	}
}

// TestLinearizabilityCheckerFindsStaleReads: the checker finds what is answered from anything but
// the commit, or from before it.
func TestLinearizabilityCheckerFindsStaleReads(t *testing.T) {
	for name, mutant := range map[string]func(http.Handler) http.Handler{
		"a PUT that is answered by reading again": readsAgain,
		"a GET that is answered as the last one":  readsStale,
	} {
		t.Run(name, func(t *testing.T) {
			mem := memory.New()
			urls := []string{replica(t, mem, mutant), replica(t, mem.Client(), mutant)}
			for round := range uint64(20) {
				if porcupine.CheckOperationsTimeout(registers, contend(t, round, urls...), patience) == porcupine.Illegal {
					t.Logf("found in round %d", round)
					return
				}
			}
			t.Error("nothing was found in 20 rounds")
		})
	}
}

// replica serves the API over a store until the test ends; mutant (nil = none)
// stands before it.
func replica(t *testing.T, st store.Store, mutant func(http.Handler) http.Handler) string {
	t.Helper()
	ctrl := control.New(st, control.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ctrl.Run(ctx) }()
	h, err := apiserver.New(apiserver.Config{Control: ctrl, Watch: ctrl.Hosts.NewHostWatch(), Mode: modeTest, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if mutant != nil {
		h = mutant(h)
	}
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s.URL
}

// readsAgain answers a PUT with what a GET after it finds, as was done once.
func readsAgain(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			put := httptest.NewRecorder()
			h.ServeHTTP(put, r)
			if put.Code == http.StatusOK {
				w.Header()[revisionHeader] = put.Result().Header[revisionHeader]
				r = httptest.NewRequestWithContext(r.Context(), http.MethodGet, r.URL.Path, nil)
			}
		}
		h.ServeHTTP(w, r)
	})
}

// readsStale answers each GET as the one before it was.
func readsStale(h http.Handler) http.Handler {
	var mu sync.Mutex
	last := map[string]*httptest.ResponseRecorder{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			h.ServeHTTP(w, r)
			return
		}
		now := httptest.NewRecorder()
		h.ServeHTTP(now, r)
		mu.Lock()
		was := last[r.URL.Path]
		last[r.URL.Path] = now
		mu.Unlock()
		if was == nil {
			was = now
		}
		w.WriteHeader(was.Code)
		_, _ = w.Write(was.Body.Bytes())
	})
}

const revisionHeader = "X-Contiv-Revision"

// asked is a request for one object, got its answer.
type (
	asked struct {
		method string
		key    int
		value  int // that a PUT asks for; mostly each is asked for once
	}
	got struct {
		status   int
		value    int
		revision int64
	}
	// register is an object: its value (0 = it is not there), and the revision of
	// its last change.
	register struct {
		value    int
		revision int64
	}
)

// registers says what each request does when it is the only one.
var registers = porcupine.Model{
	Init: func() any { return register{} },
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make([][]porcupine.Operation, contended)
		for _, o := range history {
			k := o.Input.(asked).key
			byKey[k] = append(byKey[k], o)
		}
		return byKey
	},
	Step: func(state, input, output any) (bool, any) {
		is, in, out := state.(register), input.(asked), output.(got)
		switch {
		case out.status == http.StatusConflict && in.method != http.MethodGet: // others were too quick, again and again: nothing is changed
			return true, is
		case in.method == http.MethodPut && in.value == is.value: // nothing changes
			return out.status == http.StatusOK && out.value == in.value && out.revision >= is.revision, is
		case in.method == http.MethodPut:
			return out.status == http.StatusOK && out.value == in.value && out.revision > is.revision, register{in.value, out.revision}
		case out.status == http.StatusNotFound:
			return is.value == 0, is
		case in.method == http.MethodDelete:
			return out.status == http.StatusOK && is.value != 0 && out.revision > is.revision, register{0, out.revision}
		}
		return out.status == http.StatusOK && is.value == out.value, is
	},
}

// contended is how many objects the clients of contend fight about.
const contended = 2

// contend has clients put, get and delete the same objects through all URLs at
// once, and returns what they saw. The objects are not there before and after.
func contend(t *testing.T, round uint64, urls ...string) []porcupine.Operation {
	t.Helper()
	const clients, each = 8, 50
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	hc := &http.Client{Transport: transport}
	first, err := api.NewClient(urls[0], api.WithHTTPClient(hc))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Tenants().Create(t.Context(), api.Tenant{TenantName: "t"}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	histories := make([][]porcupine.Operation, clients)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			chance := rand.New(rand.NewPCG(round, uint64(c))) //nolint:gosec // a test's
			for i := range each {
				in := asked{http.MethodGet, chance.IntN(contended), c*each + i + 3}
				if chance.IntN(4) == 0 {
					in.value = 2
				}
				switch chance.IntN(6) {
				case 0, 1:
					in.method = http.MethodPut
				case 2, 3:
					in.method = http.MethodDelete
				}
				o := porcupine.Operation{ClientId: c, Input: in, Call: int64(time.Since(begin))}
				out, err := send(t.Context(), hc, urls[c%len(urls)], in)
				o.Output, o.Return = out, int64(time.Since(begin))
				if err != nil {
					t.Error(err)
					return
				}
				histories[c] = append(histories[c], o)
			}
		})
	}
	all.Wait()
	var history []porcupine.Operation
	for _, h := range histories {
		history = append(history, h...)
	}
	for key := range contended {
		if out, err := send(t.Context(), hc, urls[0], asked{http.MethodDelete, key, 0}); err != nil || out.status != http.StatusOK && out.status != http.StatusNotFound {
			t.Fatalf("delete object %d: %+v, %v", key, out, err)
		}
	}
	return history
}

func send(ctx context.Context, hc *http.Client, url string, in asked) (out got, err error) {
	name := fmt.Sprintf("p%d", in.key)
	body := ""
	if in.method == http.MethodPut {
		body = fmt.Sprintf(`{"tenantName":"t","profileName":%q,"burst":%d}`, name, in.value)
	}
	req, err := http.NewRequestWithContext(ctx, in.method, url+"/api/v1/netprofiles/t:"+name, strings.NewReader(body))
	if err != nil {
		return out, err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return out, err
	}
	out.status = resp.StatusCode
	if resp.StatusCode != http.StatusOK {
		return out, nil
	}
	var p api.NetProfile
	if in.method != http.MethodDelete {
		if err := json.Unmarshal(text, &p); err != nil {
			return out, err
		}
	}
	out.value = p.Burst
	if in.method != http.MethodGet {
		out.revision, err = strconv.ParseInt(resp.Header.Get(revisionHeader), 10, 64)
	}
	return out, err
}
