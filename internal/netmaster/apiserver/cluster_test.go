package apiserver

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// testMembers notes its calls, and lists two members of which one is lost.
type testMembers struct{ calls []string }

func (m *testMembers) Members(context.Context) (api.Members, error) {
	return api.Members{Members: []api.Member{
		{Name: "a", Role: "voter", Address: "10.0.0.1:9004", Leads: true, Full: true, Version: "3.6.0"},
		{Name: "b", Role: "voter", Address: "10.0.0.2:9004", Error: "it is away"},
		{Name: "c", Role: "waiting", Address: "10.0.0.3:9004", Error: "it has not started yet"},
	}, Warnings: []string{"two are weaker than one"}}, nil
}

// externalMembers are two netmasters whose store is elsewhere.
type externalMembers struct{ *testMembers }

func (externalMembers) Members(context.Context) (api.Members, error) {
	return api.Members{Members: []api.Member{{Name: "a", Role: "voter"}, {Name: "b", Role: "voter"}}}, nil
}

func (m *testMembers) NewJoinToken(_ context.Context, life time.Duration) (api.JoinToken, error) {
	m.calls = append(m.calls, "token for "+life.String())
	return api.JoinToken{Token: "T", ID: "I"}, nil
}

func (m *testMembers) NewHostToken(_ context.Context, host string, life time.Duration) (api.JoinToken, error) {
	m.calls = append(m.calls, "token of "+host+" for "+life.String())
	return api.JoinToken{Token: "H", ID: "I", Host: host}, nil
}

func (m *testMembers) RemoveMember(_ context.Context, member string, force bool) error {
	m.calls = append(m.calls, "remove "+member)
	if !force {
		return model.Errorf(model.ErrConflict, "too few would answer")
	}
	return nil
}

func (m *testMembers) RelieveMembers(context.Context) error {
	m.calls = append(m.calls, "relieve")
	return nil
}

func (m *testMembers) RenewAuthorities(context.Context) error {
	m.calls = append(m.calls, "renew")
	return nil
}

// TestStatusShowsTheStoresMembers: what is asked of the embedded store's cluster reaches it, and its
// members and warnings are in the status. The token is cached nowhere, and not logged.
func TestStatusShowsTheStoresMembers(t *testing.T) {
	m := &testMembers{}
	f := serveWith(t, func(c *Config) { c.Members = m })
	if all, err := f.Members(t.Context()); err != nil || len(all.Members) != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	if tok, err := f.NewJoinToken(t.Context(), api.JoinTokenRequest{ExpiresInSeconds: 90}); err != nil || tok.Token != "T" {
		t.Errorf("%+v, %v", tok, err)
	}
	if tok, err := f.NewJoinToken(t.Context(), api.JoinTokenRequest{ExpiresInSeconds: 30, Host: "host4"}); err != nil || tok.Token != "H" || tok.Host != "host4" {
		t.Errorf("of a host: %+v, %v", tok, err)
	}
	for _, seconds := range []string{"-1", "9223372036854775807"} {
		if code, text := f.do(http.MethodPost, "/api/v1/cluster/tokens", `{"expiresInSeconds": `+seconds+`}`); code != http.StatusBadRequest || !strings.Contains(text, "604800") {
			t.Errorf("%s seconds: %d %s", seconds, code, text)
		}
	}
	if code, text := f.do(http.MethodDelete, "/api/v1/cluster/members/b", ""); code != http.StatusConflict || !strings.Contains(text, "too few") {
		t.Errorf("removed: %d %s", code, text)
	}
	if left, err := f.RemoveMember(t.Context(), "10.0.0.2:9004", true); err != nil || len(left.Members) != 3 {
		t.Errorf("%+v, %v", left, err)
	}
	if _, err := f.DefragmentMembers(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := f.RenewAuthorities(t.Context()); err != nil {
		t.Error(err)
	}
	if want := []string{"token for 1m30s", "token of host4 for 30s", "remove b", "remove 10.0.0.2:9004", "relieve", "renew"}; !slices.Equal(m.calls, want) {
		t.Errorf("called %q, want %q", m.calls, want)
	}
	if strings.Contains(f.log.String(), `T"`) || !strings.Contains(f.log.String(), "token=I") {
		t.Errorf("the log: %s", f.log)
	}
	s, err := f.Status(t.Context())
	if err != nil || len(s.Stores) != 2 || s.Stores[0].Address != "a (10.0.0.1:9004)" || !s.Stores[0].Leads || !slices.ContainsFunc(s.Notices, func(n string) bool { return strings.HasPrefix(n, "two are weaker than one; ") }) {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, want := range []string{"store a (10.0.0.1:9004) has raised an alarm: NOSPACE", "store b (10.0.0.2:9004) does not answer: it is away"} {
		if !slices.ContainsFunc(s.Wrong, func(w string) bool { return strings.HasPrefix(w, want) }) {
			t.Errorf("wrong are %q, not %q", s.Wrong, want)
		}
	}
	beside := serveWith(t, func(c *Config) {
		c.Members = externalMembers{m}
		c.Cluster = spaceless{testCluster: c.Cluster.(testCluster)}
	})
	if s, err := beside.Status(t.Context()); err != nil || len(s.Stores) != 1 || s.Stores[0].Address != "e1" {
		t.Errorf("the servers of an external store are %+v, %v", s.Stores, err)
	}
	none := serve(t, 0)
	for _, route := range []string{"GET /api/v1/cluster/members", "POST /api/v1/cluster/tokens", "DELETE /api/v1/cluster/members/b", "POST /api/v1/cluster/relieve", "POST /api/v1/cluster/authorities/renew"} {
		method, path, _ := strings.Cut(route, " ")
		body := ""
		if method == http.MethodPost {
			body = "{}"
		}
		if code, text := none.do(method, path, body); code != http.StatusConflict || !strings.Contains(text, "external store") {
			t.Errorf("%s without members: %d %s", route, code, text)
		}
	}
}
