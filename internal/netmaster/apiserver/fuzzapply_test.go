package apiserver

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// FuzzApply: whatever list of objects is to be applied, one that is refused, and a dry
// run, change nothing; the dry run and the run after it say the same; and a list that
// has been applied is found unchanged when it is applied again.
func FuzzApply(f *testing.F) {
	f.Add("[" + strings.Join(oneOfEach, ",") + "]")
	f.Add("[" + oneOfEach[0] + "]") // what it refers to is not there
	for _, list := range []string{
		`[{"kind":"tenant","tenantName":"blue"},{"kind":"tenant","tenantName":"blue","maxEndpoints":4}]`,
		`[{"kind":"tenant","tenantName":"blue","key":"red","link-sets":{"Networks":{"a":{}}}}]`,
		`[{"kind":"Bgp","hostname":"h1","as":"65000","neighbor":"10.0.0.1","neighbor-as":"65001"}]`,
		`[{"kind":"global","name":"global","fwdMode":"routing","vxlans":"1-100"}]`,
		`[null]`, `{}`,
	} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		mem := memory.New()
		ctrl := control.New(mem, control.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		done := make(chan error, 1)
		go func() { done <- ctrl.Run(ctx) }()
		defer func() {
			cancel()
			if err := cmp.Or(<-done, mem.Close()); err != nil {
				t.Error(err)
			}
		}()
		h, err := New(Config{Control: ctrl, Cluster: testCluster{ctrl}, Mode: "test", Log: slog.New(slog.DiscardHandler), Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		apply := func(dryRun string) (actions string, answer *httptest.ResponseRecorder) {
			t.Helper()
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/v1/apply", strings.NewReader(`{"dryRun":`+dryRun+`,"objects":`+list+`}`))
			r.Host = "127.0.0.1"
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				if w.Code < 400 || w.Code > 499 {
					t.Errorf("%s: %d %s is not a refusal", list, w.Code, w.Body)
				}
				return "", w
			}
			var said api.ApplyResponse
			if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil {
				t.Fatalf("%s: %v: %s", list, err, w.Body)
			}
			var all []string
			for _, res := range said.Results {
				all = append(all, res.Kind+" "+res.Key+" "+res.Action)
			}
			return strings.Join(all, "\n"), w
		}
		held := func() map[string]string {
			t.Helper()
			all, _, err := mem.Range(ctx, store.Root)
			if err != nil {
				t.Fatal(err)
			}
			rows := map[string]string{}
			for _, kv := range all {
				rows[kv.Key] = string(kv.Value)
			}
			return rows
		}
		if strings.Contains(strings.ToLower(list), "dryrun") {
			return // it may be no list but a request of its own
		}
		var before map[string]string
		for before = held(); len(before) == 0; before = held() { // the defaults are one transaction
			if err := waiting.Pause(ctx, time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		would, dry := apply("true")
		if now := held(); !maps.Equal(before, now) {
			t.Fatalf("%s: a dry run (%d) changed %v to %v", list, dry.Code, before, now)
		}
		did, w := apply("false")
		if w.Code != dry.Code || did != would {
			t.Fatalf("%s: the dry run says %d\n%s%s\nthe run %d\n%s%s", list, dry.Code, would, dry.Body, w.Code, did, w.Body)
		}
		if w.Code != http.StatusOK {
			if now := held(); !maps.Equal(before, now) {
				t.Fatalf("%s: refused (%s), and it changed %v to %v", list, w.Body, before, now)
			}
			return
		}
		if again, w := apply("false"); w.Code != http.StatusOK || strings.Count(again, " "+api.ApplyUnchanged+"\n") != strings.Count(again, "\n") || strings.Count(again, "\n") != strings.Count(did, "\n") {
			t.Errorf("%s: applied, and again it is %d\n%s%s", list, w.Code, again, w.Body)
		}
	})
}
