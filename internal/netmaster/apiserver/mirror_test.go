package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// mirroring is a client of POST /plugin/mirror.
type mirroring struct {
	t     *testing.T
	asks  *io.PipeWriter
	lines *bufio.Scanner
}

func mirror(t *testing.T, c *api.Client) *mirroring {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	r, w := io.Pipe()
	body, err := c.Mirror(ctx, r)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = errors.Join(w.Close(), body.Close()) // it was read
	})
	m := &mirroring{t: t, asks: w, lines: bufio.NewScanner(body)}
	m.lines.Buffer(nil, 1<<20)
	if first := m.next(); !first.Fresh {
		t.Fatalf("it begins with %+v", first)
	}
	return m
}

func (m *mirroring) ask(a api.MirrorRequest) {
	m.t.Helper()
	b, err := json.Marshal(a)
	if err == nil {
		_, err = m.asks.Write(append(b, '\n'))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// next returns the next message that is more than that the stream is fresh.
func (m *mirroring) next() (msg api.MirrorMessage) {
	m.t.Helper()
	if !m.lines.Scan() {
		m.t.Fatalf("the stream ends: %v", m.lines.Err())
	}
	if err := json.Unmarshal(m.lines.Bytes(), &msg); err != nil {
		m.t.Fatalf("%s: %v", m.lines.Bytes(), err)
	}
	return msg
}

func (m *mirroring) of(id int) api.MirrorMessage {
	m.t.Helper()
	for {
		if msg := m.next(); msg.ID == id || msg.End != "" {
			return msg
		}
	}
}

// An agent gets a list of what it asks for, at the revision of now, then what commits
// make of it, and nothing of what it has not asked for or asks for no more.
func TestAgentsGetWhatTheyAskForOnly(t *testing.T) {
	f := serve(t, 0)
	tenant := func(name string) {
		f.must(http.MethodPut, "/api/v1/tenants/"+name+"/", `{"tenantName":"`+name+`"}`)
	}
	networks := 0
	network := func(tenant, name string) {
		networks++
		f.must(http.MethodPut, "/api/v1/networks/"+tenant+":"+name+"/",
			`{"tenantName":"`+tenant+`","networkName":"`+name+`","encap":"vxlan","subnet":"`+fmt.Sprintf("10.1.%d.0/24", networks)+`"}`)
	}
	tenant("blue")
	tenant("red")
	network("blue", "one")
	m := mirror(t, f.Client)
	of := func(t string) []string { return []string{"/contiv.io/state/tenant/" + t + "/networks/"} }
	m.ask(api.MirrorRequest{ID: 7, Prefixes: of("blue")})
	list := m.of(7)
	if !list.List || list.Revision == 0 || list.Identity == nil || len(list.Rows) != 1 || !strings.HasSuffix(list.Rows[0].Key, "/networks/one") ||
		list.Rows[0].Create == 0 || !strings.Contains(list.Rows[0].Text, "10.1.1.0/24") {
		t.Fatalf("the list is %+v", list)
	}
	network("red", "two")
	network("blue", "three")
	made := m.of(7)
	if made.List || made.Revision <= list.Revision || len(made.Rows) != 1 || !strings.HasSuffix(made.Rows[0].Key, "/networks/three") {
		t.Errorf("told of %+v", made)
	}
	f.must(http.MethodDelete, "/api/v1/networks/blue:one/", "")
	if gone := m.of(7); len(gone.Rows) != 1 || gone.Rows[0].Create != 0 || !strings.HasSuffix(gone.Rows[0].Key, "/networks/one") {
		t.Errorf("told of %+v", gone)
	}
	m.ask(api.MirrorRequest{ID: 7, End: true})
	m.ask(api.MirrorRequest{ID: 8, Prefixes: of("red")})
	if list := m.of(8); len(list.Rows) != 1 {
		t.Errorf("the other list is %+v", list)
	}
	network("blue", "four")
	network("red", "five")
	for {
		msg := m.next()
		if msg.ID == 7 {
			t.Errorf("told of what is asked for no more: %+v", msg)
		}
		if msg.ID == 8 {
			break
		}
	}
	if got := f.must(http.MethodGet, "/metrics", ""); !strings.Contains(got, "contiv_netmaster_relayed_hosts 1\n") {
		t.Error("the metrics do not tell of the stream")
	}
}

// Allocations, what is not the cluster's state, and all of it are not relayed.
func TestOnlyTheClustersStateIsRelayed(t *testing.T) {
	f := serve(t, 0)
	for _, prefix := range []string{"", "/contiv.io/state/", "/contiv.io/state/alloc/", "/contiv.io/access/tokens/", "/contiv.io/oper/", "/contiv.io/state/global"} {
		m := mirror(t, f.Client)
		m.ask(api.MirrorRequest{ID: 1, Prefixes: []string{prefix}})
		if got := m.of(1); !strings.Contains(got.End, "are not relayed") {
			t.Errorf("%q: %+v", prefix, got)
		}
	}
}

// A netmaster that stops ends its streams, and one that does not hear the store says so.
func TestMirrorStreamsEndWithNetmaster(t *testing.T) {
	stopping := make(chan struct{})
	f := serveWith(t, func(c *Config) { c.Stopping = stopping })
	m := mirror(t, f.Client)
	close(stopping)
	for m.lines.Scan() { // until its end
	}
	f.mem.Unavailable(true)
	defer f.mem.Unavailable(false)
	body, err := f.Mirror(t.Context(), strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if text, err := io.ReadAll(body); err != nil || !strings.Contains(string(text), `"end":"this netmaster receives no changes of the store`) {
		t.Errorf("%s, %v", text, err)
	}
}
