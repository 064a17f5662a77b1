package netctl

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
)

// TestClusterCommandsShowMembersAndTokens: what a person sees of members, what a removal and a token ask for, and
// that warnings follow.
func TestClusterCommandsShowMembersAndTokens(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked = append(asked, r.Method+" "+r.RequestURI+" "+string(body))
		var answer any = api.Members{
			Members: []api.Member{
				{Name: "host1", ID: "8e9e", Role: "voter", Address: "10.0.0.1:9004", Leads: true, Size: 3 << 20, InUse: 1 << 20},
				{Name: "host2", ID: "9f", Role: "voter", Address: "10.0.0.2:9004", Error: "it is away"},
				{Name: "host3", ID: "a0", Role: "learner", Address: "10.0.0.3:9004", Full: true},
			},
			Warnings: []string{"host2: no answer"},
		}
		if r.Method == http.MethodPost && r.URL.Path == "/api/v1/cluster/tokens" {
			q := api.JoinTokenRequest{}
			if err := json.Unmarshal(body, &q); err != nil {
				t.Error(err)
			}
			if q.Host == "old" { // the netmaster is, and knows of no hosts
				q.Host = ""
			}
			answer = api.JoinToken{Token: "contiv1.x", ID: "ID", Addresses: []string{"10.0.0.1:9005", "10.0.0.2:9005"}, Expires: "2026-11-27T03:00:00Z", Host: q.Host, Secure: q.ExpiresInSeconds == 60}
		}
		if name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/hosts/"); ok {
			answer = api.Host{Name: name, State: map[bool]string{true: api.HostAlive, false: api.HostAway}[name == "host1"], Control: "10.0.0.11"}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	const table = `Name   Role     Address        ID    In use, MiB  State
----   ----     -------        --    -----------  -----
host1  leader   10.0.0.1:9004  8e9e  1.0 of 3.0   answers
host2  voter    10.0.0.2:9004  9f    0.0 of 0.0   it is away
host3  learner  10.0.0.3:9004  a0    0.0 of 0.0   full
Warning: host2: no answer
`
	const whose = "\nADDRESS is that host's own, by which netmasters and hosts reach it.\n"
	for _, tt := range []struct {
		args []string
		asks string
		out  string
	}{
		{[]string{"members"}, "GET /api/v1/cluster/members ", table},
		{[]string{"members", "-q"}, "GET /api/v1/cluster/members ", "host1\nhost2\nhost3\n"},
		{[]string{"relieve"}, "POST /api/v1/cluster/relieve {}", table},
		{[]string{"renew-authorities"}, "POST /api/v1/cluster/authorities/renew {}", table},
		{[]string{"token"}, "POST /api/v1/cluster/tokens {}", "On the host that is to join, once, before 2026-11-27T03:00:00Z:\n\n  netmaster --internal-address ADDRESS:9999 --etcd-listen ADDRESS:2379 --join 10.0.0.1:9005,10.0.0.2:9005 --token contiv1.x\n" + whose},
		{[]string{"token", "--host", "host4"}, `POST /api/v1/cluster/tokens {"host":"host4"}; GET /api/v1/hosts/host4 `, "On host host4, once, before 2026-11-27T03:00:00Z, with the packages\n\n  netctl install --token contiv1.x\n\nor without them\n\n  netplugin --host host4 --ctrl-ip ADDRESS --join 10.0.0.1:9005,10.0.0.2:9005 --token contiv1.x\n" + whose},
		{[]string{"token", "--host", "host1"}, `POST /api/v1/cluster/tokens {"host":"host1"}; GET /api/v1/hosts/host1 `, "On host host1, once, before 2026-11-27T03:00:00Z, with the packages\n\n  netctl install --token contiv1.x\n\nor without them\n\n  netplugin --host host1 --ctrl-ip ADDRESS --join 10.0.0.1:9005,10.0.0.2:9005 --token contiv1.x\n" + whose + "\nA host of that name is alive, at 10.0.0.11. If another host joins with the token, the certificate of host1 can no longer be renewed, and the other host is refused its name: give each host its own name.\n"},
		{[]string{"token", "--host", "host1", "-q"}, `POST /api/v1/cluster/tokens {"host":"host1"}`, "contiv1.x\n"},
		{[]string{"token", "--expires", "1m"}, `POST /api/v1/cluster/tokens {"expiresInSeconds":60}`, "On the host that is to join, once, before 2026-11-27T03:00:00Z:\n\n  netmaster --internal-address ADDRESS:9999 --secure --join 10.0.0.1:9005,10.0.0.2:9005 --token contiv1.x\n" + whose},
		{[]string{"token", "--expires", "10m", "-q"}, `POST /api/v1/cluster/tokens {"expiresInSeconds":600}`, "contiv1.x\n"},
		{[]string{"remove", "host2"}, "DELETE /api/v1/cluster/members/host2 ", "Removed member host2\nWarning: host2: no answer\n"},
		{[]string{"remove", "--force", "10.0.0.2:9004"}, "DELETE /api/v1/cluster/members/10.0.0.2:9004?force=true ", "Removed member 10.0.0.2:9004\nWarning: host2: no answer\n"},
	} {
		asked = nil
		r := netctl(t, srv.URL, append([]string{"cluster"}, tt.args...)...)
		if r.code != 0 || r.errOut != "" || r.out != tt.out {
			t.Errorf("%v: exit code %d, %s (-want +got):\n%s", tt.args, r.code, r.errOut, cmp.Diff(tt.out, r.out))
		}
		if diff := cmp.Diff(tt.asks, strings.Join(asked, "; ")); diff != "" {
			t.Errorf("%v asks (-want +got):\n%s", tt.args, diff)
		}
	}
	if r := netctl(t, srv.URL, "cluster", "token", "--host", "old", "-q"); r.code == 0 || r.out != "" || !strings.Contains(r.errOut, "upgrade it") {
		t.Errorf("a netmaster that knows of no hosts: exit code %d, %s %s", r.code, r.out, r.errOut)
	}
	asked = nil
	if r := netctl(t, srv.URL, "cluster", "token", "--host", ""); r.code != 2 || !strings.Contains(r.errOut, "flag --host needs a value") || len(asked) > 0 {
		t.Errorf("a host's token for a name that is empty: exit code %d, %s, asked %v", r.code, r.errOut, asked)
	}
	var got api.Members
	if r := netctl(t, srv.URL, "cluster", "members", "--json"); json.Unmarshal([]byte(r.out), &got) != nil || len(got.Members) != 3 || len(got.Warnings) != 1 {
		t.Errorf("--json: %s", r.out)
	}
}
