package netctl

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakeMaster behaves like netmaster as far as netctl can tell: a store of JSON
// objects by collection and key, links left alone, no validation.
type fakeMaster struct {
	t        *testing.T
	url      string
	mu       sync.Mutex
	objects  map[string]map[string]json.RawMessage // collection, key
	inspect  map[string]string                     // path below /inspect/ -> Oper as JSON
	refuse   map[string]refusal                    // "METHOD path" -> answer
	requests []string                              // "METHOD path body"
	applied  []string                              // answers to POST /api/v1/apply, in order
}

type refusal struct {
	status int
	text   string
}

func newFakeMaster(t *testing.T) *fakeMaster {
	t.Helper()
	m := &fakeMaster{
		t:       t,
		objects: map[string]map[string]json.RawMessage{},
		inspect: map[string]string{},
		refuse:  map[string]refusal{},
	}
	m.store("globals", "global", `{"key":"global","name":"global","arpMode":"proxy","fwdMode":"bridge","networkInfraType":"default","pvtSubnet":"172.20.0.0/16","vlans":"1-4094","vxlans":"1-10000"}`)
	m.store("tenants", "default", `{"key":"default","tenantName":"default","link-sets":{}}`)
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	m.url = s.URL
	return m
}

func (m *fakeMaster) store(collection, key, object string) {
	if m.objects[collection] == nil {
		m.objects[collection] = map[string]json.RawMessage{}
	}
	m.objects[collection][key] = json.RawMessage(object)
}

func (m *fakeMaster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		m.t.Errorf("read request: %v", err)
	}
	m.requests = append(m.requests, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
	if no, ok := m.refuse[r.Method+" "+r.URL.Path]; ok {
		http.Error(w, no.text, no.status)
		return
	}
	if r.URL.Path == "/version" {
		m.answer(w, `{"GitCommit":"abc123","Version":"2.1.0","BuildTime":"2026-11-21T00:00:00Z"}`)
		return
	}
	if r.URL.Path == "/api/v1/apply" {
		m.answer(w, m.applied[0])
		m.applied = m.applied[1:]
		return
	}
	parts := strings.Split(strings.Trim(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/"), "/")
	switch {
	case parts[0] == "inspect":
		m.serveInspect(w, parts[1], parts[2])
	case len(parts) == 1:
		m.serveList(w, parts[0])
	default:
		m.serveObject(w, r.Method, parts[0], parts[1], body)
	}
}

func (m *fakeMaster) serveInspect(w http.ResponseWriter, collection, key string) {
	oper, hasOper := m.inspect[collection+"/"+key]
	config, hasConfig := m.objects[collection][key]
	switch {
	case !hasOper && !hasConfig:
		http.Error(w, collection+" "+key+" does not exist", http.StatusNotFound)
	case !hasConfig:
		m.answer(w, `{"Oper":`+oper+`}`)
	case !hasOper:
		m.answer(w, `{"Config":`+string(config)+`,"Oper":{}}`)
	default:
		m.answer(w, `{"Config":`+string(config)+`,"Oper":`+oper+`}`)
	}
}

func (m *fakeMaster) serveList(w http.ResponseWriter, collection string) {
	var keys, list []string
	for key := range m.objects[collection] {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	slices.Reverse(keys) // netctl must not rely on the order
	for _, key := range keys {
		list = append(list, string(m.objects[collection][key]))
	}
	m.answer(w, "["+strings.Join(list, ",")+"]")
}

func (m *fakeMaster) serveObject(w http.ResponseWriter, method, collection, key string, body []byte) {
	old, exists := m.objects[collection][key]
	switch {
	case method == http.MethodPost:
		merged := map[string]any{}
		if exists && collection == "globals" { // what is not sent stays
			m.decode(old, &merged)
		}
		m.decode(body, &merged)
		merged["key"] = key
		stored, err := json.Marshal(merged)
		if err != nil {
			m.t.Errorf("encode: %v", err)
		}
		m.store(collection, key, string(stored))
		m.answer(w, string(stored))
	case !exists:
		http.Error(w, collection+" "+key+" does not exist", http.StatusNotFound)
	case method == http.MethodDelete:
		delete(m.objects[collection], key)
		m.answer(w, `"`+key+`"`)
	default:
		m.answer(w, string(old))
	}
}

func (m *fakeMaster) decode(data []byte, out any) {
	if err := json.Unmarshal(data, out); err != nil {
		m.t.Errorf("decode %s: %v", data, err)
	}
}

func (m *fakeMaster) answer(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	if _, err := io.WriteString(w, text); err != nil {
		m.t.Errorf("answer: %v", err)
	}
}

// sent returns the requests other than GET.
func (m *fakeMaster) sent() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.requests), func(s string) bool { return strings.HasPrefix(s, "GET ") })
}

// result is what one run of netctl left behind.
type result struct {
	code        int
	out, errOut string
}

// netctl runs a command line against the given netmaster.
func netctl(t *testing.T, url string, args ...string) result {
	t.Helper()
	return netctlEnv(t, map[string]string{"NETMASTER": url}, args...)
}

func netctlEnv(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	return netctlAs(t, "netctl", env, args...)
}

// netctlAs is netctlEnv for a program that is called by another name.
func netctlAs(t *testing.T, program string, env map[string]string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := Run(t.Context(), Env{
		Program: program,
		Stdout:  &out,
		Stderr:  &errOut,
		Getenv:  func(name string) string { return env[name] },
		Build:   testBuild,
	}, args)
	return result{code, out.String(), errOut.String()}
}
