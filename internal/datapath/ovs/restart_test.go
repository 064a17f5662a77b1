package ovs

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// restarts restarts the driver three times under pings of both families and a TCP
// connection between two containers, which go on, and nothing is rewritten. It
// returns the connection, and what ends the pings and wants all of them answered.
func (l *live) restarts(t *testing.T, a, b *box) (c net.Conn, answered func()) {
	t.Helper()
	l.echo(t, b, 80)
	c, err := l.dial(t, a, b.port.IPv4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	stops := []func() (int, int){l.ping(t, a, b.port.IPv4), l.ping(t, a, b.port.IPv6)}
	for range 3 {
		if err := l.drv.Close(); err != nil {
			t.Fatal(err)
		}
		if err := roundTrip(c, time.Second); err != nil {
			t.Errorf("without a driver: %v", err)
		}
		l.open(t)
		if rep := l.apply(t); rep.Changes != 0 {
			t.Errorf("a restart made %d changes", rep.Changes)
		}
		if err := roundTrip(c, time.Second); err != nil {
			t.Errorf("after a restart: %v", err)
		}
	}
	return c, func() {
		t.Helper()
		for i, stop := range stops {
			if sent, got := stop(); got < sent-1 || got == 0 { // the last one may be under way
				t.Errorf("ping over IPv%d: %d of %d answered", 4+2*i, got, sent)
			}
		}
	}
}

// TestRestartLosesNothing restarts the driver under a ping every 10 ms over
// IPv4 and IPv6 and a TCP connection: nothing is lost, and nothing rewritten.
func TestRestartLosesNothing(t *testing.T) {
	l := newLive(t, 2)
	a, b := l.boxes[0], l.boxes[1]
	_, answered := l.restarts(t, a, b)
	defer l.drv.Close()
	l.tellsTables(t)
	answered()
}

// TestConnectionsSurviveASwitchCrash kills the switch daemon: flows are back without an Apply, new
// connections work within 2 s of its start, and established TCP connections
// whose opening side speaks go on.
func TestConnectionsSurviveASwitchCrash(t *testing.T) {
	l := newLive(t, 2)
	defer l.drv.Close()
	a, b := l.boxes[0], l.boxes[1]
	l.deny(b, 443, true)
	l.apply(t)
	l.echo(t, b, 80)
	l.echo(t, b, 443)
	old, err := l.dial(t, a, b.port.IPv4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := roundTrip(old, time.Second); err != nil {
		t.Fatal(err)
	}
	l.KillSwitch()
	start := time.Now()
	l.StartSwitch()
	t.Logf("switch answers its control socket after %v", time.Since(start))
	for {
		c, err := l.dial(t, a, b.port.IPv4, 80, 100*time.Millisecond)
		if err == nil {
			err = roundTrip(c, time.Second)
			c.Close()
		}
		if err == nil {
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("no new connection after %v: %v", time.Since(start), err)
		}
	}
	took := time.Since(start)
	t.Logf("a new connection works %v after the switch's start", took)
	if took > 2*time.Second && !ovstest.Kernel() { // the kernels are emulated
		t.Errorf("a new connection works %v after the switch's start, want 2 s at most", took)
	}
	if err := roundTrip(old, 5*time.Second); err != nil {
		t.Errorf("the established connection: %v", err)
	}
	if _, err := l.dial(t, a, b.port.IPv4, 443, 300*time.Millisecond); err == nil {
		t.Error("what policy denies passes after the crash")
	}
	select {
	case <-l.drv.Events():
	case <-time.After(5 * time.Second):
		t.Error("no event")
	}
}

// TestServerSpeaksFirstAfterCrash pins what is lost when user space's connection
// tracking dies with the switch and policy denies the server's side to open
// connections: the server's data do not pass until the client has sent something.
func TestServerSpeaksFirstAfterCrash(t *testing.T) {
	if ovstest.Kernel() {
		t.Skip("the kernel's connection tracking outlives the switch")
	}
	l := newLive(t, 2)
	defer l.drv.Close()
	a, b := l.boxes[0], l.boxes[1]
	p := *a.port
	p.Policies = 6
	a.port = &p
	l.pic.Ports = l.pic.Ports.Set(p.IfName, &p)
	l.pic.PolicySets = l.pic.PolicySets.Set(6, &desired.PolicySet{ID: 6, Name: "closed", In: []desired.Tier{{Default: model.Deny}}})
	l.apply(t)
	accepted := l.acceptOne(t, b, ":80")
	client, err := l.dial(t, a, b.port.IPv4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server := <-accepted
	defer server.Close()
	expect := func(within time.Duration) error {
		_ = client.SetReadDeadline(time.Now().Add(within))
		_, err := client.Read(make([]byte, 1))
		return err
	}
	if _, err := server.Write([]byte("a")); err != nil || expect(2*time.Second) != nil {
		t.Fatalf("before the crash: %v", err)
	}
	l.KillSwitch()
	l.StartSwitch()
	for start := time.Now(); time.Since(start) < 5*time.Second; { // until the flows are back
		if l.in(a, "ping", "-c", "1", "-W", "1", b.port.IPv4.String()).Run() == nil {
			break
		}
	}
	if _, err := server.Write([]byte("b")); err != nil {
		t.Fatal(err)
	}
	if expect(500*time.Millisecond) == nil {
		t.Error("the server's data pass: the documentation says that they do not")
	}
	start := time.Now()
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := expect(5 * time.Second); err != nil {
		t.Errorf("after the client has spoken: %v", err)
	}
	t.Logf("the server's data arrive %v after the client has spoken", time.Since(start))
}

// TestUnmanagedBridgeIsRefused checks that a bridge of somebody else is refused, and that
// an uplink that is a port elsewhere is left there and reported.
func TestUnmanagedBridgeIsRefused(t *testing.T) {
	s := ovstest.Start(t)
	r := rig{Server: s}
	cfg := r.config(t)
	cfg.Uplinks = []string{"theirs0"}
	s.Vsctl("add-br", "contivBr", "--", "set", "bridge", "contivBr", "datapath_type="+ovstest.Datapath())
	if _, err := open(t.Context(), cfg); !errors.Is(err, model.ErrConflict) {
		t.Errorf("open() on a foreign bridge = %v, want a conflict", err)
	}
	s.Vsctl("del-br", "contivBr", "--", "add-br", "other", "--", "set", "bridge", "other", "datapath_type="+ovstest.Datapath(),
		"--", "add-port", "other", "theirs0", "--", "set", "interface", "theirs0", "type=internal")
	d, err := open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rep, err := d.Apply(t.Context(), desired.Host{ArpMode: model.ArpProxy})
	if err != nil || len(rep.Problems) != 1 || !errors.Is(rep.Problems[0].Err, model.ErrConflict) {
		t.Errorf("Apply() = %+v, %v; want one conflict", rep, err)
	}
	if got := strings.TrimSpace(s.Vsctl("port-to-br", "theirs0")); got != "other" {
		t.Errorf("theirs0 is now on %s", got)
	}
}

// TestMissingSwitchIsReported checks what is said when nothing answers.
func TestMissingSwitchIsReported(t *testing.T) {
	r := rig{Server: &ovstest.Server{DB: "unix:" + t.TempDir() + "/none.sock", RunDir: t.TempDir()}}
	if _, err := New(t.Context(), r.config(t)); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "--ovs-db") {
		t.Errorf("New() = %v, want unavailable and the flag", err)
	}
	cfg := r.config(t)
	cfg.Datapath = "dpdk"
	if _, err := New(t.Context(), cfg); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("New() with datapath dpdk = %v, want invalid", err)
	}
}

// TestApplyReportsAnUnresponsiveSwitch stops the switch daemon: Apply says that it does not answer,
// and its tables are not told of; it goes on when the daemon does.
func TestApplyReportsAnUnresponsiveSwitch(t *testing.T) {
	l := newLive(t, 1)
	defer l.drv.Close()
	l.PauseSwitch()
	l.drv.patience, l.drv.flows.verified = 100*time.Millisecond, time.Time{}
	start := time.Now()
	_, err := l.drv.Apply(t.Context(), l.pic)
	if took := time.Since(start); !errors.Is(err, model.ErrUnavailable) || took > 10*time.Second {
		t.Errorf("Apply() = %v after %v", err, took)
	}
	if got := l.drv.Tables(); len(got) != 0 && !ovstest.Kernel() { // whose connections the kernel tells of
		t.Errorf("tables %v", got)
	}
	l.ResumeSwitch()
	l.drv.patience = switchTimeout
	l.apply(t)
}

// TestHungSwitchIsReported stops the switch daemon while nothing changes: within 10 s there is an
// event, by which Apply says at once that it does not answer, and another one when it does.
func TestHungSwitchIsReported(t *testing.T) {
	l := newLive(t, 1)
	defer l.drv.Close()
	event := func(reason string) {
		t.Helper()
		for {
			select {
			case e := <-l.drv.Events():
				if strings.Contains(e.Reason, reason) {
					return
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("no event says that %s", reason)
			}
		}
	}
	l.PauseSwitch()
	event("the switch does not answer")
	start := time.Now()
	if _, err := l.drv.Apply(t.Context(), l.pic); !errors.Is(err, model.ErrUnavailable) || time.Since(start) > time.Second {
		t.Errorf("Apply() = %v after %v", err, time.Since(start))
	}
	if _, err := l.drv.Stats(t.Context()); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("Stats() = %v", err)
	}
	if err := l.drv.Hangs(); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("Hangs() = %v", err)
	}
	l.ResumeSwitch()
	event("the switch answers again")
	if err := l.drv.Hangs(); err != nil {
		t.Errorf("Hangs() = %v of a switch that answers", err)
	}
	l.apply(t)
}

// TestDatabaseCrashIsReportedAndMended kills the database server: that is an event, Apply says that
// it cannot, and everything works again when the server is back. (In between,
// Open vSwitch 3.1 in user space forwards nothing: its main thread waits for the
// database.)
func TestDatabaseCrashIsReportedAndMended(t *testing.T) {
	l := newLive(t, 2)
	defer l.drv.Close()
	l.KillDatabase()
	await := func(what string, ok func() bool) {
		t.Helper()
		for start := time.Now(); time.Since(start) < 15*time.Second; {
			if ok() {
				return
			}
		}
		t.Fatal(what)
	}
	select { // nothing has been applied since that could have found out
	case e := <-l.drv.Events():
		if !strings.Contains(e.Reason, "database is lost") {
			t.Errorf("the first event says %q", e.Reason)
		}
	case <-time.After(15 * time.Second):
		t.Error("no event")
	}
	await("Apply() without a database succeeds", func() bool {
		_, err := l.drv.Apply(t.Context(), l.pic)
		return errors.Is(err, model.ErrUnavailable)
	})
	l.StartDatabase()
	l.addBox(t, 2)
	await("Apply() with the database again fails", func() bool {
		rep, err := l.drv.Apply(t.Context(), l.pic)
		return err == nil && rep.Ports.Err(l.boxes[2].port.IfName) == nil
	})
	for _, to := range l.boxes[1:] {
		if out, err := l.in(l.boxes[0], "ping", "-c", "1", "-W", "2", to.port.IPv4.String()).CombinedOutput(); err != nil {
			t.Errorf("ping %s: %v\n%s", to.port.IPv4, err, out)
		}
	}
}

// acceptOne listens on TCP in a box until the test ends, and hands on the first
// connection; nil when there was none.
func (l *live) acceptOne(t *testing.T, b *box, addr string) <-chan net.Conn {
	t.Helper()
	var ln net.Listener
	if err := inNamespace(b.ns, func() (err error) { ln, err = new(net.ListenConfig).Listen(t.Context(), "tcp", addr); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := ln.Accept()
		accepted <- c
	}()
	return accepted
}
