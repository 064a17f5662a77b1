package main

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// TestHostJoinsASecureClusterOnceByItsToken: a netmaster with only --secure refuses clients without credentials.
// Its first administrator's token makes a join token for a host. That host's netplugin
// joins with it, attaches a container, and starts again without the token. The token works
// once, and the certificate works under no other name.
func TestHostJoinsASecureClusterOnceByItsToken(t *testing.T) {
	testenv.Need(t)
	c := noCluster(t)
	dir := c.dir
	data := filepath.Join(dir, "etcd")
	c.spawn("netmaster", nil, "--secure", "--data-dir", data, "--external-address", "127.0.0.1:9999", "--internal-address", "127.0.0.1:9999")
	admin := filepath.Join(data, "admin-token")
	c.eventually("the first administrator has a token", func() error {
		s, err := os.Stat(admin)
		if err == nil && s.Mode().Perm() != 0o600 {
			t.Errorf("the token's file is %v", s.Mode())
		}
		return err
	})
	secret, err := os.ReadFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	roots, err := os.ReadFile(filepath.Join(data, "join", "clients", "issued", "netmaster", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	trust, err := transport.Authorities(roots)
	if err != nil {
		t.Fatal(err)
	}
	client := func(url string, opts ...api.Option) *api.Client {
		x, err := api.NewClient(url, append(opts, api.WithTimeout(time.Minute))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.Close)
		return x
	}
	c.client = client("https://127.0.0.1:9999", api.WithTLS(trust), api.WithToken(func() string { return strings.TrimSpace(string(secret)) }))
	c.eventually("netmaster is ready", func() error { return c.client.Do(t.Context(), http.MethodGet, "/readyz", nil, nil) })
	own, err := transport.OpenDirectory(membership.AdminDir(data)) // what netctl in netmaster's pod shows
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client("https://127.0.0.1:9999", api.WithTLS(own.Config().APIClient)).CreateToken(t.Context(), api.TokenRequest{Name: "x", Role: "viewer", Life: 60}); err != nil {
		t.Errorf("who administers netmaster's host: %v", err)
	}
	if k, err := c.client.NewJoinToken(t.Context(), api.JoinTokenRequest{}); err != nil || !k.Secure {
		t.Errorf("the token of a netmaster that has to have --secure too: %+v, %v", k, err)
	}
	for what, x := range map[string]*api.Client{"plain": client("http://127.0.0.1:9999"), "without a token": client("https://127.0.0.1:9999", api.WithTLS(trust))} {
		if _, err := x.Tenants().List(t.Context()); err == nil || errors.Is(err, t.Context().Err()) {
			t.Errorf("a request is answered that is %s: %v", what, err)
		}
	}
	for _, path := range []string{"http", "https"} { // the store's own port
		if resp, err := transport.OwnClient(trust, "", time.Minute).Get(path + "://127.0.0.1:2379/version"); err == nil { //nolint:noctx // it has a time limit
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				t.Errorf("the store answers who shows no certificate, by %s", path)
			}
		}
	}
	probe := func(url string) (status int, body string) { // as a kubelet does
		t.Helper()
		k := &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // kubelets verify nothing
		defer k.CloseIdleConnections()
		resp, err := k.Get(url) //nolint:noctx // it has a time limit
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(text)
	}
	for path, want := range map[string]int{"healthz": 200, "readyz": 200, "api/v1/status": 401} {
		if status, body := probe("https://127.0.0.1:9999/" + path); status != want {
			t.Errorf("who shows nothing asks netmaster for %s: %d %s", path, status, body)
		}
	}
	c.must("POST", "/api/v1/tenants/blue/", api.Tenant{TenantName: "blue"})
	c.must("POST", "/api/v1/networks/blue:net1/", api.Network{
		TenantName: "blue", NetworkName: "net1", NwType: "data", Encap: "vxlan", Subnet: "10.1.1.0/24", Gateway: "10.1.1.254",
	})
	token, err := c.client.NewJoinToken(t.Context(), api.JoinTokenRequest{Host: "n-host1"})
	if err != nil {
		t.Fatal(err)
	}
	env := []string{envPrefix + "JOIN=" + token.Addresses[0], envPrefix + "TOKEN=" + token.Token}
	ns := newNetns(t)
	for _, more := range [][]string{env, nil} {
		c.startPlugin(more...)
		if code, out := c.cni("ADD", "c1", ns); code != 0 {
			t.Fatalf("ADD: %d %s", code, out)
		}
		if code, out := c.cni("DEL", "c1", ns); code != 0 {
			t.Fatalf("DEL: %d %s", code, out)
		}
		for path, want := range map[string]int{"livez": 200, "readyz": 200, "debug/state": 401} {
			if status, body := probe("https://127.0.0.1:9006/" + path); status != want {
				t.Errorf("who shows nothing asks netplugin for %s: %d %s", path, status, body)
			}
		}
		c.plugin.stop()
	}
	for name, tt := range map[string]struct {
		host string
		env  []string
		want string
	}{
		"s2":    {"n-host1", env, "was used on"}, // a token works once
		"state": {"other", nil, "'netctl cluster token --host other'"},
	} {
		again := c.spawn("netplugin", tt.env, "--driver", "fake", "--host", tt.host, "--ctrl-ip", "127.0.0.1", "--state-dir", filepath.Join(dir, name), "--cni-socket", filepath.Join(dir, name+".sock"), "--rest-address", "none")
		select {
		case <-again.done:
		case <-time.After(time.Minute):
			t.Fatalf("host %s with directory %s runs:\n%s", tt.host, name, again.log)
		}
		if text := again.log.String(); again.cmd.ProcessState.ExitCode() == 0 || !strings.Contains(text, tt.want) {
			t.Errorf("host %s with directory %s: %s", tt.host, name, text)
		}
	}
}

// TestContradictionsOfJoinAreRefused: what contradicts --join is refused at once.
func TestContradictionsOfJoinAreRefused(t *testing.T) {
	for line, part := range map[string]string{
		"--join 127.0.0.1:9005":                                                 "needs a token",
		"--join 127.0.0.1:9005 --token x --tls-dir /x":                          "omit one",
		"--join 127.0.0.1:9005 --token x --store-tls-dir /x":                    "omit one",
		"--join 127.0.0.1:9005 --token x --consul-endpoints http://127.0.0.1:1": "a Consul is named",
		"--join 127.0.0.1:9005 --token x":                                       "join token is invalid",
		"--join 127.0.0.1":                                                      "--join",
	} {
		var o options
		fs := newFlags(&o)
		err := fs.ParseAll(append([]string{"--host", "host1", "--ctrl-ip", "127.0.0.1", "--state-dir", t.TempDir()}, strings.Fields(line)...), noEnv)
		if err == nil {
			err = o.finish(t.Context(), fs)
		}
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v; want %q", line, err, part)
		}
	}
}

// TestHostFollowsTheNetmastersOfItsCluster: a host that finds netmasters where it joined follows them, and one that was told
// where they are keeps to that.
func TestHostFollowsTheNetmastersOfItsCluster(t *testing.T) {
	for _, tc := range []struct {
		finds bool
		doors []string
		want  string
	}{
		{true, []string{"10.0.0.2:9005", "[fd00::3]:9005"}, "https://10.0.0.2:9999 https://[fd00::3]:9999"},
		{false, []string{"10.0.0.2:9005"}, ""},
		{true, []string{"rubbish"}, ""}, // a client without a server would be none
	} {
		var got []string
		(&joining{discovers: tc.finds}).follow(func(urls []string) { got = urls })(tc.doors)
		if got := strings.Join(got, " "); got != tc.want {
			t.Errorf("%v %q: it asks at %q, want %q", tc.finds, tc.doors, got, tc.want)
		}
	}
}
