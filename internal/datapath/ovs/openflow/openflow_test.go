package openflow

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWireFormCarriesAllOfAFlow checks how flows print, and that the wire form carries all of a flow.
func TestWireFormCarriesAllOfAFlow(t *testing.T) {
	for _, s := range append(Samples, grouped) {
		if diff := cmp.Diff(s.Text, s.Flow.String()); diff != "" {
			t.Errorf("text (-want +got):\n%s", diff)
		}
		g, err := FromParts(s.Flow.Key(), s.Flow.Body())
		if err != nil {
			t.Errorf("wire form of %s: %v", s.Text, err)
			continue
		}
		if g.Key() != s.Flow.Key() || g.Body() != s.Flow.Body() || g.String() != s.Text {
			t.Errorf("through the wire %s became %s", s.Text, g)
		}
	}
}

// FuzzFlowStats feeds foreign bytes to the decoder of flow dumps: it must not
// panic, and what it accepts must print and encode alike.
func FuzzFlowStats(f *testing.F) {
	for _, s := range Samples {
		fl := s.Flow
		e := make([]byte, 48)
		e[2], e[12], e[13] = fl.Table, byte(fl.Priority>>8), byte(fl.Priority)
		e = appendInstructions(fl.Match.appendWire(e), fl.Actions)
		e[0], e[1] = byte(len(e)>>8), byte(len(e))
		f.Add(e)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = readFlowStats(b, false, func(s FlowStats) {
			if s.Err != nil {
				return
			}
			g, err := FromParts(s.Flow.Key(), s.Flow.Body())
			if err != nil {
				t.Fatalf("own encoding of %s: %v", s.Flow, err)
			}
			if g.Key() != s.Flow.Key() || g.Body() != s.Flow.Body() || g.String() != s.Flow.String() {
				t.Fatalf("decoded %s, again %s", s.Flow, g)
			}
		})
	})
}

// FuzzPacketIn feeds foreign bytes to the decoder of packets that the switch
// sends up: it must not panic.
func FuzzPacketIn(f *testing.F) {
	m := NewMatch(Eq(InPort, 3), Eq(Reg0, 7), Eq(Reg15, 0xffffffff)).appendWire(nil)
	b := append(append(make([]byte, 16), m...), 0, 0, 'f', 'r', 'a', 'm', 'e')
	b[7], b[15] = 12, 5
	p, err := readPacketIn(b)
	if err != nil || p.Table != 12 || p.Cookie != 5 || string(p.Frame) != "frame" ||
		p.Register(InPort) != 3 || p.Register(Reg0) != 7 || p.Register(Reg15) != 0xffffffff || p.Register(Reg1) != 0 {
		f.Errorf("%x was read as %+v, %v", b, p, err)
	}
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = readPacketIn(b)
	})
}
