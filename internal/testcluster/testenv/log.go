package testenv

import (
	"bytes"
	"strings"
	"sync"
)

// Log keeps what a program under test writes. It is safe for concurrent use; the zero value
// is ready for use.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns what has been written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Count returns how often a text has been written.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }

// Line returns the first line that has a text in it; empty = none has.
func (l *Log) Line(with string) string {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, with) {
			return line
		}
	}
	return ""
}
