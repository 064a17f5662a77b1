package testcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Store runs the etcd or Consul of a lab, and says where it answers.
type Store struct {
	*core
	processes    *processes
	certificates *certificates
}

// consulRoot is the token that may everything in a lab's Consul with access control.
const consulRoot = "11111111-2222-3333-4444-555555555555"

// consulRules are what docs/how-to/consul.md gives netmaster and hosts.
var consulRules = map[string]string{
	"netmaster": `key_prefix "contiv.io/" { policy = "write" } key_prefix "contiv.io.consul/" { policy = "write" } agent_prefix "" { policy = "read" }`,
	"host": `key_prefix "contiv.io/oper/" { policy = "read" } key_prefix "contiv.io/service/" { policy = "read" } key_prefix "contiv.io/state/" { policy = "read" }
		key_prefix "contiv.io.consul/journal/" { policy = "read" } agent_prefix "" { policy = "read" }`,
}

// StartConsul starts the lab's Consul, or all of its servers, in the master's namespace and
// waits until there is a leader. Its data outlive a restart.
func (l *Store) StartConsul(ctx context.Context) error {
	g, all := errgroup.WithContext(ctx)
	for n := range max(1, l.st.Config.Consuls) {
		g.Go(func() error { return l.StartConsulServer(all, n+1) })
	}
	if err := g.Wait(); err != nil || !l.st.Config.ConsulACL {
		return err
	}
	return l.giveConsulTokens(ctx)
}

// StartConsulServer starts the n-th server, counted from 1, and waits until it knows a leader.
func (l *Store) StartConsulServer(ctx context.Context, n int) error {
	dir := filepath.Join(l.st.Config.Dir, "master")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	servers, name := max(1, l.st.Config.Consuls), replicaName("consul", n)
	argv := []string{
		l.st.Config.Consul, "agent", "-server", "-node", replicaName("lab", n), fmt.Sprint("-bootstrap-expect=", servers),
		"-data-dir", filepath.Join(dir, name), "-bind", replicaAddress(n).String(), "-client", "0.0.0.0",
		"-dns-port", "-1", "-serf-wan-port", "-1", "-disable-host-node-id", "-log-level", "warn",
	}
	if servers > 1 {
		argv = append(argv, "-client", replicaAddress(n).String(), "-retry-interval", "1s")
		for other := range servers {
			argv = append(argv, "-retry-join", replicaAddress(other+1).String())
		}
	}
	if l.st.Config.ConsulACL {
		argv = append(argv, "-hcl", `acl { enabled = true default_policy = "deny" tokens { master = "`+consulRoot+`" } }`)
	}
	p, err := l.processes.start(l.Master, name, dir, nil, argv...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.ready(ctx, "Consul to have a leader", func(ctx context.Context) error {
		b, err := l.Master.get(ctx, l.storeURL(n)+"/v1/status/leader", nil)
		if err == nil && !strings.Contains(string(b), ":") {
			err = fmt.Errorf("it says %s", b)
		}
		return err
	})
}

// giveConsulTokens makes the tokens of netmaster and hosts.
func (l *Store) giveConsulTokens(ctx context.Context) error {
	for name, rules := range consulRules {
		if _, err := os.Stat(l.storeTokenFile(name)); err == nil {
			continue // of a start before
		}
		var token struct{ SecretID string }
		err := l.Process("consul").ready(ctx, "Consul's access control", func(ctx context.Context) error {
			return l.putConsul(ctx, "/v1/acl/token", map[string]any{"Policies": []any{map[string]any{"Name": "contiv-" + name}}}, &token,
				func() error {
					return l.putConsul(ctx, "/v1/acl/policy", map[string]any{"Name": "contiv-" + name, "Rules": rules}, nil, nil)
				})
		})
		if err != nil {
			return err
		}
		if err := os.WriteFile(l.storeTokenFile(name), []byte(token.SecretID+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// putConsul asks Consul as its root; what has to be there first is made when it is refused.
func (l *Store) putConsul(ctx context.Context, path string, body, answer any, first func() error) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, l.StoreURL()+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("X-Consul-Token", consulRoot)
	client := l.Master.HTTP()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		if first != nil {
			err = first()
		}
		return fmt.Errorf("PUT %s: %s: %s %w", path, resp.Status, out, err)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(out, answer)
}

func (l *Store) storeTokenFile(of string) string {
	return filepath.Join(l.st.Config.Dir, "consul-"+of+".token")
}

// storeToken are the flags by which a netmaster or a host shows its token to the store.
func (l *Store) storeToken(of string) []string {
	if !l.st.Config.ConsulACL {
		return nil
	}
	return []string{"--consul-token-file", l.storeTokenFile(of)}
}
