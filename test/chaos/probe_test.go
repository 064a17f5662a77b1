//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

const (
	probeEvery = 300 * time.Millisecond
	probeWait  = time.Second
)

// probe asks again and again for something that is allowed.
type probe struct {
	name  string
	hosts []string // on whose work the answer depends
	ask   func(ctx context.Context) error

	mu     sync.Mutex
	failed time.Time // since when no answer has come; zero = the last one came
	begun  time.Time // the last ask that is done
	judged time.Time // when the status was compared with it last, while it fails
	err    error
}

func (p *probe) run(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		actx, cancel := context.WithTimeout(ctx, probeWait)
		begun := time.Now()
		err := p.ask(actx)
		cancel()
		p.mu.Lock()
		switch {
		case err == nil:
			p.failed, p.judged = time.Time{}, time.Time{}
		case p.failed.IsZero():
			p.failed = begun
		}
		p.err, p.begun = err, begun
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// fails returns for how long the probe has had no answer, and why.
func (p *probe) fails() (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed.IsZero() {
		return 0, nil
	}
	return time.Since(p.failed), p.err
}

// failsOn is what fails returns once an ask is done that begins from now on.
func (p *probe) failsOn(ctx context.Context) (time.Duration, error) {
	now := time.Now()
	_ = testcluster.Until(ctx, "another ask", func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.begun.Before(now) {
			return errors.New("none is done")
		}
		return nil
	})
	return p.fails()
}

// due reports whether the status is to be compared with the probe now.
func (p *probe) due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed.IsZero() || time.Since(p.failed) < cutFor || time.Since(p.judged) < cutFor {
		return false
	}
	p.judged = time.Now()
	return true
}

// answers makes an error of what is not an answer.
func answers(a testcluster.Answer) error {
	if a.Err != nil || a.Verdict == testcluster.OK {
		return a.Err
	}
	return errors.New(string(a.Verdict))
}

// probesOf makes containers and the probes between them: on one host, to each of the
// others, to a service, to the outside, to a published port and for a name.
func (w *world) probesOf(ctx context.Context) []*probe {
	serviceAddr := netip.MustParseAddr("10.1.1.200")
	for _, s := range []testcluster.ContainerSpec{
		{Name: "db3", Host: "h3", Tenant: "blue", Network: "net", Group: "db"},
		{Name: "shop2", Host: "h2", Tenant: "blue", Network: "net", Labels: map[string]string{"app": "shop"}, Ports: []testcluster.PortMapping{{HostPort: 8080, ContainerPort: 80}}},
	} {
		_, err := w.AddContainer(ctx, s)
		w.must(err)
	}
	w.must(w.netctl(ctx, "service create -t blue -s net -l app=shop -p 80:80:TCP --ip "+serviceAddr.String()+" shop"))
	for name, port := range map[string]string{"db3": "tcp/81", "shop2": "tcp/80"} {
		_, err := w.Serve(name, port)
		w.must(err)
	}
	h2, err := w.Host("h2")
	w.must(err)
	from := w.space("web1")
	tcp := func(at *testcluster.Namespace, to func() (netip.Addr, error), port uint16) func(context.Context) error {
		return func(ctx context.Context) error {
			addr, err := to()
			if err != nil {
				return err
			}
			return answers(at.Probe(ctx, testcluster.Target{Proto: "tcp", Addr: addr, Port: port}, probeWait))
		}
	}
	container := func(name string) func() (netip.Addr, error) {
		return func() (netip.Addr, error) {
			a, err := w.Container(name)
			if err != nil {
				return netip.Addr{}, err
			}
			return a.IPv4, nil
		}
	}
	fixed := func(a netip.Addr) func() (netip.Addr, error) { return func() (netip.Addr, error) { return a, nil } }
	all := []*probe{
		{name: "on one host", hosts: []string{"h1"}, ask: tcp(from, container("db1"), 81)},
		{name: "to h2", hosts: []string{"h1", "h2"}, ask: tcp(from, container("db2"), 81)},
		{name: "to h3", hosts: []string{"h1", "h3"}, ask: tcp(from, container("db3"), 81)},
		{name: "to a service", hosts: []string{"h1", "h2"}, ask: tcp(from, fixed(serviceAddr), 80)},
		{name: "to a published port", hosts: []string{"h2"}, ask: tcp(w.Master, fixed(h2.Address), 8080)},
		{name: "to the outside", hosts: []string{"h1"}, ask: func(ctx context.Context) error {
			return answers(from.Probe(ctx, testcluster.Target{Proto: "icmp", Addr: w.Masters.MasterAddress()}, probeWait))
		}},
		{name: "for a name", hosts: []string{"h1"}, ask: func(ctx context.Context) error { return resolves(ctx, from, "shop.blue.") }},
	}
	return all
}

// resolves asks for a name of the tenant.
func resolves(ctx context.Context, at *testcluster.Namespace, name string) error {
	conn, err := at.Dial(ctx, "udp", "198.51.100.53:53") // whichever server is asked, the host's answers
	if err != nil {
		return err
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	q := dns.Conn{Conn: conn}
	if err := errors.Join(conn.SetDeadline(end), q.WriteMsg(new(dns.Msg).SetQuestion(name, dns.TypeA))); err != nil {
		return err
	}
	m, err := q.ReadMsg()
	if err == nil && len(m.Answer) == 0 {
		err = errors.New(dns.RcodeToString[m.Rcode])
	}
	return err
}

// get fetches what a daemon serves at an address and path: status and text.
func (w *world) get(ctx context.Context, at *testcluster.Namespace, address string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	as, err := w.client(whoAsks)
	if err != nil {
		return 0, "", err
	}
	url := "http://" + address
	if as != nil {
		url = "https://" + address
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	c := at.HTTP()
	c.Transport.(*http.Transport).TLSClientConfig = as
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// alarming are the samples on which the alerts for errors fire.
var alarming = regexp.MustCompile(`(?m)^(contiv_cluster_findings\{condition="[^"]*",object="[^"]*",severity="error"\} [1-9].*|contiv_netplugin_condition\{condition="[^"]*",severity="error"\} 0)$`)

// verdicts are what status, health and metrics say: each is "" when it says that all is
// well, else what is wrong.
type verdicts struct{ status, health, metrics string }

// ask asks for all verdicts about some hosts.
func (w *world) ask(ctx context.Context, hosts []string) (v verdicts) {
	if out, err := w.Masters.Netctl(ctx, "status"); err != nil {
		v.status = wrongs(out)
	}
	if _, text, err := w.get(ctx, w.Master, strings.SplitN(w.Masters.MasterURL(), "://", 2)[1]+"/metrics"); err != nil {
		v.metrics = err.Error() // which is an alert too: ContivNoLeader
	} else {
		v.metrics = strings.Join(alarming.FindAllString(text, -1), "\n")
	}
	for _, h := range w.Hosts() {
		if !slices.Contains(hosts, h.Name) {
			continue
		}
		if code, text, err := w.get(ctx, h.NS, "127.0.0.1:9006/healthz"); err != nil || code != http.StatusOK {
			v.health += fmt.Sprintf("%s: %d %s %v\n", h.Name, code, text, err)
		}
		if _, text, err := w.get(ctx, h.NS, "127.0.0.1:9006/metrics"); err != nil {
			v.metrics += h.Name + ": " + err.Error() // it counts as away
		} else {
			v.metrics += strings.Join(alarming.FindAllString(text, -1), "\n")
		}
	}
	return v
}

// reportingHealthy lists the reports that say that all is well.
func (v verdicts) reportingHealthy() (out []string) {
	for who, text := range map[string]string{"netctl status": v.status, "/healthz": v.health, "metrics": v.metrics} {
		if text == "" {
			out = append(out, who)
		}
	}
	slices.Sort(out)
	return out
}

func (v verdicts) String() string {
	return fmt.Sprintf("status: %s\nhealth: %s\nmetrics: %s", v.status, v.health, v.metrics)
}
