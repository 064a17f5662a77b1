package openflow

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzReplies feeds foreign bytes to the readers of what a switch answers beside flows:
// its messages, counters of ports, ports, errors and changes of flows. None may panic or
// read beyond what it was given, and what they make of it is as long as its parts say.
func FuzzReplies(f *testing.F) {
	port := make([]byte, 2*72)
	for i := range 2 {
		p := port[72*i:]
		p[3], p[5] = byte(i+1), 72
		copy(p[16:], "veth0")
	}
	counters := make([]byte, 112)
	counters[1], counters[7], counters[47] = 112, 3, 9
	changed := make([]byte, 8+32)
	changed[1], changed[9], changed[11] = multipartFlowMonitor, 32, flowRemoved
	refused := finish(append(appendMessage(nil, typeError, 7), 0, 1, 0, 5, 'w', 'h', 'y'), 0)
	for _, b := range [][]byte{port, counters, changed, refused, refused[headerLen:], {0, 4, 0, 0}} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		kept := bytes.Clone(b)
		// Entries that were read, and the bytes that their lengths say.
		n, taken := 0, 0
		err := readPortStats(b, func(s PortStats) {
			if s.Port != binary.BigEndian.Uint32(b[taken+4:]) || s.TxBytes != binary.BigEndian.Uint64(b[taken+40:]) {
				t.Fatalf("%x: counters %+v at %d", b, s, taken)
			}
			n, taken = n+1, taken+int(binary.BigEndian.Uint16(b[taken:]))
		})
		if (err == nil) != (taken == len(b)) {
			t.Fatalf("%x: %d counters of %d bytes, %v", b, n, taken, err)
		}
		taken = 0
		err = readPortDesc(b, func(p PortDesc) {
			if len(p.Name) > 16 || bytes.ContainsRune([]byte(p.Name), 0) || p.MAC != [6]byte(b[taken+8:taken+14]) {
				t.Fatalf("%x: port %+v at %d", b, p, taken)
			}
			taken += int(binary.BigEndian.Uint16(b[taken+4:]))
		})
		if (err == nil) != (taken == len(b)) {
			t.Fatalf("%x: ports of %d bytes, %v", b, taken, err)
		}
		if e, err := readError(b); err == nil && (e.Error() == "" || len(e.Data) != len(b)-4) {
			t.Fatalf("%x: error %+v", b, e)
		}
		w := &flowWatch{0, 0, make(chan struct{}, 1)}
		w.notify(reply{typ: typeMultipartRep, body: b})
		told := len(w.changed) == 1
		w.notify(reply{typ: typeMultipartRep, body: b}) // the first notification is still pending: it does not block
		if told != (len(w.changed) == 1) {
			t.Fatalf("%x: told once only", b)
		}
		read(t, b)
		if !bytes.Equal(kept, b) {
			t.Fatalf("%x was changed to %x", kept, b)
		}
	})
}

// read takes a stream apart, whose messages put together are what was read of it.
func read(t *testing.T, b []byte) {
	t.Helper()
	var again []byte
	for r := bufio.NewReader(bytes.NewReader(b)); ; {
		m, err := readMessage(r, version)
		if err != nil {
			break
		}
		again = finish(append(appendMessage(again, m.typ, m.xid), m.body...), len(again))
		if again[len(again)-len(m.body)-headerLen] = b[len(again)-len(m.body)-headerLen]; !bytes.HasPrefix(b, again) {
			t.Fatalf("%x was read as %x", b, again)
		}
	}
}
