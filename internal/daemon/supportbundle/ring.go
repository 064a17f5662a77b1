package supportbundle

import (
	"bytes"
	"io"
	"sync"
)

// RingSize is how many bytes of a daemon's newest log lines are kept.
const RingSize = 1 << 20

// Ring is a writer that keeps the newest of what is written, beside handing it on. It is
// safe for concurrent use.
type Ring struct {
	next io.Writer

	mu   sync.Mutex
	buf  []byte
	at   int  // where the next byte goes
	full bool // all of buf is in use
}

// NewRing returns a Ring that keeps size bytes and hands on to next.
func NewRing(next io.Writer, size int) *Ring { return &Ring{next: next, buf: make([]byte, size)} }

// Write implements io.Writer; what it returns is next's.
func (r *Ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	kept := p
	if len(kept) > len(r.buf) {
		kept = kept[len(kept)-len(r.buf):]
	}
	for len(kept) > 0 {
		n := copy(r.buf[r.at:], kept)
		kept = kept[n:]
		if r.at += n; r.at == len(r.buf) {
			r.at, r.full = 0, true
		}
	}
	r.mu.Unlock()
	return r.next.Write(p)
}

// Bytes returns whole lines, the newest last.
func (r *Ring) Bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.full {
		return bytes.Clone(r.buf[:r.at])
	}
	out := append(bytes.Clone(r.buf[r.at:]), r.buf[:r.at]...)
	if i := bytes.IndexByte(out, '\n'); i >= 0 {
		out = out[i+1:] // the first may be a part
	}
	return out
}
