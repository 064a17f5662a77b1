package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

// startTimeout bounds how long a daemon may take until it answers; the machine
// may be busy.
const startTimeout = 60 * time.Second

// MasterURL is netmaster's address inside the lab.
func (l *Lab) MasterURL() string {
	return fmt.Sprintf("http://%s:9999", address(control, masterHost).Addr())
}

// MasterAddress is the master's address on the network between the hosts.
func (l *Lab) MasterAddress() netip.Addr { return address(underlay, masterHost).Addr() }

// StoreURL is the address, inside the lab, of its store: an etcd, a process or part
// of netmaster, or a Consul.
func (l *Lab) StoreURL() string {
	port := 2379
	if l.st.Config.Consul != "" {
		port = 8500
	}
	return fmt.Sprintf("http://%s:%d", address(control, masterHost).Addr(), port)
}

// storeFlag is the flag that takes StoreURL.
func (l *Lab) storeFlag() string {
	if l.st.Config.Consul != "" {
		return "--consul-endpoints"
	}
	return "--etcd-endpoints"
}

// HTTP returns a client whose connections start inside the namespace.
func (n *Namespace) HTTP() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: n.Dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: 10 * time.Second}}
}

// get fetches a URL inside a namespace; only 200 is success.
func (n *Namespace) get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	c := n.HTTP()
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, resp.Status, strings.TrimSpace(string(b)))
	}
	return b, err
}

// lateTimers starts a command whose timers may be two milliseconds late, as
// packaging/systemd/etcd.service.d has it for users' etcd.
var lateTimers = []string{"/bin/sh", "-c", `echo 2000000 >/proc/self/timerslack_ns && exec "$@"`, "sh"}

// StartEtcd starts the etcd process in the master's namespace and waits until
// it is healthy. Its data outlives a restart.
func (l *Lab) StartEtcd(ctx context.Context) error {
	dir := filepath.Join(l.st.Config.Dir, "master")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	p, err := l.start(l.Master, "etcd", dir, nil, append(slices.Clone(lateTimers), "/usr/bin/etcd", "--name", "lab",
		"--data-dir", filepath.Join(dir, "etcd"), "--log-level", "warn", "--logger", "zap",
		"--listen-client-urls", "http://127.0.0.1:2379,"+l.StoreURL(), "--advertise-client-urls", l.StoreURL(),
		"--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380",
		"--initial-cluster", "lab=http://127.0.0.1:2380")...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.ready(ctx, "etcd to be healthy", func(ctx context.Context) error {
		b, err := l.Master.get(ctx, "http://127.0.0.1:2379/health")
		if err == nil && !strings.Contains(string(b), `"true"`) {
			err = fmt.Errorf("it says %s", b)
		}
		return err
	})
}

// StartConsul starts the lab's Consul in the master's namespace and waits until it
// has a leader. Its data outlive a restart.
func (l *Lab) StartConsul(ctx context.Context) error {
	dir := filepath.Join(l.st.Config.Dir, "master")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	p, err := l.start(l.Master, "consul", dir, nil, l.st.Config.Consul, "agent", "-server", "-bootstrap", "-node", "lab",
		"-data-dir", filepath.Join(dir, "consul"), "-bind", address(control, masterHost).Addr().String(), "-client", "0.0.0.0",
		"-dns-port", "-1", "-serf-wan-port", "-1", "-disable-host-node-id", "-log-level", "warn")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.ready(ctx, "Consul to have a leader", func(ctx context.Context) error {
		b, err := l.Master.get(ctx, l.StoreURL()+"/v1/status/leader")
		if err == nil && !strings.Contains(string(b), ":") {
			err = fmt.Errorf("it says %s", b)
		}
		return err
	})
}

// StartMaster starts netmaster and waits until it serves the tenants, which
// needs the store.
func (l *Lab) StartMaster(ctx context.Context, env ...string) error {
	p, err := l.LaunchMaster(nil, env...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.ready(ctx, "netmaster to serve its API", func(ctx context.Context) error {
		_, err := l.Master.get(ctx, l.MasterURL()+"/api/v1/tenants/")
		return err
	})
}

// LaunchMaster starts netmaster and does not wait for it; the flags stand behind the
// lab's own and win over them.
func (l *Lab) LaunchMaster(flags []string, env ...string) (*Process, error) {
	dir := filepath.Join(l.st.Config.Dir, "master")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	addr := address(control, masterHost).Addr().String()
	argv := []string{
		filepath.Join(l.st.Config.BinDir, "netmaster"),
		"--external-address", "0.0.0.0:9999", "--internal-address", net.JoinHostPort(addr, "9999"),
	}
	if l.st.Config.Embedded {
		argv = append(argv, "--data-dir", filepath.Join(dir, "data"), "--etcd-listen", net.JoinHostPort(addr, "2379"))
	} else {
		argv = append(argv, l.storeFlag(), l.StoreURL())
	}
	return l.start(l.Master, "netmaster", dir, env, slices.Concat(argv, l.st.Config.MasterArgs, flags)...)
}

// API returns a client of netmaster's REST interface; the caller closes it.
func (l *Lab) API() (*api.Client, error) {
	return api.NewClient(l.MasterURL(), api.WithHTTPClient(l.Master.HTTP()))
}

// Netctl runs netctl in the master's namespace and returns what it prints.
func (l *Lab) Netctl(ctx context.Context, args ...string) (string, error) {
	argv := append([]string{"--netmaster", l.MasterURL()}, args...)
	out, err := l.Master.Command(ctx, filepath.Join(l.st.Config.BinDir, "netctl"), argv...).CombinedOutput()
	return string(out), err
}
