package netctl

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// TestChangesWaitUntilTheyAreConfirmed: with --confirm-within settings and lists wait, and are as they were
// until they are confirmed; what was taken back is not made.
func TestChangesWaitUntilTheyAreConfirmed(t *testing.T) {
	url := startNetmaster(t)
	ok := func(words ...string) string {
		t.Helper()
		r := netctl(t, url, words...)
		if r.code != 0 {
			t.Fatalf("netctl %s: code %d, %s", strings.Join(words, " "), r.code, r.errOut)
		}
		return r.out
	}
	mode := func() (g api.Global) {
		t.Helper()
		if err := json.Unmarshal([]byte(ok("global", "info", "--json")), &g); err != nil {
			t.Fatal(err)
		}
		return g
	}
	waiting := func() (all []api.PendingChange) {
		t.Helper()
		if err := json.Unmarshal([]byte(ok("pending", "--json")), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	said := ok("global", "set", "--fwd-mode", "routing", "--confirm-within", "1h")
	all := waiting()
	if len(all) != 1 || all[0].Within != 3600 || all[0].Left < 1 || len(all[0].Objects) != 1 || all[0].Objects[0] != (api.PendingObject{Kind: "global", Key: "global"}) {
		t.Fatalf("%+v waits", all)
	}
	if !strings.Contains(said, "netctl confirm "+all[0].ID) {
		t.Errorf("it says %q", said)
	}
	if r := netctl(t, url, "global", "set", "--arp-mode", "flood"); r.code == 0 || !strings.Contains(r.errOut, all[0].ID) {
		t.Errorf("another change: code %d, %q", r.code, r.errOut)
	}
	if m := mode().FwdMode; m != "bridge" {
		t.Errorf("the mode is %q while it waits", m)
	}
	ok("confirm", all[0].ID)
	if m := mode().FwdMode; m != "routing" {
		t.Errorf("the mode is %q when it is confirmed", m)
	}

	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("kind: policy\ntenantName: default\npolicyName: p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(ok("apply", "-f", file, "--confirm-within", "1h", "--quiet"))
	if table := ok("pending"); !strings.Contains(table, id) || !strings.Contains(table, "policy default:p") {
		t.Errorf("what waits is shown as %q", table)
	}
	ok("revert", id)
	ok("policy", "create", "q")
	ok("policy", "create", "r")
	ok("network", "create", "-s", "10.1.0.0/24", "n")
	ok("group", "create", "n", "g")
	id = strings.TrimSpace(ok("policy", "rule-add", "-d", "in", "--action", "deny", "--confirm-within", "1h", "--quiet", "q", "1"))
	if all := waiting(); len(all) != 1 || all[0].Objects[0] != (api.PendingObject{Kind: "rule", Key: "default:q:1"}) {
		t.Fatalf("%+v waits", all)
	}
	for _, other := range []string{"policy rule-add -d in --action allow q 2", "policy rm q"} {
		if r := netctl(t, url, strings.Fields(other)...); r.code != ExitConflict || !strings.Contains(r.errOut, id) {
			t.Errorf("%s: code %d, %q", other, r.code, r.errOut)
		}
	}
	ok("confirm", id)
	id = strings.TrimSpace(ok("group", "create", "-p", "q", "--confirm-within", "1h", "--quiet", "n", "g"))
	for _, other := range []string{"group create -p r n g", "group rm g"} {
		if r := netctl(t, url, strings.Fields(other)...); r.code != ExitConflict || !strings.Contains(r.errOut, id) {
			t.Errorf("%s: code %d, %q", other, r.code, r.errOut)
		}
	}
	ok("confirm", id)
	if out := ok("group", "ls"); !strings.Contains(out, "q") || !strings.Contains(ok("policy", "rule-ls", "q"), "deny") {
		t.Errorf("confirmed: %s", out)
	}
	if r := netctl(t, url, "policy", "inspect", "p"); r.code != ExitNotFound || len(waiting()) != 0 {
		t.Errorf("taken back: code %d, %q, %+v waits", r.code, r.out, waiting())
	}
}

// A refusal says what is wrong: that a netmaster is too old only where it has no such
// request, and times that would be told in other words than they are meant.
func TestConfirmWithinRefusalsSayWhy(t *testing.T) {
	url := startNetmaster(t)
	r := netctl(t, url, "policy", "rule-add", "-d", "in", "--action", "deny", "--confirm-within", "60s", "nosuch", "1")
	if r.code != ExitNotFound || !strings.Contains(r.errOut, "nosuch") || strings.Contains(r.errOut, "earlier") {
		t.Errorf("a policy that is not there: code %d, %q", r.code, r.errOut)
	}
	r = netctl(t, url, "global", "set", "--fwd-mode", "routing", "--confirm-within", "10s500ms")
	if r.code == 0 || !strings.Contains(r.errOut, "must be whole seconds") {
		t.Errorf("half a second: code %d, %q %q", r.code, r.out, r.errOut)
	}
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"noRoute","message":"no such path"}`))
	}))
	defer old.Close()
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("kind: policy\ntenantName: default\npolicyName: p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = netctl(t, old.URL, "apply", "-f", file, "--confirm-within", "60s")
	if r.code == 0 || !strings.Contains(r.errOut, "earlier netmaster") {
		t.Errorf("an earlier netmaster: code %d, %q", r.code, r.errOut)
	}
}
