//go:build integration

package matrix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// consulEnv names the Consul that rows run on.
const consulEnv = "CONTIV_CONSUL"

// config is the lab that a row asks for.
func (r Row) config(bin string) testcluster.Config {
	cfg := testcluster.Config{
		Name: "m" + r.ID(), BinDir: bin, Hosts: 2, Driver: r[dimDriver], Environment: testcluster.Environment(r[dimEnvironment]),
		AgentArgs: []string{"--rest-address", "0.0.0.0:9006"}, // Prometheus scrapes it
	}
	if r[dimEnvironment] == plainEnvironment {
		cfg.Environment = testcluster.Plain
	}
	switch r[dimStore] {
	case Embedded1:
		cfg.Embedded = true
	case Embedded3:
		cfg.Embedded, cfg.Replicas = true, 3
	case EtcdTLS:
		cfg.TLS = testcluster.TLSStore
	case ConsulACL:
		cfg.Consul, cfg.ConsulACL = os.Getenv(consulEnv), true
	case Consul3:
		cfg.Consul, cfg.Consuls = os.Getenv(consulEnv), 3
	}
	switch r[dimSecurity] {
	case Secure:
		cfg.Secure = true
	case OwnPKI:
		cfg.TLS = testcluster.TLSOwn
	}
	return cfg
}

// scenario is what happens on each row's cluster; it returns what went wrong first.
func (b *bed) scenario(ctx context.Context) error {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"attaching", b.attachAll},
		{"turning secure", b.turn},
		{"names", b.names},
		{"a service", b.serviceStep},
		{"a published port and egress", b.outside},
		{"restarts", b.restarts},
		{"a change of labels", b.labelChange},
		{"a cut cable", b.cutCable},
		{"a change of the MTU", b.mtuChange},
		{"a move", b.underTraffic(b.move)},
		{"a change of policy", b.underTraffic(b.change)},
		{"a comparison of all hosts with the store", func(ctx context.Context) error { return b.netctl(ctx, "verify") }},
		{"detaching", b.detachAll},
	}
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := b.ask(ctx, b.between()); err != nil {
			return fmt.Errorf("after %s: %w", s.name, err)
		}
		if err := b.agrees(ctx, s.name); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) attachAll(ctx context.Context) error {
	if err := b.intent(ctx); err != nil {
		return err
	}
	if err := b.run.prepare(ctx); err != nil {
		return err
	}
	for _, w := range []struct{ name, group, host string }{
		{"c1", clients, "h1"}, {"c2", clients, "h2"}, {"s1", servers, "h1"}, {"s2", servers, "h2"}, {"o1", others, "h1"}, {"o2", others, "h2"},
	} {
		port := 0
		if w.name == "c1" && b.run.publishes() {
			port = 18080
		}
		if err := b.add(ctx, w.name, w.group, w.host, port); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) turn(ctx context.Context) error {
	if b.row[dimSecurity] != Turned {
		return nil
	}
	return b.traffic(ctx, func(ctx context.Context) error {
		return errors.Join(b.Masters.TurnSecure(ctx, b.run.restart), b.Prometheus.StartPrometheus(b.rules))
	})
}

func (b *bed) names(ctx context.Context) error {
	if b.row[dimFamily] == IPv6 { // questions by IPv4 alone are answered on both data planes
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	names := []string{servers}
	if b.run.named() {
		names = append(names, "s2")
	}
	for _, name := range names {
		if err := b.resolves(ctx, b.work["c1"], name); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) serviceStep(ctx context.Context) error {
	if err := b.netctl(ctx, "service", "create", "-t", b.tenant, "--network", network, "--selector", "role="+servers, "--port", "80:80:TCP", "shop"); err != nil {
		return err
	}
	probes, err := b.service(ctx)
	if err != nil {
		return err
	}
	if b.row[dimFamily] != IPv6 {
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if err := b.resolves(short, b.work["c1"], "shop"); err != nil {
			return err
		}
	}
	return b.ask(ctx, probes)
}

// outside: somebody beyond the hosts reaches a published port, and is reached.
func (b *bed) outside(ctx context.Context) error {
	c1 := b.work["c1"]
	if _, ok := c1.addr(false); !ok {
		return nil // the lab's networks between hosts are IPv4
	}
	stop, err := b.Master.Serve("outside", fmt.Sprint("tcp/", outsidePort))
	if err != nil {
		return err
	}
	defer stop()
	probes := []probe{{what: "c1 to the outside", from: c1.ns, to: testcluster.Target{Proto: "tcp", Addr: b.Masters.MasterAddress(), Port: outsidePort}, want: testcluster.OK, by: "outside"}}
	if c1.port != 0 {
		probes = append(probes, probe{what: "the published port", from: b.Master, to: testcluster.Target{Proto: "tcp", Addr: c1.host.Address, Port: uint16(c1.port)}, want: testcluster.OK, by: "c1"})
	}
	return b.ask(ctx, probes)
}

// traffic has c1 ping s2, or c2 where servers let only connections in, while something is
// done; a tenth may be lost, which a busy machine loses by itself.
func (b *bed) traffic(ctx context.Context, do func(context.Context) error) error {
	to := b.work["c2"].addrs[0]
	p, err := b.work["c1"].ns.StartPing(to, 10*time.Millisecond)
	if err != nil {
		return err
	}
	err = do(ctx)
	err = errors.Join(err, p.Stop())
	got := p.Between(time.Time{}, time.Now())
	if got.Lost()*10 > got.Sent || got.Sent == 0 {
		err = errors.Join(err, fmt.Errorf("c1 to c2 meanwhile: %s", got))
	}
	return err
}

// underTraffic makes a step one that goes on under traffic.
func (b *bed) underTraffic(do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return b.traffic(ctx, do) }
}

func (b *bed) restarts(ctx context.Context) error {
	return b.traffic(ctx, func(ctx context.Context) error {
		for _, h := range b.Hosts() {
			if err := b.run.restart(ctx, h); err != nil {
				return err
			}
		}
		if err := b.Process("netmaster").Stop(20 * time.Second); err != nil {
			return err
		}
		if err := b.alarmed(ctx, "a netmaster has ended"); err != nil {
			return err
		}
		return b.Masters.StartReplica(ctx, 1)
	})
}

// move: a server is gone on one host and is there on the other.
func (b *bed) move(ctx context.Context) error {
	if err := b.remove(ctx, "s2"); err != nil {
		return err
	}
	return b.add(ctx, "s2", servers, "h1", 0)
}

// change lets the others in and closes again.
func (b *bed) change(ctx context.Context) error {
	if !b.closed() {
		return nil
	}
	opened := func() (probes []probe) {
		for _, p := range b.between() {
			if p.want == testcluster.Denied {
				p.want = testcluster.OK
				probes = append(probes, p)
			}
		}
		return probes
	}()
	policy := func(rules ...string) error {
		args := []string{"network-policy", "create", "-t", b.tenant, "--label", "role=" + servers, "--default-in", "deny", "--rule", "in allow role=" + clients + " tcp/80"}
		for _, r := range rules {
			args = append(args, "--rule", r)
		}
		return b.netctl(ctx, append(args, "closed")...)
	}
	open, shut := func() error { return policy("in allow role=" + others + " tcp/80") }, func() error { return policy() }
	switch b.row[dimPolicy] {
	case ByKubernetes:
		open = func() error { return b.kubernetesPolicy(ctx, clients, others) }
		shut = func() error { return b.kubernetesPolicy(ctx, clients) }
	case ByGroup:
		open = func() error {
			return b.netctl(ctx, strings.Fields("policy rule-add -t "+b.tenant+" -d in -j allow -p 20 -g "+others+" -l tcp -P 80 closed others")...)
		}
		shut = func() error { return b.netctl(ctx, "policy", "rule-rm", "-t", b.tenant, "closed", "others") }
	}
	if err := open(); err != nil {
		return err
	}
	if err := b.ask(ctx, opened); err != nil {
		return err
	}
	return shut()
}

// detachAll leaves nothing: no port of the data plane but infra's, and no endpoint of a container.
func (b *bed) detachAll(ctx context.Context) error {
	if err := b.netctl(ctx, "service", "rm", "-t", b.tenant, "shop"); err != nil {
		return err
	}
	for _, name := range []string{"c1", "c2", "s1", "s2", "o1", "o2"} {
		if err := b.remove(ctx, name); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return testcluster.Until(ctx, "nothing to be left", func(ctx context.Context) error {
		out, err := b.Masters.Netctl(ctx, "network", "rm", "-t", b.tenant, network)
		if err == nil || strings.Contains(out, "group") { // its groups are there, and nothing else
			err = nil
		}
		for _, h := range b.Hosts() {
			s, failed := h.AgentState(ctx)
			if err = errors.Join(err, failed); err != nil {
				return err
			}
			for name, p := range s.Ports {
				if b.row[dimNetwork] != Infra {
					return fmt.Errorf("%s has port %s of %v", h.Name, name, p)
				}
			}
		}
		return err
	})
}

// runRow makes a row's cluster and has the scenario on it.
func runRow(t *testing.T, r Row, bin string) (failed error) {
	t.Helper()
	cfg := r.config(bin)
	b := &bed{t: t, row: r, tenant: "blue", work: map[string]*workload{}}
	if r[dimRuntime] == Pods {
		k, err := startKube(t.Context(), t.TempDir())
		if err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, k.close()) }()
		b.kube, cfg.MasterArgs = k, []string{"--kubeconfig", k.Kubeconfig}
	}
	if r[dimRuntime] == Swarm {
		cfg.MasterArgs = swarmFlags(cfg.Name)
	}
	l, err := testcluster.Up(t.Context(), cfg)
	if err != nil {
		return err
	}
	if b.kube != nil {
		end, err := b.kube.LeadFrom(t.Context(), l.Master)
		if err != nil {
			return errors.Join(err, l.Down())
		}
		b.kube.end = end
	}
	if b.Lab = l; r[dimNetwork] == Native || r[dimRuntime] == Pods {
		b.tenant = defaultTenant
	}
	b.run = newRuntime(b)
	root, err := testcluster.Root(t.Context(), ".")
	if b.rules = filepath.Join(root, "packaging", "prometheus", "contiv-alerts.yaml"); err == nil {
		err = l.Prometheus.StartPrometheus(b.rules)
	}
	if err != nil {
		return errors.Join(err, l.Down())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	err = b.scenario(ctx)
	if err != nil {
		for name, p := range l.Processes() {
			if strings.HasSuffix(name, "netplugin") || strings.HasPrefix(name, "netmaster") {
				t.Logf("end of %s's log:\n%s", name, p.Tail(12))
			}
		}
	}
	for _, w := range b.work {
		w.stop()
	}
	return errors.Join(err, b.run.close(), l.Down())
}

// binaries are those under test, built once, or given by CONTIV_TEST_BIN.
func binaries(t *testing.T) string {
	t.Helper()
	if bin := os.Getenv("CONTIV_TEST_BIN"); bin != "" {
		return bin
	}
	bin := filepath.Join(t.TempDir(), "bin")
	if err := testcluster.Build(t.Context(), ".", bin); err != nil {
		t.Fatal(err)
	}
	return bin
}
