package access

import (
	"bytes"
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var bigOne = big.NewInt(1)

// filtered writes a text through a filter in parts.
func filtered(text string, tenants []string, part func(left int) int) (string, error) {
	var out bytes.Buffer
	f := &listFilter{to: &out, keep: ofTenants(tenants)}
	for len(text) > 0 {
		n := part(len(text))
		if _, err := f.Write([]byte(text[:n])); err != nil {
			return out.String(), err
		}
		text = text[n:]
	}
	return out.String(), nil
}

func whole(left int) int { return left }

// naive decodes all and keeps what is of tenants.
func naive(text string, tenants []string) (kept []any, ok bool) {
	var all []json.RawMessage
	if json.Unmarshal([]byte(text), &all) != nil {
		return nil, false
	}
	kept = []any{}
	for _, raw := range all {
		var o struct{ TenantName string }
		var v any
		if json.Unmarshal(raw, &o) == nil && slices.Contains(tenants, o.TenantName) && json.Unmarshal(raw, &v) == nil {
			kept = append(kept, v)
		}
	}
	return kept, true
}

// value makes some JSON, with braces, brackets, commas and quotes in texts too.
func value(rng *rand.Rand, depth int) any {
	switch n := rng.IntN(6); {
	case n < 2 && depth > 0:
		list := []any{}
		for range rng.IntN(3) {
			list = append(list, value(rng, depth-1))
		}
		return list
	case n < 3 && depth > 0:
		return map[string]any{"tenantName": "blue", "x\"]": value(rng, depth-1)}
	case n < 4:
		return []any{nil, true, 1.5, "]", "},{", `\"`, `"`, `\`, "[", ",", ""}[rng.IntN(11)]
	default:
		return strings.Repeat(`a"\]},`, rng.IntN(4))
	}
}

// TestFilter: whatever lists hold and in whatever parts they come, what is written is
// what decoding all of it would keep.
func TestFilter(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	kept, dropped := 0, 0
	for range 2000 {
		list := []any{}
		for range rng.IntN(6) {
			if rng.IntN(8) == 0 {
				list = append(list, value(rng, 2))
				continue
			}
			field := []string{"tenantName", "tenantname"}[rng.IntN(2)]
			list = append(list, map[string]any{field: []any{"blue", "red", "blu", "", nil, 7}[rng.IntN(6)], "more": value(rng, 3)})
		}
		b, err := json.MarshalIndent(list, "", strings.Repeat(" ", rng.IntN(3)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := filtered(string(b), []string{"blue", "green"}, func(left int) int { return 1 + rng.IntN(min(left, 9)) })
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		var out []any
		if err := json.Unmarshal([]byte(got), &out); err != nil {
			t.Fatalf("%s becomes %s: %v", b, got, err)
		}
		want, _ := naive(string(b), []string{"blue", "green"})
		if d := cmp.Diff(want, out); d != "" {
			t.Fatalf("%s becomes %s: %s", b, got, d)
		}
		kept += len(out)
		dropped += len(list) - len(out)
	}
	if kept < 500 || dropped < 500 {
		t.Errorf("%d kept, %d dropped: this tests little", kept, dropped)
	}
}

// FuzzFilter: nothing of another's is ever shown, and of a list all that is one's own.
func FuzzFilter(f *testing.F) {
	f.Add(`[{"tenantName":"red","x":"]"},{"tenantName":"blue"}]`)
	f.Add(`[{"tenantName":"red"}{"tenantName":"blue"}]`)
	f.Add(`[]]`)
	f.Add(`{"tenantName":"red"}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := filtered(text, []string{"blue"}, whole)
		want, ok := naive(text, []string{"blue"})
		if ok && text != "null" && !strings.Contains(strings.TrimSpace(text), "null") || strings.HasPrefix(strings.TrimSpace(text), "[") && ok {
			out, _ := naive(got, []string{"blue"})
			if d := cmp.Diff(want, out); d != "" || err != nil {
				t.Errorf("%q becomes %q (%v): %s", text, got, err, d)
			}
		}
		if all, is := naive(got, []string{"blue"}); is {
			var every []json.RawMessage
			if json.Unmarshal([]byte(got), &every) == nil && len(every) != len(all) {
				t.Errorf("%q becomes %q", text, got)
			}
		}
	})
}

// TestListWriter: refusals of the server pass as they are; an answer that is no list,
// or goes on after one, shows nothing that is not one's own.
func TestListWriter(t *testing.T) {
	for _, tc := range []struct {
		status     int
		body, want string
	}{
		{200, `[{"tenantName":"red"},{"tenantName":"blue"}]` + "\n", `[{"tenantName":"blue"}]` + "\n"},
		{0, `[{"tenantName":"red"}]`, "[]\n"},
		{206, `[{"tenantName":"red"}]`, "[]\n"},
		{200, `{"tenantName":"red"}`, ""},
		{200, `[]{"tenantName":"red"}`, "[]\n"},
		{200, `[{"tenantName":"blue"},{"tenantName":"blue"`, `[{"tenantName":"blue"}`}, // it broke off, and that is seen
		{200, `[][{"tenantName":"blue"}]`, "[]\n"},
		{200, `[}{,{"tenantName":"blue"}]`, "["},
		{200, `[{"tenantName":"blue"},]`, `[{"tenantName":"blue"}`},
		{503, `the store is away`, `the store is away`},
	} {
		d := newDoor(t, func(c *Config) {
			c.Next = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(len(tc.body)))
				if tc.status != 0 {
					w.WriteHeader(tc.status)
				}
				_, _ = w.Write([]byte(tc.body))
			})
		})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/api/v1/networks", http.NoBody)
		r.Header.Set("Authorization", "Bearer is-blue")
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if w.Body.String() != tc.want || (w.Header().Get("Content-Length") == "") == (tc.status == 503) {
			t.Errorf("%q: %d %q, want %q", tc.body, w.Code, w.Body, tc.want)
		}
	}
}
