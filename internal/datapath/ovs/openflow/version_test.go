package openflow_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
)

// TestBridgeWithoutTheVersionIsRefused: a bridge that does not speak the version is not connected to, instead of
// a connection on which the switch refuses everything, and its others do no harm.
func TestBridgeWithoutTheVersionIsRefused(t *testing.T) {
	s, _, ctx := dial(t)
	path := filepath.Join(s.RunDir, "br0.mgmt")
	for _, x := range []struct {
		protocols      string
		changes, group bool
	}{
		{"OpenFlow10,OpenFlow13", false, false},
		{"OpenFlow13,OpenFlow15", false, true},
		{"OpenFlow10,OpenFlow14", true, false},
		{"OpenFlow10,OpenFlow14,OpenFlow15", true, true},
	} {
		s.Vsctl("set", "bridge", "br0", "protocols="+x.protocols)
		c, err := openflow.Dial(ctx, path)
		if err == nil {
			err = errors.Join(c.Barrier(ctx), c.Close())
		}
		g, groupErr := openflow.DialGroups(ctx, path)
		if groupErr == nil {
			groupErr = errors.Join(g.Barrier(ctx), g.Close())
		}
		for _, y := range []struct {
			err  error
			want bool
		}{{err, x.changes}, {groupErr, x.group}} {
			if (y.err == nil) != y.want || y.err != nil && !strings.Contains(y.err.Error(), "handshake") {
				t.Errorf("a bridge of %s: %v, want a connection: %v", x.protocols, y.err, y.want)
			}
		}
	}
}

// TestRefusedBarrierStopsTheWait: a switch that refuses the barrier too has answered, so the wait ends.
func TestRefusedBarrierStopsTheWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- refuseAll(l) }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := openflow.Dial(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"packets": func() error { return c.ReceiveUnbounded(ctx, func(openflow.PacketIn) {}) },
		"meter":   func() error { return c.SetMeter(ctx, 1, 1) },
		"share":   func() error { return c.LimitMeters(ctx, 1, 7, 8) },
		"bundle":  func() error { return c.Commit(ctx, additions(openflow.Flow{Table: 1, Priority: 1})) },
	} {
		if e := (*openflow.Error)(nil); !errors.As(do(), &e) {
			t.Errorf("%s: %v, want the refusal", name, do())
		}
	}
	if err := errors.Join(c.Close(), <-ended, l.Close()); err != nil {
		t.Error(err)
	}
}

// refuseAll greets one who connects, and then refuses the version of every message.
func refuseAll(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte{6, 0, 0, 8, 0, 0, 0, 0}); err != nil { // hello of 1.5 and all before
		return err
	}
	for h := make([]byte, 8); ; {
		if _, err := io.ReadFull(c, h); err != nil {
			return nil // the other end has closed
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(h[2:]))-8); err != nil {
			return err
		}
		if h[1] == 0 {
			continue
		}
		no := append([]byte{5, 1, 0, 12}, h[4:]...)
		if _, err := c.Write(append(no, 0, 1, 0, 0)); err != nil {
			return err
		}
	}
}
