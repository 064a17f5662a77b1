//go:build integration

package slice

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/lab"
)

// exchange asks over a connection who is there, again and again until stop. Over UDP,
// where nobody sends anything twice, each question has one answer or is lost.
type exchange struct {
	conn     net.Conn
	provider string
	answered atomic.Int64
	err      error // once it has ended
}

func (x *exchange) once() (string, error) {
	if err := x.conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(x.conn, "who"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(x.conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func (x *exchange) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond): // 200 a second at most
		}
		who, err := x.once()
		if err == nil && who != x.provider {
			err = fmt.Errorf("answered by %q", who)
		}
		if err != nil {
			x.err = err
			return
		}
		x.answered.Add(1)
	}
}

// providerEnds has connections by TCP and UDP to all providers of port 8000, and then
// removes one's container, restarts netplugin on all hosts, and with -full makes and
// deletes 200 other services. Connections to the other providers exchange on and lose
// nothing; new ones go to the others, 100 ms after the container's end at the latest
// (5 s where tests run beside this one).
func (c *cluster) providerEnds(vips []netip.Addr, ends lab.ContainerSpec) {
	c.t.Helper()
	ctx := c.t.Context()
	var all []*exchange
	stop := make(chan struct{})
	var running sync.WaitGroup
	defer func() {
		for _, x := range all {
			_ = x.conn.Close() // what it has told is known
		}
	}()
	for i := range 32 {
		conn, err := c.space("c").Dial(ctx, []string{"tcp", "udp"}[i%2], netip.AddrPortFrom(vips[i/2%len(vips)], 8000).String())
		if err != nil {
			c.t.Fatal(err)
		}
		x := &exchange{conn: conn}
		all = append(all, x)
		if x.provider, err = x.once(); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, x := range all {
		running.Go(func() { x.run(stop) })
	}
	counted := func() (n []int64) {
		for _, x := range all {
			n = append(n, x.answered.Load())
		}
		return n
	}
	goOn := func(when string) {
		c.t.Helper()
		was := counted()
		end := time.Now().Add(20 * time.Second)
		for i, x := range all {
			for x.provider != ends.Name && x.answered.Load() < was[i]+10 {
				if time.Now().After(end) {
					c.t.Fatalf("%s: a connection to %s answers no more", when, x.provider)
				}
				<-time.After(time.Millisecond)
			}
		}
	}
	goOn("at first")
	if err := c.DelContainer(ctx, ends); err != nil {
		c.t.Fatal(err)
	}
	gone, limit := time.Now(), 5*time.Second
	if *full {
		limit = 100 * time.Millisecond
	}
	last, asked := time.Duration(0), 0
	for time.Since(gone) < limit+time.Second {
		begun := time.Since(gone)
		a := c.space("c").Probe(ctx, lab.Target{Proto: "tcp", Addr: vips[asked%len(vips)], Port: 8000}, time.Second)
		if asked++; a.Verdict != lab.OK || a.From == ends.Name {
			last = begun
			if begun > limit {
				c.t.Errorf("%v after its end a new connection went to %s: %s", begun, ends.Name, a.Verdict)
			}
		}
	}
	goOn("after a provider's end")
	c.t.Logf("of %d new connections after a provider's end the last that went there began after %v", asked, last)
	for _, h := range c.Hosts() {
		if err := h.RestartAgent(ctx); err != nil {
			c.t.Fatal(err)
		}
	}
	goOn("after restarts of netplugin")
	if *full {
		c.comeAndGo(200)
		goOn("after 200 other services")
	}
	close(stop)
	running.Wait()
	var answers int64
	others := 0
	for _, x := range all {
		if x.provider == ends.Name {
			continue
		}
		others++
		answers += x.answered.Load()
		if x.err != nil {
			c.t.Errorf("a connection to %s, %s: %v after %d answers", x.provider, x.conn.LocalAddr().Network(), x.err, x.answered.Load())
		}
	}
	if others == 0 || others == len(all) {
		c.t.Errorf("of %d connections %d are to others than %s", len(all), others, ends.Name)
	}
	c.t.Logf("%d connections to others lived, %d questions answered, none lost", others, answers)
}

// comeAndGo makes and deletes services of the same providers.
func (c *cluster) comeAndGo(n int) {
	c.t.Helper()
	client := c.client()
	defer client.Close()
	for i := range n {
		s := api.ServiceLB{
			TenantName: "blue", ServiceName: fmt.Sprint("s", i%7), NetworkName: "net", Selectors: []string{"app=web"}, Ports: []string{"9000:80:TCP", "9000:80:UDP"},
		}
		if _, err := client.ServiceLBs().Create(c.t.Context(), s); err != nil {
			c.t.Fatal(err)
		}
		if err := client.ServiceLBs().Delete(c.t.Context(), "blue:"+s.ServiceName); err != nil {
			c.t.Fatal(err)
		}
	}
}
