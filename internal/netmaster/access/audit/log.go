package audit

import (
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Refusals cost their sender nothing. Beyond a rate they are only counted, so that they
// cannot push the changes out of the files. Changes are always written.
const (
	refusalsPerSecond = 10
	refusalsBurst     = 200
)

// repeatErrorEvery is how often the log says that lines are lost.
const repeatErrorEvery = 10 * time.Second

// Sink takes whole lines. A write that fails leaves no part of its line.
type Sink interface {
	Write(line []byte) (int, error)
}

// Log writes entries, one a line. It is safe for concurrent use. A line is not synced to
// disk. A process that is killed between a commit and its line leaves none.
type Log struct {
	log *slog.Logger
	now func() time.Time

	mu         sync.Mutex
	sink       Sink
	refusals   *rate.Limiter
	lost       int64 // since the last line
	omitted    int64 // likewise
	total      int64 // lost ever
	failed     error // of the last line; nil = it was written
	lastLogged time.Time
}

// New returns a Log that writes to a sink: os.Stderr, or a File.
func New(to Sink, log *slog.Logger) *Log {
	return &Log{sink: to, log: log, now: time.Now, refusals: rate.NewLimiter(refusalsPerSecond, refusalsBurst)}
}

// Record writes an entry, with the time of now. What cannot be written is counted.
func (l *Log) Record(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if e.Result == Refused && !l.refusals.AllowN(now, 1) {
		l.omitted++
		return
	}
	e.Time, e.Lost, e.Omitted = now, l.lost, l.omitted
	line, err := e.line()
	if err == nil {
		_, err = l.sink.Write(line)
	}
	recovered := l.failed != nil && err == nil
	l.failed = err
	switch {
	case err != nil:
		l.lost++
		l.total++
		if now.Sub(l.lastLogged) >= repeatErrorEvery {
			l.lastLogged = now
			l.log.Error("the audit log cannot be written; changes go on without it", "error", err, "lost", l.total)
		}
	case recovered:
		l.log.Warn("the audit log is written again", "lost", l.lost)
		fallthrough
	default:
		l.lost, l.omitted = 0, 0
	}
}

// Lost is how many lines could not be written since the start, for metrics.
func (l *Log) Lost() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Err is why the last line could not be written; nil = it was, or there is none yet.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}
