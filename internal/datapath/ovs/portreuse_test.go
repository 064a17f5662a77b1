package ovs

import "testing"

// TestReusedPortNameGetsANewPort: a container leaves, and one comes at once by an interface of the same
// name, both while the switch is too busy to look. It takes in what the new one sends.
func TestReusedPortNameGetsANewPort(t *testing.T) {
	l := newLive(t, 2)
	defer func() { _ = l.drv.Close() }()
	a, b := l.boxes[0], l.boxes[1]
	reaches := func(when string) {
		t.Helper()
		eventually(t, when+" to be reached", func() bool {
			return l.in(a, "ping", "-c", "1", "-W", "1", b.port.IPv4.String()).Run() == nil
		})
	}
	reaches("the first one")

	l.recreate(t, a)
	l.apply(t)
	reaches("the new one")
}

// recreate deletes a box's port and makes it again, with another interface, before the
// switch notices.
func (l *live) recreate(t *testing.T, b *box) {
	t.Helper()
	d := l.drv
	d.mu.Lock() // nothing else is applied
	defer d.mu.Unlock()
	l.PauseSwitch()
	gone := l.pic
	gone.Ports = gone.Ports.Delete(b.port.IfName)
	if n, err := d.ports.removePorts(t.Context(), gone); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	l.Run("ip", "-n", l.NS, "link", "del", b.port.IfName)
	l.plug(b)
	made := make(chan error, 1)
	go func() {
		_, _, err := d.ports.ensurePorts(t.Context(), l.pic)
		made <- err
	}()
	eventually(t, "the port to be made, or waited for", func() bool {
		there := l.Vsctl("--no-wait", "--bare", "find", "port", "name="+b.port.IfName) != ""
		d.conns.db.mu.Lock()
		defer d.conns.db.mu.Unlock()
		return there || d.conns.db.next > d.conns.db.current
	})
	l.ResumeSwitch()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
}
