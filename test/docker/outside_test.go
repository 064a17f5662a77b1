//go:build integration

package docker

import (
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// outside: containers reach their host and the outside beyond it, with a gateway
// and without, and published ports are reached from the outside. The engines drop
// what is forwarded, as Docker's do; the outside is the netmaster's machine.
func outside(b *bed) {
	b.must6(b.Master, beyond6)
	for i, e := range b.e { // a data plane each
		outsideOf(b, e)
		if b.Config().Environment != testcluster.Routed { // that router has no IPv6
			outsideBySix(b, e, fmt.Sprintf("fd21:ff::1%d", i))
		}
	}
}

// beyond6 is netmaster's machine.
const beyond6 = "fd21:ff::2"

// must6 gives a machine an address of IPv6 on the control network, which no switch has.
func (b *bed) must6(ns *testcluster.Namespace, addr string) {
	b.t.Helper()
	for _, line := range []string{"sysctl -q -w net.ipv6.conf.ctl0.disable_ipv6=0", "ip addr add " + addr + "/64 dev ctl0 nodad"} {
		args := strings.Fields(line)
		if out, err := ns.Command(b.t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			b.t.Fatal(err, string(out))
		}
	}
}

// outsideBySix: the same by IPv6, for a container of a network with both families,
// whose engine gives it the default route that the plugin names.
func outsideBySix(b *bed, one *engine, host string) {
	b.must6(one.host.NS, host)
	one.run("o6", "--net web -p 8086:80")
	if got := one.docker("exec o6 ip -6 route"); !strings.Contains(got, "default via fe80::1:ff:fe00:1") {
		b.t.Errorf("routes of IPv6:\n%s", got)
	}
	for _, to := range []string{"fd6d:809b:d5b4::ac13:fffe", host, beyond6} {
		one.reaches("o6", "ping", to, true)
	}
	one.reaches("o6", "8086", host, true)
	one.until("the outside to a published port by IPv6", 5*time.Second, func() error { return b.wget("")(host + ":8086") })
	one.until("the host to a published port at ::1", 5*time.Second, func() error { return b.wget(one.host.Name)("::1:8086") })
	one.docker("rm -f o6")
	b.nothingLeft()
}

func outsideOf(b *bed, one *engine) {
	const private, beyond = "172.19.255.254", "10.250.0.2" // netmaster's machine
	one.taken()
	one.run("o1", "--net web -p 8080:80 -p 127.0.0.1:8081:80/tcp")
	one.run("o2", "--net lone -p 8082:80")
	addresses, err := b.Master.Command(b.t.Context(), "ip", "-4", "-o", "addr", "show", "scope", "global").CombinedOutput()
	one.must(err)
	netmaster := regexp.MustCompile(`inet ([0-9.]+)`).FindAllStringSubmatch(string(addresses), -1)
	if len(netmaster) < 2 {
		b.t.Fatalf("netmaster's machine has addresses %s", addresses)
	}
	for _, c := range []string{"o1", "o2"} {
		one.reaches(c, "ping", private, true)
		one.reaches(c, "ping", beyond, true)
		pid := one.docker("inspect -f {{.State.Pid}} " + c)
		for _, at := range netmaster {
			out, err := one.Inside(b.t.Context(), "nsenter", "--net=/proc/"+pid+"/ns/net", "timeout", "5", "bash", "-c", "exec 3<>/dev/tcp/"+at[1]+"/9999")
			if err == nil || !strings.Contains(out+err.Error(), "refused") {
				b.t.Errorf("%s to netmaster at %s: %v %s, want to be refused", c, at[1], err, out)
			}
		}
	}
	if got := one.docker("exec o2 ip route"); !strings.Contains(got, "default via 169.254.1.1") {
		b.t.Errorf("routes without a gateway:\n%s", got)
	}
	host := one.host.Address.String()
	for _, ask := range []struct {
		who  string
		from func(url string) error
		url  string
		want bool
	}{
		{"outside", b.wget(""), host + ":8080", true},
		{"outside", b.wget(""), host + ":8082", true},
		{"outside", b.wget(""), host + ":8081", false},
		{"host", b.wget(one.host.Name), host + ":8080", true},
		{"host", b.wget(one.host.Name), "127.0.0.1:8081", true},
		{"other host", b.wget(b.other(one)), host + ":8080", true},
	} {
		one.until(fmt.Sprintf("%s to %s: %v", ask.who, ask.url, ask.want), 5*time.Second, func() error {
			if err := ask.from(ask.url); (err == nil) != ask.want {
				return fmt.Errorf("it is %w", err)
			}
			return nil
		})
	}
	one.reaches("o2", "8080", host, true)
	one.refused("run --rm --net web -p 8080:80 bb ip a", "8080")
	one.docker("restart -t 0 o1")
	one.until("the port is back", 5*time.Second, func() error { return b.wget("")(host + ":8080") })
	one.docker("rm -f o1 o2")
	if b.wget("")(host+":8080") == nil {
		b.t.Error("a published port outlives its container")
	}
	b.nothingLeft()
}

// taken: a port in use cannot be published, and other containers cannot publish a published
// port, as on Docker's own bridge.
func (e *engine) taken() {
	e.t.Helper()
	const inUse = "address already in use"
	var process net.Listener
	e.must(e.host.NS.Do(func() (err error) {
		process, err = new(net.ListenConfig).Listen(e.t.Context(), "tcp", ":8022")
		return err
	}))
	e.docker("run -d --name t0 -p 8033:80 bb httpd -f -h /www")
	for _, p := range []string{"8022:80", "8033:80", "9006:80", "4789:4789/udp"} {
		e.refused("run --rm --net web -p "+p+" bb ip a", inUse)
	}
	e.must(process.Close())
	e.docker("rm -f t0")
	e.run("t1", "--net web -p 8022:80 -p 8033:80/udp")
	e.refused("run --rm -p 8022:80 bb ip a", inUse)
	e.refused("run --rm -p 8033:80/udp bb ip a", inUse)
	e.docker("rm -f t1")
	e.docker("run --rm -p 8022:80 bb ip a")
	e.refused("network create -d netplugin --internal --subnet 10.66.0.0/24 inside", "--internal")
	e.refused("network create -d netplugin -o com.docker.network.driver.mtu=1400 --subnet 10.66.0.0/24 small", "com.docker.network.driver.mtu")
	e.refused("network create -d netplugin --ipam-driver netplugin --aux-address a=10.66.0.5 --subnet 10.66.0.0/24 aux", "--aux-address")
	if got := e.docker("network ls -q -f name=inside -f name=small -f name=aux"); got != "" {
		e.t.Errorf("refused networks are there: %s", got)
	}
}

// wget asks for a page from a host, or from the netmaster's machine.
func (b *bed) wget(from string) func(url string) error {
	ns := b.Master
	for _, e := range b.e {
		if e.host.Name == from {
			ns = e.host.NS
		}
	}
	return func(url string) error {
		port := strings.LastIndex(url, ":")
		out, err := ns.Command(b.t.Context(), "timeout", "1", "bash", "-c",
			"exec 3<>/dev/tcp/"+url[:port]+"/"+url[port+1:]+" && echo -e 'GET / HTTP/1.0\\r\\n\\r' >&3 && grep -q ok <&3").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
}

// other names the other host.
func (b *bed) other(e *engine) string {
	if b.e[0].host == e.host {
		return b.e[1].host.Name
	}
	return b.e[0].host.Name
}
