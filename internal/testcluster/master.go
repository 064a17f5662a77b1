package testcluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// Masters runs the netmasters of a lab, and says where they answer.
type Masters struct {
	*core
	processes    *processes
	certificates *certificates
	store        *Store
}

// startTimeout bounds how long a daemon may take until it answers: where many clusters start
// at once, the kernel verifies the eBPF programs of all their hosts at the same time.
const startTimeout = 3 * time.Minute

// replicaAddress is the address on the control network of the n-th netmaster and
// member of the store, counted from 1.
func replicaAddress(n int) netip.Addr { return address(control, masterHost+n-1).Addr() }

// replicaName is what the n-th process of a kind is called, counted from 1.
func replicaName(kind string, n int) string {
	if n == 1 {
		return kind
	}
	return fmt.Sprint(kind, n)
}

// addReplicas gives the master's namespace the replicas' addresses; it runs there.
func (l *Masters) addReplicas() error {
	for n := range max(l.st.Config.Replicas, l.st.Config.Consuls) {
		if err := addAddress("ctl0", netip.PrefixFrom(replicaAddress(n+1), 24)); err != nil {
			return err
		}
	}
	return nil
}

func list(count int, of func(n int) string) string {
	var out []string
	for n := range max(count, 1) {
		out = append(out, of(n+1))
	}
	return strings.Join(out, ",")
}

// MasterURL is the first netmaster's address inside the lab.
func (l *Masters) MasterURL() string { return l.masterURL(1) }

func (l *Masters) masterURL(n int) string {
	return fmt.Sprintf("%s://%s:9999", scheme(l.certificates.restTLS()), replicaAddress(n))
}

// MasterURLs are the addresses of all netmasters, as clients take them.
func (l *Masters) MasterURLs() string { return list(l.st.Config.Replicas, l.masterURL) }

// MasterAddress is the master's address on the network between the hosts.
func (l *Masters) MasterAddress() netip.Addr { return address(underlay, masterHost).Addr() }

// StoreURL is the address, inside the lab, of its store, or of the first member: an
// etcd, a process or part of netmaster, or a Consul.
func (l *Store) StoreURL() string { return l.storeURL(1) }

func (l *Store) storeURL(n int) string {
	port := 2379
	if l.st.Config.Consul != "" {
		port = 8500
	}
	return fmt.Sprintf("%s://%s:%d", scheme(l.certificates.storeTLS()), replicaAddress(n), port)
}

// StoreURLs are the addresses of all members of the store, as flags take them.
func (l *Store) StoreURLs() string {
	return list(max(l.st.Config.Replicas, l.st.Config.Consuls), l.storeURL)
}

// storeFlag is the flag that takes StoreURL.
func (l *Store) storeFlag() string {
	if l.st.Config.Consul != "" {
		return "--consul-endpoints"
	}
	return "--etcd-endpoints"
}

// HTTP returns a client whose connections start inside the namespace.
func (n *Namespace) HTTP() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: n.Dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: 10 * time.Second}}
}

// get fetches a URL inside a namespace, by TLS where a configuration is given; only 200 is
// success.
func (n *Namespace) get(ctx context.Context, url string, cfg *tls.Config) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	c := n.HTTP()
	c.Transport.(*http.Transport).TLSClientConfig = cfg
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

// slackTimers starts a command whose timers may be two milliseconds late, as
// packaging/systemd/etcd.service.d has it for users' etcd.
var slackTimers = []string{"/bin/sh", "-c", `echo 2000000 >/proc/self/timerslack_ns && exec "$@"`, "sh"}

// StartEtcd starts the etcd processes in the master's namespace and waits until
// they are healthy. Their data outlive a restart.
func (l *Store) StartEtcd(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for n := range l.st.Config.Replicas {
		g.Go(func() error { return l.StartMember(ctx, n+1) })
	}
	return g.Wait()
}

// StartMember starts the n-th etcd, counted from 1, and waits until it is healthy,
// which needs most of the others.
func (l *Store) StartMember(ctx context.Context, n int) error {
	dir := filepath.Join(l.st.Config.Dir, "master")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	local := scheme(l.certificates.storeTLS()) + "://127.0.0.1:2379"
	cfg, err := l.certificates.storeAdmin()
	if err != nil {
		return err
	}
	peer := func(n int) string { return fmt.Sprintf("http://%s:2380", replicaAddress(n)) }
	name, client, ask := replicaName("lab", n), l.storeURL(n), l.storeURL(n)
	if l.st.Config.Replicas == 1 {
		peer = func(int) string { return "http://127.0.0.1:2380" }
		client, ask = local+","+client, local
	}
	p, err := l.processes.start(l.Master, replicaName("etcd", n), dir, nil, slices.Concat(slackTimers, []string{
		"/usr/bin/etcd", "--name", name,
		"--data-dir", filepath.Join(dir, replicaName("etcd", n)), "--log-level", "warn", "--logger", "zap",
		"--listen-client-urls", client, "--advertise-client-urls", l.storeURL(n),
		"--listen-peer-urls", peer(n), "--initial-advertise-peer-urls", peer(n),
		"--initial-cluster", list(l.st.Config.Replicas, func(n int) string { return replicaName("lab", n) + "=" + peer(n) }),
	}, l.certificates.etcdTLS(n))...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.ready(ctx, "etcd to be healthy", func(ctx context.Context) error {
		b, err := l.Master.get(ctx, ask+"/health", cfg)
		if err == nil && !strings.Contains(string(b), `"true"`) {
			err = fmt.Errorf("it says %s", b)
		}
		return err
	})
}

// StartMaster starts the netmasters and waits until they serve the tenants, which
// needs the store.
func (l *Masters) StartMaster(ctx context.Context, env ...string) error {
	if _, err := os.Stat(l.st.dataDir(1)); l.st.Config.Embedded && errors.Is(err, fs.ErrNotExist) {
		return l.beginMembers(ctx, env...)
	}
	g, ctx := errgroup.WithContext(ctx)
	for n := range l.st.Config.Replicas {
		g.Go(func() error { return l.StartReplica(ctx, n+1, env...) })
	}
	return g.Wait()
}

func (st *state) dataDir(n int) string {
	return filepath.Join(st.Config.Dir, "master", replicaName("data", n))
}

// beginMembers starts a first netmaster that keeps the store itself, and has the others join.
func (l *Masters) beginMembers(ctx context.Context, env ...string) error {
	if err := l.StartReplica(ctx, 1, env...); err != nil {
		return err
	}
	for n := 2; n <= l.st.Config.Replicas; n++ {
		token, err := l.NetctlAt(ctx, l.masterURL(1), "cluster", "token", "-q")
		if err != nil {
			return fmt.Errorf("a token for %s: %w: %s", replicaName("netmaster", n), err, token)
		}
		flags := []string{"--join", l.joinAddress(), "--token", strings.TrimSpace(token), "--member-name", replicaName("netmaster", n)}
		if err := l.startReplica(ctx, n, flags, env...); err != nil {
			return err
		}
	}
	return nil
}

// StartReplica starts the n-th netmaster, counted from 1, and waits until it serves.
func (l *Masters) StartReplica(ctx context.Context, n int, env ...string) error {
	return l.startReplica(ctx, n, nil, env...)
}

func (l *Masters) startReplica(ctx context.Context, n int, flags []string, env ...string) error {
	p, err := l.LaunchReplica(n, flags, env...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.ready(ctx, "netmaster to serve its API", func(ctx context.Context) error {
		if err := l.certificates.issueAdmin(ctx); err != nil {
			return err
		}
		out, err := l.NetctlAt(ctx, l.masterURL(n), "tenant", "ls", "--quiet")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
}

// LaunchMaster is LaunchReplica of the first netmaster.
func (l *Masters) LaunchMaster(flags []string, env ...string) (*Process, error) {
	return l.LaunchReplica(1, flags, env...)
}

// LaunchReplica starts the n-th netmaster, counted from 1, and does not wait for it; the
// flags stand behind the lab's own and win over them.
func (l *Masters) LaunchReplica(n int, flags []string, env ...string) (*Process, error) {
	dir := filepath.Join(l.st.Config.Dir, "master")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	addr := replicaAddress(n).String()
	everywhere := "0.0.0.0"
	if l.st.Config.Replicas > 1 { // the others are in the same namespace
		everywhere = addr
	}
	argv := []string{
		filepath.Join(l.st.Config.BinDir, "netmaster"),
		"--external-address", net.JoinHostPort(everywhere, "9999"), "--internal-address", net.JoinHostPort(addr, "9999"),
	}
	if l.st.Config.Embedded {
		argv = append(argv, "--data-dir", l.st.dataDir(n), "--etcd-listen", net.JoinHostPort(addr, "2379"))
	} else {
		argv = append(argv, l.store.storeFlag(), l.store.StoreURLs())
		if l.st.Config.Secure { // where the authority is
			argv = append(argv, "--data-dir", l.st.dataDir(n))
		}
	}
	env = append([]string{"CONTIV_NETMASTER_CONFIG=none"}, env...)
	return l.processes.start(l.Master, replicaName("netmaster", n), dir, env, slices.Concat(argv, l.certificates.masterTLS(n), l.store.storeToken("netmaster"), l.st.Config.MasterArgs, flags)...)
}

// API returns a client of netmaster's REST interface; the caller closes it.
func (l *Masters) API() (*api.Client, error) {
	cfg, err := l.certificates.admin(pki.Netmaster)
	if err != nil {
		return nil, err
	}
	c := l.Master.HTTP()
	c.Transport.(*http.Transport).TLSClientConfig = cfg
	return api.NewClient(l.MasterURLs(), api.WithHTTPClient(c))
}

// Netctl runs netctl in the master's namespace and returns what it prints.
func (l *Masters) Netctl(ctx context.Context, args ...string) (string, error) {
	return l.NetctlAt(ctx, l.MasterURLs(), args...)
}

// NetctlAt is Netctl that asks certain netmasters.
func (l *Masters) NetctlAt(ctx context.Context, urls string, args ...string) (string, error) {
	argv := append([]string{"--netmaster", urls}, args...)
	if l.certificates.restTLS() {
		argv = append([]string{"--tls-dir", l.certificates.adminDir()}, argv...)
	}
	out, err := l.Master.Command(ctx, filepath.Join(l.st.Config.BinDir, "netctl"), argv...).CombinedOutput()
	return string(out), err
}
