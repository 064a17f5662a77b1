//go:build integration

package matrix

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// What a row's network is called, and the tenant of native ones.
const (
	network       = "net"
	defaultTenant = "default"
)

// The groups, which are labels too: role=clients. Servers let clients in, where there is a policy.
const (
	clients, servers, others = "clients", "servers", "others"
)

// outsidePort is where somebody outside of the cluster's networks serves.
const outsidePort = 8088

// bed is a row's cluster.
type bed struct {
	*testcluster.Lab
	t      *testing.T
	row    Row
	tenant string
	rules  string // file of alert rules
	run    runtime
	kube   *kube // with pods
	work   map[string]*workload
}

// closed reports whether servers have a policy.
func (b *bed) closed() bool { return b.row[dimPolicy] != NoPolicy }

func (b *bed) netctl(ctx context.Context, args ...string) error {
	out, err := b.Masters.Netctl(ctx, args...)
	if err != nil {
		err = fmt.Errorf("netctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return err
}

// intent declares the tenant, network, groups and policies.
func (b *bed) intent(ctx context.Context) error {
	lines := []string{"global set --fwd-mode " + b.row[dimMode]}
	if b.tenant != defaultTenant {
		lines = append(lines, "tenant create "+b.tenant)
	}
	create := "network create -t " + b.tenant
	gateway := b.row[dimNetwork] != VLAN // a router of the operator's, which the lab has not
	if b.row[dimFamily] != IPv6 {
		create += " --subnet 10.1.1.0/24"
		if gateway {
			create += " --gateway 10.1.1.254"
		}
	}
	if b.row[dimFamily] != IPv4 {
		create += " --subnetv6 fd00:1::/64"
		if gateway {
			create += " --gatewayv6 fd00:1::fe"
		}
	}
	create += map[string]string{VXLAN: " --encap vxlan ", VLAN: " --encap vlan ", Native: " --native ", Infra: " --nw-type infra "}[b.row[dimNetwork]] + network
	if lines = append(lines, create); b.kube != nil { // which doctor misses
		lines = append(lines, "network create --subnet 10.200.0.0/24 default-net")
	}
	for _, g := range []string{clients, others} {
		lines = append(lines, "group create -t "+b.tenant+" "+network+" "+g)
	}
	switch b.row[dimPolicy] {
	case ByGroup:
		lines = append(lines, "policy create -t "+b.tenant+" closed",
			"policy rule-add -t "+b.tenant+" -d in -j deny -p 1 closed none", "policy rule-add -t "+b.tenant+" -d in -j allow -p 10 -g "+clients+" -l tcp -P 80 closed clients",
			"group create -t "+b.tenant+" -p closed "+network+" "+servers)
	default:
		lines = append(lines, "group create -t "+b.tenant+" "+network+" "+servers)
	}
	for _, line := range lines {
		if err := b.netctl(ctx, strings.Fields(line)...); err != nil {
			return err
		}
	}
	switch b.row[dimPolicy] {
	case ByKubernetes:
		return b.kubernetesPolicy(ctx, clients)
	case ByLabel:
		return b.netctl(ctx, "network-policy", "create", "-t", b.tenant, "--label", "role="+servers, "--default-in", "deny", "--rule", "in allow role="+clients+" tcp/80", "closed")
	}
	return nil
}

// add attaches a workload and has it serve.
func (b *bed) add(ctx context.Context, name, group, host string, port int) error {
	h, err := b.Host(host)
	if err != nil {
		return err
	}
	w := &workload{name: name, group: group, host: h, port: port, labels: map[string]string{"role": group}}
	if err := b.run.attach(ctx, w); err != nil {
		return fmt.Errorf("attach %s on %s: %w", name, host, err)
	}
	if w.stop, err = w.ns.Serve(name, "tcp/80"); err != nil {
		return err
	}
	b.work[name] = w
	return nil
}

func (b *bed) remove(ctx context.Context, name string) error {
	w := b.work[name]
	w.stop()
	delete(b.work, name)
	if err := b.run.detach(ctx, w); err != nil {
		return fmt.Errorf("detach %s: %w", name, err)
	}
	return nil
}

// probe is one question with the answer that is right.
type probe struct {
	what string
	from *testcluster.Namespace
	to   testcluster.Target
	want testcluster.Verdict
	by   string // who answers; "" = anybody
	// src is the address of the endpoint that asks another one, for which netctl can has to say
	// the same; zero = it is not asked.
	src netip.Addr
}

// ask waits until all probes are answered as they should be.
func (b *bed) ask(ctx context.Context, probes []probe) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var all error
	for _, p := range probes {
		err := testcluster.Until(ctx, p.what, func(ctx context.Context) error {
			patience := 2 * time.Second
			if p.want == testcluster.Denied {
				patience = 300 * time.Millisecond
			}
			if a := p.from.Probe(ctx, p.to, patience); a.Verdict != p.want || p.by != "" && a.From != p.by {
				return fmt.Errorf("%s: %s by %q, want %s by %q", p.to, a, a.From, p.want, p.by)
			}
			return nil
		})
		all = errors.Join(all, err, b.answered(ctx, p))
	}
	return all
}

// answered asks netmaster what a probe has shown.
func (b *bed) answered(ctx context.Context, p probe) error {
	if !p.src.IsValid() {
		return nil
	}
	client, err := b.Masters.API()
	if err != nil {
		return err
	}
	want := api.ReachNo
	if p.want == testcluster.OK {
		want = api.ReachYes
	}
	ask := api.ReachabilityRequest{From: p.src.String(), To: p.to.Addr.String(), Port: fmt.Sprintf("%s/%d", p.to.Proto, p.to.Port), Tenant: b.tenant}
	return testcluster.Until(ctx, "netmaster to answer as "+p.what+" is", func(ctx context.Context) error {
		got, err := client.Reachability(ctx, ask)
		if err == nil && got.Verdict != want {
			err = fmt.Errorf("%s, and netmaster answers %+v", p.want, got)
		}
		return err
	})
}

// between are the probes among workloads: clients to servers, others to servers, and back.
func (b *bed) between() (probes []probe) {
	pairs := []struct {
		from, to string
		open     bool
	}{
		{"c1", "s1", true}, {"c1", "s2", true}, {"c2", "s1", true}, {"o1", "s2", !b.closed()}, {"o2", "s1", !b.closed()}, {"s2", "c1", true}, {"s1", "o2", true},
	}
	for _, p := range pairs {
		from, to := b.work[p.from], b.work[p.to]
		if from == nil || to == nil {
			continue
		}
		for _, a := range to.addrs {
			q := probe{what: p.from + " to " + p.to, from: from.ns, to: testcluster.Target{Proto: "tcp", Addr: a, Port: 80}, want: testcluster.OK, by: p.to}
			q.src, _ = from.addr(a.Is6())
			if !p.open {
				q.want, q.by = testcluster.Denied, ""
			}
			probes = append(probes, q)
		}
	}
	return probes
}

// service are the probes to a service of the servers, by the addresses that its name has.
func (b *bed) service(ctx context.Context) ([]probe, error) {
	var probes []probe
	for _, is6 := range []bool{false, true} {
		from := b.work["c1"]
		if _, ok := from.addr(is6); !ok {
			continue
		}
		addr, err := b.serviceAddress(ctx, is6)
		if err != nil {
			return nil, err
		}
		for _, name := range []string{"c1", "c2"} {
			probes = append(probes, probe{what: name + " to the service", from: b.work[name].ns, to: testcluster.Target{Proto: "tcp", Addr: addr, Port: 80}, want: testcluster.OK})
		}
		if b.row[dimNetwork] == Infra && !b.closed() {
			probes = append(probes, probe{what: "the host h1 to the service", from: b.work["o1"].host.NS, to: testcluster.Target{Proto: "tcp", Addr: addr, Port: 80}, want: testcluster.OK})
		}
		if b.closed() {
			probes = append(probes, probe{what: "o1 to the service", from: b.work["o1"].ns, to: testcluster.Target{Proto: "tcp", Addr: addr, Port: 80}, want: testcluster.Denied})
		}
	}
	return probes, nil
}

func (b *bed) serviceAddress(ctx context.Context, is6 bool) (netip.Addr, error) {
	client, err := b.Masters.API()
	if err != nil {
		return netip.Addr{}, err
	}
	s, err := client.ServiceLBs().Inspect(ctx, b.tenant+":shop")
	if err != nil {
		return netip.Addr{}, err
	}
	text := s.Oper.ServiceVip
	if is6 && s.Oper.ServiceVip6 != "" {
		text = s.Oper.ServiceVip6
	}
	return netip.ParseAddr(text)
}

// resolves asks the host's name server, by a server outside, for a name's addresses of the
// families that the row has.
func (b *bed) resolves(ctx context.Context, from *workload, name string) error {
	types := []uint16{dns.TypeA}
	if b.row[dimFamily] == Dual {
		types = append(types, dns.TypeAAAA)
	}
	return testcluster.Until(ctx, from.name+" to resolve "+name, func(ctx context.Context) error {
		for _, typ := range types {
			if err := asksFor(ctx, from, name, typ); err != nil {
				return err
			}
		}
		return nil
	})
}

func asksFor(ctx context.Context, from *workload, name string, typ uint16) error {
	var conn net.Conn
	if err := from.ns.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "udp", "10.99.99.99:53")
		return err
	}); err != nil {
		return err
	}
	c := dns.Client{Timeout: time.Second}
	reply, _, err := c.ExchangeWithConnContext(ctx, new(dns.Msg).SetQuestion(name+".", typ), &dns.Conn{Conn: conn})
	if err = errors.Join(err, conn.Close()); err == nil && len(reply.Answer) == 0 {
		err = fmt.Errorf("the answer of type %s is %s", dns.TypeToString[typ], dns.RcodeToString[reply.Rcode])
	}
	return err
}

// agrees compares what the cluster says of itself with what probes have seen: all is well.
func (b *bed) agrees(ctx context.Context, after string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return testcluster.Until(ctx, "everybody to say that all is well after "+after, func(ctx context.Context) error {
		if out, err := b.Masters.Netctl(ctx, "status", "--quiet"); err != nil {
			return fmt.Errorf("netctl status: %w: %s", err, out)
		}
		if out, err := b.Masters.Netctl(ctx, "doctor"); err != nil {
			return fmt.Errorf("netctl doctor: %w: %s", err, out)
		}
		for _, h := range b.Hosts() {
			if text, good, err := h.Healthz(ctx); err != nil || !good {
				return fmt.Errorf("healthz of %s: %w: %s", h.Name, err, text)
			}
		}
		alerts, silent, err := b.Prometheus.Alerts(ctx)
		alerts = slices.DeleteFunc(alerts, func(a string) bool { return strings.Contains(a, ofBusyMachines) })
		if err == nil && len(alerts)+len(silent) > 0 {
			err = fmt.Errorf("alerts %s, and these cannot be scraped: %q", alerts, silent)
		}
		return err
	})
}

// ofBusyMachines is the alert that tells of slow stores and nothing else: a leader of netmasters
// with a store of their own steps back when it is not run for 2 s.
const ofBusyMachines = "ContivLeaderFlaps"

// alarmed waits until an alert is pending or firing, as one has to be while probes fail.
func (b *bed) alarmed(ctx context.Context, while string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return testcluster.Until(ctx, "an alert while "+while, func(ctx context.Context) error {
		alerts, _, err := b.Prometheus.Alerts(ctx)
		if err == nil && len(alerts) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}
