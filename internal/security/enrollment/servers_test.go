package enrollment

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// TestHostsLearnOfLaterNetmasters: a host that joined when there was one netmaster learns of the next one, once,
// and keeps it. Clients without a certificate learn nothing.
func TestHostsLearnOfLaterNetmasters(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m := member(t)
	dir := filepath.Join(t.TempDir(), "tls")
	if err := Join(ctx, Config{Dir: dir, Name: "host1", Token: token(t, m, "host1", 0)}); err != nil {
		t.Fatal(err)
	}
	first, err := Servers(dir)
	if err != nil {
		t.Fatal(err)
	}
	var told [][]string
	now := time.Now()
	k := &renewer{dir: dir, log: slog.New(slog.DiscardHandler), now: func() time.Time { return now }, moved: func(doors []string) { told = append(told, doors) }}
	if k.refreshServers(ctx); len(told) != 0 || len(first) != 1 {
		t.Fatalf("there is one netmaster, %q, and the host is told of %q", first, told)
	}

	text, _, err := m.Enrolment.NewToken(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	second := storetest.FreePort(t)
	started(ctx, t, membership.Config{EnrollmentAddress: second, Name: "second", Token: text})
	if k.refreshServers(ctx); len(told) != 0 {
		t.Errorf("it asks again at once: %q", told)
	}
	want := append(slices.Clone(first), second)
	// The enrollment servers that are kept are of members that vote: it becomes one soon.
	for i := 1; len(told) == 0; i++ {
		now = now.Add(serversInterval)
		if k.refreshServers(ctx); ctx.Err() != nil {
			t.Fatal("the host never hears of the second netmaster")
		}
	}
	now = now.Add(serversInterval)
	k.refreshServers(ctx)
	kept, err := Servers(dir)
	if err != nil || len(told) != 1 || !sameServers(told[0], want) || !sameServers(kept, want) {
		t.Errorf("the host is told %q and keeps %q (%v), want %q once", told, kept, err, want)
	}
	// An enrollment server that does not answer is passed over, wherever it stands.
	s, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	gone := storetest.FreePort(t)
	s.Servers = []string{gone, second}
	writeState(t, dir, s)
	if doors, moved, err := RefreshServers(ctx, dir, nil, nil); err != nil || !moved || !sameServers(doors, want) {
		t.Errorf("beside a door that does not answer: %q, moved %v, %v", doors, moved, err)
	}
	s.Servers = []string{gone}
	writeState(t, dir, s)
	_, moved, err := RefreshServers(ctx, dir, nil, nil)
	refused(t, "where nobody answers", err, gone)
	if kept, _ := Servers(dir); moved || !slices.Equal(kept, s.Servers) {
		t.Errorf("where nobody answers: moved %v, kept %q", moved, kept)
	}
	// All that the directory knows were replaced. The host finds the present ones by what it
	// is given, or by netmasters of its registry, and keeps them.
	_, port, err := net.SplitHostPort(second)
	if err != nil {
		t.Fatal(err)
	}
	for what, found := range map[string]struct {
		known      string
		given      []string
		netmasters []string
	}{
		"given":                {gone, []string{second}, nil},
		"a known netmaster":    {"127.0.0.9:" + port, nil, []string{"https://127.0.0.1:9999"}},
		"both, and no present": {gone, []string{gone, "127.0.0.9:" + port}, []string{"https://127.0.0.9:9999", "https://127.0.0.1:9999"}},
	} {
		s.Servers = []string{found.known}
		writeState(t, dir, s)
		if doors, moved, err := RefreshServers(ctx, dir, found.given, found.netmasters); err != nil || !moved || !sameServers(doors, want) {
			t.Errorf("%s: %q, moved %v, %v", what, doors, moved, err)
		}
		if kept, err := Servers(dir); err != nil || !sameServers(kept, want) {
			t.Errorf("%s: it keeps %q, %v", what, kept, err)
		}
	}

	c := transport.OwnClient(jointoken.Pinned(s.Members), "", time.Minute)
	defer c.CloseIdleConnections()
	refused(t, "without a certificate", jointoken.Call(ctx, c, "GET", "https://"+first[0]+jointoken.ServersPath, nil, new(any)), "only hosts with a certificate")
}

func writeState(t *testing.T, dir string, s state) {
	t.Helper()
	b, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, stateFile), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
