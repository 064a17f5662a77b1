package netctl

import (
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// safeWriter writes text for terminals: whatever servers, hosts and containers put into
// it, what steers a terminal is shown instead of sent. All of netctl's output goes
// through one.
type safeWriter struct {
	to   io.Writer
	rest []byte // the beginning of a rune that the next write ends
}

// Write implements io.Writer.
func (w *safeWriter) Write(p []byte) (int, error) {
	text := slices.Concat(w.rest, p)
	w.rest = nil
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			w.rest = append([]byte(nil), text...)
			break
		}
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1: // some terminals take single bytes for controls
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case r != '\n' && r != '\t' && hidden(r):
			out = append(out, escapedRune(r)...)
		default:
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	if _, err := w.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
