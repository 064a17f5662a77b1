//go:build integration

package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
)

// connect: a running container gets and loses networks again and again, of its own tenant
// and of another one, with gateways and without, while traffic runs on its first: it
// reaches each, as the policy of its group there says; who comes in from another subnet is
// answered; and what leaves leaves nothing behind.
func connect(b *bed) {
	b.netctl("global set --fwd-mode routing", "net create --subnet 10.21.4.0/24 --subnetv6 fd21:4::/64 alone", "group create --policy pol alone guard",
		"net create --tenant blue --subnet 10.21.5.0/24 --gateway 10.21.5.254 far")
	for _, e := range b.e {
		e.networksAre("net1", "lone", "web", "db", "net1/blue", "alone", "guard", "far/blue")
	}
	times := 1
	if conformance.Full() {
		times = 50
	}
	for i, e := range b.e { // a data plane each
		if i > 0 && !conformance.Full() {
			break
		}
		connectOn(b, e, b.e[1-i], times)
	}
	b.netctl("global set --fwd-mode bridge", "group rm guard", "net rm alone", "net rm --tenant blue far")
	for _, e := range b.e {
		e.networksAre("net1", "lone", "web", "db", "net1/blue")
	}
	b.nothingLeft()
}

func connectOn(b *bed, e, other *engine, times int) {
	b.t.Helper()
	e.run("c1", "--net web")
	other.run("peer", "--net web")
	for name, network := range map[string]string{"pl": "lone", "pa": "alone", "pb": "far/blue", "pd": "db"} {
		other.run(name, "--net "+network)
	}
	peer := other.addr("peer", "web")
	e.reaches("c1", "ping", peer, true)
	ctx, stop := context.WithCancel(b.t.Context())
	var traffic sync.WaitGroup
	pings := 0
	traffic.Go(func() {
		for ; ctx.Err() == nil; pings++ {
			if out, err := e.Docker(b.t.Context(), "exec", "c1", "ping", "-i", "0.05", "-c", "20", "-W", "5", peer); err != nil || !strings.Contains(out, " 20 packets received") {
				b.t.Errorf("the first network loses packets: %v\n%s", err, out[max(0, len(out)-200):])
				return
			}
		}
	})
	defer func() {
		stop()
		traffic.Wait()
	}()
	for n := range times {
		e.docker("network connect lone c1")
		e.docker("network connect alone c1")
		e.reaches("c1", "ping", other.addr("pl", "lone"), true)
		e.reaches("c1", "ping", other.addr("pa", "alone"), true)
		if n%10 == 0 {
			for _, network := range []string{"lone", "alone"} { // from another subnet, answered by the same way
				other.reaches("peer", "ping", e.addr("c1", network), true)
				other.reaches("peer", "80", e.addr("c1", network), true)
			}
		}
		first, second := "lone", "alone"
		if n%2 == 1 {
			first, second = second, first
		}
		e.docker("network disconnect " + first + " c1")
		other.reaches("peer", "ping", e.addr("c1", second), true)
		e.docker("network disconnect " + second + " c1")
		e.clean("c1", 1)

		if conformance.Full() {
			e.docker("network connect far/blue c1") // of another tenant
			e.reaches("c1", "ping", other.addr("pb", "far/blue"), true)
		}
		e.docker("network connect guard c1")
		in := e.addr("c1", "guard")
		other.reaches("peer", "ping", in, true)
		other.reaches("peer", "80", in, false) // the rule
		other.reaches("pd", "80", in, true)
		if conformance.Full() {
			e.docker("network disconnect far/blue c1")
		}
		e.docker("network disconnect guard c1")
		other.reaches("pd", "ping", in, false)
		e.clean("c1", 1)
	}
	e.refused("network connect net1/blue c1", "conflicts with existing route") // Docker's own refusal
	e.clean("c1", 1)
	stop()
	traffic.Wait()
	if pings == 0 {
		b.t.Error("no traffic ran on the first network")
	}
	if conformance.Full() {
		startsWithTwo(b, e, other)
	}
	e.docker("rm -f c1")
	other.docker("rm -f peer pl pa pb pd")
	b.nothingLeft()
}

// startsWithTwo: a container has two networks without a gateway from its start, over its
// restart and netplugin's.
func startsWithTwo(b *bed, e, other *engine) {
	b.t.Helper()
	e.docker("create --name c2 --net lone bb httpd -f -h /www")
	e.docker("network connect alone c2")
	e.docker("start c2")
	for range 2 {
		for _, network := range []string{"lone", "alone"} {
			other.reaches("peer", "ping", e.addr("c2", network), true)
		}
		e.docker("restart -t 0 c2")
	}
	e.must(e.host.RestartAgent(b.t.Context(), e.env()...))
	e.docker("network disconnect lone c2") // the new process does not know what the old one did
	other.reaches("peer", "ping", e.addr("c2", "alone"), true)
	e.docker("network connect lone c2")
	other.reaches("peer", "ping", e.addr("c2", "lone"), true)
	e.docker("rm -f c2")
}

// clean waits until a container has so many interfaces, and rules of routing of these only.
func (e *engine) clean(container string, interfaces int) {
	e.t.Helper()
	pid := e.docker("inspect -f {{.State.Pid}} " + container)
	e.until("nothing is left in "+container, time.Minute, func() error {
		var errs []error
		for _, family := range []string{"-4", "-6"} {
			rules, err := e.Inside(e.t.Context(), "nsenter", "--net=/proc/"+pid+"/ns/net", "ip", family, "rule")
			if n := strings.Count(rules, "30000:"); n > interfaces {
				errs = append(errs, fmt.Errorf("%d rules: %s", n, rules))
			}
			errs = append(errs, err)
		}
		links, err := e.Inside(e.t.Context(), "nsenter", "--net=/proc/"+pid+"/ns/net", "ip", "-o", "-4", "addr", "show", "scope", "global")
		if n := strings.Count(links, "inet "); n != interfaces {
			errs = append(errs, fmt.Errorf("%d addresses: %s", n, links))
		}
		return errors.Join(append(errs, err)...)
	})
}
