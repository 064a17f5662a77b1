//go:build integration

package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	mdns "github.com/miekg/dns"

	"github.com/contiv/netplugin/v2/internal/netplugin/agent"
	"github.com/contiv/netplugin/v2/internal/netplugin/dns"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// askEnv makes the test's program ask a name server, in whatever namespace it
// was started, and print the answer: "udp|tcp server name type".
const askEnv = "CONTIV_TEST_ASK"

// upstream is where the resolver of each host answers, in the host's namespace, and
// chosen is a server that one container names for itself.
const upstream, chosen = "127.0.0.1:5300", "10.99.53.1:53"

// outsideAddr is what the resolvers say of outside.example; everything else
// does not exist.
const outsideAddr = "198.51.100.7"

func ask(ctx context.Context, what string) error {
	f := strings.Fields(what)
	if len(f) != 4 {
		return fmt.Errorf("%q is no question", what)
	}
	c := mdns.Client{Net: f[0], Timeout: 8 * time.Second}
	m, _, err := c.ExchangeContext(ctx, new(mdns.Msg).SetQuestion(mdns.Fqdn(f[2]), mdns.StringToType[f[3]]), f[1])
	if err != nil {
		return err
	}
	out := []string{mdns.RcodeToString[m.Rcode]}
	for _, rr := range m.Answer {
		data := strings.Fields(rr.String())
		out = append(out, data[len(data)-1])
	}
	fmt.Println(strings.Join(out, " "))
	return nil
}

// serveUpstream is the resolver of a host until the test ends.
func (e *engine) serveUpstream() { e.serveAt(upstream, "outside.example.") }

// serveAt is a resolver that knows one name until the test ends.
func (e *engine) serveAt(addr, name string) {
	e.t.Helper()
	at := netip.MustParseAddrPort(addr)
	if !at.Addr().IsLoopback() {
		_, err := e.Inside(e.t.Context(), "ip", "addr", "add", at.Addr().String()+"/32", "dev", "lo")
		e.must(err)
	}
	var s dns.Sockets
	e.must(e.host.NS.Do(func() (err error) {
		s, err = dns.Listen(e.t.Context(), at)
		return err
	}))
	h := mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		m := new(mdns.Msg).SetRcode(q, mdns.RcodeNameError)
		if q.Question[0].Name == name {
			m.SetReply(q)
			m.Answer = []mdns.RR{&mdns.A{
				Hdr: mdns.RR_Header{Name: q.Question[0].Name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: 60}, A: net.ParseIP(outsideAddr),
			}}
		}
		_ = w.WriteMsg(m) // the asker tries again
	})
	for _, srv := range []*mdns.Server{{PacketConn: s.UDP, Handler: h}, {Listener: s.TCP, Handler: h}} {
		started, done := make(chan struct{}), make(chan error, 1)
		srv.NotifyStartedFunc = func() { close(started) }
		go func() { done <- srv.ActivateAndServe() }()
		<-started
		e.t.Cleanup(func() {
			_ = srv.Shutdown() // the test is over
			if err := <-done; err != nil {
				e.t.Error(err)
			}
		})
	}
}

// nameServer reads what the host's name server knows.
func (e *engine) nameServer() (out agent.NameServer, err error) {
	return out, e.host.Inspect(e.t.Context(), "/inspect/nameserver", &out)
}

// resolves asks from a container until the answer is as wanted: the code, and
// the records in any order.
func (e *engine) resolves(from, network, name, qtype, want string) {
	e.t.Helper()
	e.until(fmt.Sprintf("%s asks for %s %s by %s: %s", from, name, qtype, network, want), 10*time.Second, func() error {
		got, err := e.ask(from, network, "127.0.0.11:53", name, qtype)
		if sorted(got) != sorted(want) {
			return errors.Join(fmt.Errorf("it is %q", got), err)
		}
		return nil
	})
}

func sorted(s string) string {
	f := strings.Fields(s)
	slices.Sort(f)
	return strings.Join(f, " ")
}

// ask asks a server in a container's network namespace.
func (e *engine) ask(from, network, server, name, qtype string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	pid, err := e.try("inspect", "-f", "{{.State.Pid}}", from)
	if err != nil {
		return "", err
	}
	return e.Inside(e.t.Context(), "nsenter", "--net=/proc/"+pid+"/ns/net", "env",
		askEnv+"="+strings.Join([]string{network, server, name, qtype}, " "), self)
}

// providersAre waits until a service has exactly the containers for providers.
func (b *bed) providersAre(service string, names ...string) {
	b.t.Helper()
	c, err := b.Masters.API()
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	slices.Sort(names)
	b.e[0].until(fmt.Sprintf("providers of %s are %q", service, names), 10*time.Second, func() error {
		i, err := c.ServiceLBs().Inspect(b.t.Context(), service)
		if err != nil {
			return err
		}
		got := []string{}
		for _, p := range i.Oper.Providers {
			got = append(got, p.ContainerName)
		}
		slices.Sort(got)
		if !slices.Equal(got, names) || i.Oper.NumProviders != len(names) {
			return fmt.Errorf("they are %q", got)
		}
		return nil
	})
}

// namesLeft is an error while a host's name server knows names of containers.
func (e *engine) namesLeft() error {
	s, err := e.nameServer()
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range s.Records {
		if n.Kind != "service" {
			errs = append(errs, fmt.Errorf("%s: name %s of %s", e.host.Name, n.Name, n.Tenant))
		}
	}
	return errors.Join(errs...)
}

// names: containers find each other by name, on both hosts, within their tenant;
// names and providers follow start, rename, restart, death and netplugin.
func names(b *bed) {
	one, two := b.e[0], b.e[1]
	for _, e := range b.e {
		e.serveUpstream()
	}
	b.netctl("service create --network net1 --preferred-ip 10.21.1.200 --selector app=shop --port 80:80:tcp shop")
	one.run("n1", "--net web --label app=shop")
	two.run("n2", "--net web --label app=shop --label other=x")
	two.run("nb", "--net net1/blue --label app=shop")
	b.providersAre("default:shop", "n1", "n2")

	a1, a2 := one.addr("n1", "web"), two.addr("n2", "web")
	for _, network := range []string{"udp", "tcp"} {
		one.resolves("n1", network, "n2", "A", "NOERROR "+a2)
		one.resolves("n1", network, "n2.default", "A", "NOERROR "+a2)
		one.resolves("n1", network, "n2", "TXT", "NOERROR")
		one.resolves("n1", network, "web", "A", "NOERROR "+a1+" "+a2)
		one.resolves("n1", network, "shop", "A", "NOERROR 10.21.1.200")
		two.resolves("n2", network, reverse(a1), "PTR", "NOERROR n1.default.")
		one.resolves("n1", network, "outside.example", "A", "NOERROR "+outsideAddr)
		one.resolves("n1", network, "nobody.example", "A", "NXDOMAIN")
		one.resolves("n1", network, "gone.default", "A", "NXDOMAIN")
		one.resolves("n1", network, "nb", "A", "NXDOMAIN") // another tenant's
		one.resolves("n1", network, "nb.blue", "A", "NXDOMAIN")
		two.resolves("nb", network, "n1", "A", "NXDOMAIN")
		two.resolves("nb", network, "nb.blue", "A", "NOERROR "+two.addr("nb", "net1/blue"))
	}
	first := map[string]bool{}
	one.until("every member of the group comes first", 10*time.Second, func() error {
		got, err := one.ask("n1", "udp", "127.0.0.11:53", "web", "A")
		if f := strings.Fields(got); err == nil && len(f) == 3 {
			first[f[1]] = true
		}
		if len(first) < 2 {
			return errors.Join(fmt.Errorf("it is %q", got), err)
		}
		return nil
	})

	b.bare("bare", a2)
	for _, e := range b.e { // a network without gateway: the router has an address of its own
		e.run("alone", "--net lone")
		e.resolves("alone", "udp", "n2", "A", "NOERROR "+a2)
		e.resolves("alone", "tcp", "outside.example", "A", "NOERROR "+outsideAddr)
		e.docker("rm -f alone")
	}

	two.docker("rename n2 renamed")
	one.resolves("n1", "udp", "renamed", "A", "NOERROR "+a2)
	one.resolves("n1", "udp", "n2.default", "A", "NXDOMAIN")
	b.providersAre("default:shop", "n1", "renamed")

	two.docker("restart -t 0 renamed")
	one.resolves("n1", "udp", "renamed", "A", "NOERROR "+two.addr("renamed", "web"))
	b.providersAre("default:shop", "n1", "renamed")

	one.serveAt(chosen, "chosen.example.")
	one.docker("run -d --name asks --net web --dns " + netip.MustParseAddrPort(chosen).Addr().String() + " bb sleep 1000")
	one.resolves("asks", "udp", "chosen.example", "A", "NOERROR "+outsideAddr)
	one.resolves("n1", "udp", "chosen.example", "A", "NXDOMAIN")
	one.resolves("asks", "tcp", "outside.example", "A", "NXDOMAIN") // its own server says so
	one.resolves("asks", "udp", "renamed", "A", "NOERROR "+two.addr("renamed", "web"))
	one.docker("rm -f asks")

	s, err := one.nameServer()
	one.must(err)
	if s.Status != "serving" || s.Stats.Local == 0 || s.Stats.TCP == 0 || s.Stats.Forwarded == 0 || s.Stats.NXDomain == 0 || s.Names["default"] == 0 {
		b.t.Errorf("the name server says of itself: %+v", s)
	}
	one.must(one.host.RestartAgent(b.t.Context(), one.env()...))
	one.resolves("n1", "udp", "renamed", "A", "NOERROR "+two.addr("renamed", "web"))

	two.docker("kill renamed")
	one.resolves("n1", "udp", "renamed.default", "A", "NXDOMAIN")
	one.resolves("n1", "udp", "web", "A", "NOERROR "+one.addr("n1", "web"))
	b.providersAre("default:shop", "n1")

	one.docker("rm -f n1")
	two.docker("rm -f renamed nb")
	b.providersAre("default:shop")
	b.netctl("service rm shop")
	b.nothingLeft()
}

// bare: the result for a container of plain CNI has the DNS server. The container resolves
// the others, and they resolve it.
func (b *bed) bare(name, n2 string) {
	b.t.Helper()
	one := b.e[0]
	spec := testcluster.ContainerSpec{
		Name: name, Host: one.host.Name, Tenant: "default", Network: "net1", Group: "db", Args: [][2]string{{"NAME", name}},
	}
	ns, err := b.AddNamespace(name)
	one.must(err)
	res, err := b.CNIAdd(b.t.Context(), spec)
	one.must(err)
	r, err := types100.NewResultFromResult(res)
	one.must(err)
	if len(r.DNS.Nameservers) != 1 || !slices.Equal(r.DNS.Search, []string{"default"}) {
		b.t.Fatalf("the result's DNS is %+v", r.DNS)
	}
	self, err := os.Executable()
	one.must(err)
	one.until("a bare container finds n2", 10*time.Second, func() error {
		c := ns.Command(b.t.Context(), "env", askEnv+"=udp "+r.DNS.Nameservers[0]+":53 n2."+r.DNS.Search[0]+" A", self)
		out, err := c.CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != "NOERROR "+n2 {
			return errors.Join(fmt.Errorf("it is %q", got), err)
		}
		return nil
	})
	one.resolves("n1", "udp", name, "A", "NOERROR "+r.IPs[0].Address.IP.String())
	one.must(b.DelContainer(b.t.Context(), spec))
	one.resolves("n1", "udp", name+".default", "A", "NXDOMAIN")
}

func reverse(addr string) string {
	s, _ := mdns.ReverseAddr(addr)
	return s
}
