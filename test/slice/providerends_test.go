//go:build integration

package slice

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// exchange asks a service again and again who answers, until stop. Over UDP, without
// retransmission, each question has one answer or is lost.
type exchange struct {
	conn     net.Conn
	provider string
	answered atomic.Int64
	ended    atomic.Pointer[error] // why
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

// why returns why an exchange has ended; nil = it has not.
func (x *exchange) why() error {
	if err := x.ended.Load(); err != nil {
		return *err
	}
	return nil
}

// by is how it goes: the protocol and both ends.
func (x *exchange) by() string {
	return fmt.Sprint(x.conn.LocalAddr().Network(), " ", x.conn.LocalAddr(), " to ", x.conn.RemoteAddr())
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
			err = fmt.Errorf("at %s: %w", time.Now().Format(time.TimeOnly), err)
			x.ended.Store(&err)
			return
		}
		x.answered.Add(1)
	}
}

// exchanges are some from c to all providers of a service's port 8000, half of them
// by TCP and half by UDP.
type exchanges struct {
	c       *cluster
	all     []*exchange
	stop    chan struct{}
	running sync.WaitGroup
}

// exchange begins n exchanges, to each address in turn.
func (c *cluster) exchange(vips []netip.Addr, n int) *exchanges {
	c.t.Helper()
	x := &exchanges{c: c, stop: make(chan struct{})}
	begin := func(proto string, at netip.Addr) (*exchange, error) {
		conn, err := c.space("c").Dial(c.t.Context(), proto, netip.AddrPortFrom(at, 8000).String())
		if err != nil {
			return nil, err
		}
		one := &exchange{conn: conn}
		if one.provider, err = one.once(); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		c.t.Cleanup(func() { _ = conn.Close() }) // what it has told is known
		return one, nil
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for i := range n {
		if err := testcluster.Until(ctx, "a provider's answer", func(context.Context) error { // the service may be new
			one, err := begin([]string{"tcp", "udp"}[i%2], vips[i/2%len(vips)])
			if err == nil {
				x.all = append(x.all, one)
			}
			return err
		}); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, one := range x.all {
		x.running.Go(func() { one.run(x.stop) })
	}
	return x
}

// goOn wants more answers of all providers but one that is gone.
func (x *exchanges) goOn(when, gone string) {
	x.c.t.Helper()
	var was []int64
	for _, one := range x.all {
		was = append(was, one.answered.Load())
	}
	end := time.Now().Add(20 * time.Second)
	for i, one := range x.all {
		for one.provider != gone && one.answered.Load() < was[i]+10 {
			if time.Now().After(end) {
				x.c.t.Fatalf("%s: a connection to %s, %s: %v after %d answers", when, one.provider, one.by(), one.why(), one.answered.Load())
			}
			<-time.After(time.Millisecond)
		}
	}
}

// end wants each question to have been answered by all providers but one that is gone.
func (x *exchanges) end(gone string) {
	x.c.t.Helper()
	close(x.stop)
	x.running.Wait()
	var answers int64
	others := 0
	for _, one := range x.all {
		if one.provider == gone {
			continue
		}
		others++
		answers += one.answered.Load()
		if one.why() != nil {
			x.c.t.Errorf("a connection to %s, %s: %v after %d answers", one.provider, one.by(), one.why(), one.answered.Load())
		}
	}
	if others == 0 || gone != "" && others == len(x.all) {
		x.c.t.Errorf("of %d connections %d are to others than %q", len(x.all), others, gone)
	}
	x.c.t.Logf("%d connections lived, %d questions answered, none lost", others, answers)
}

// endProvider has connections by TCP and UDP to all providers of port 8000, and then
// removes one's container, and restarts netplugin on all hosts. Connections to the other
// providers exchange on and lose nothing; new ones go to the others, 100 ms after the
// container's end at the latest (5 s where tests run beside this one).
func (c *cluster) endProvider(vips []netip.Addr, ends testcluster.ContainerSpec) {
	c.t.Helper()
	ctx := c.t.Context()
	x := c.exchange(vips, 32)
	x.goOn("at first", "")
	if err := c.DelContainer(ctx, ends); err != nil {
		c.t.Fatal(err)
	}
	gone, limit := time.Now(), 5*time.Second
	if conformance.Full() {
		limit = 100 * time.Millisecond
	}
	last, asked := time.Duration(0), 0
	for time.Since(gone) < limit+time.Second {
		begun := time.Since(gone)
		a := c.space("c").Probe(ctx, testcluster.Target{Proto: "tcp", Addr: vips[asked%len(vips)], Port: 8000}, time.Second)
		if asked++; a.Verdict != testcluster.OK || a.From == ends.Name {
			last = begun
			if begun > limit {
				c.t.Errorf("%v after its end a new connection went to %s: %s", begun, ends.Name, a.Verdict)
			}
		}
	}
	x.goOn("after a provider's end", ends.Name)
	c.t.Logf("of %d new connections after a provider's end the last that went there began after %v", asked, last)
	for _, h := range c.Hosts() {
		if err := h.RestartAgent(ctx); err != nil {
			c.t.Fatal(err)
		}
	}
	x.goOn("after restarts of netplugin", ends.Name)
	x.end(ends.Name)
}
