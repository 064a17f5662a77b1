package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	syslogDaemon   = 3 << 3  // facility "system daemons", RFC 5424 section 6.2.1
	syslogQueue    = 1024    // messages that may wait for the network
	syslogMaxBytes = 8 << 10 // of one message; RFC 5424 section 6.1 asks receivers for 2 KiB at least
	syslogDial     = 3 * time.Second
	syslogMaxWait  = 30 * time.Second
	syslogFlush    = 2 * time.Second // how long Close waits for the queue to be sent
)

type syslogAddr struct{ network, addr string }

// parseSyslogURL reads protocol://ip:port or unix:///path; the port may be
// missing (514, RFC 5426 section 3.3).
func parseSyslogURL(s string) (syslogAddr, error) {
	want := errors.New("must be udp://ip:port, tcp://ip:port or unix:///path")
	u, err := url.Parse(s)
	if err != nil {
		return syslogAddr{}, want
	}
	switch u.Scheme {
	case "unix", "unixgram":
		if u.Host != "" || u.Path == "" {
			return syslogAddr{}, want
		}
		return syslogAddr{u.Scheme, u.Path}, nil
	case "udp", "tcp":
		port := u.Port()
		if port == "" {
			port = "514"
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || u.Hostname() == "" || u.Path != "" && u.Path != "/" {
			return syslogAddr{}, want
		}
		return syslogAddr{u.Scheme, net.JoinHostPort(u.Hostname(), port)}, nil
	}
	return syslogAddr{}, want
}

// syslogPeer is a syslog server and the connection to it, for one goroutine.
type syslogPeer struct {
	to      syslogAddr
	rfc5424 bool
	tag     string
	host    string
	conn    net.Conn // nil while there is none
}

func newSyslogPeer(url, format, tag string) (*syslogPeer, error) {
	to, err := parseSyslogURL(url)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "-" // NILVALUE
	}
	unix := to.network == "unix" || to.network == "unixgram"
	return &syslogPeer{to: to, tag: tag, host: host, rfc5424: format == "rfc5424" || format != "rfc3164" && !unix}, nil
}

// syslogSink sends messages from its own goroutine, so that a slow or dead
// server never blocks the caller: messages that do not fit the queue are counted,
// and the next message that gets through tells how many.
type syslogSink struct {
	*syslogPeer
	queue   chan []byte
	dropped atomic.Int64
	cancel  context.CancelFunc
	done    chan struct{}
	closing chan struct{}
	once    sync.Once
}

func newSyslogSink(c LogConfig, program string) (*syslogSink, error) {
	peer, err := newSyslogPeer(c.SyslogURL, c.SyslogFormat, program)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &syslogSink{
		syslogPeer: peer, queue: make(chan []byte, syslogQueue),
		cancel: cancel, done: make(chan struct{}), closing: make(chan struct{}),
	}
	go s.run(ctx)
	return s, nil
}

// Close sends what is queued, for a short while, and ends the goroutine.
func (s *syslogSink) Close() error {
	s.once.Do(func() {
		close(s.closing)
		t := time.AfterFunc(syslogFlush, s.cancel)
		defer t.Stop()
		<-s.done
		s.cancel()
	})
	return nil
}

func (s *syslogSink) put(l slog.Level, at time.Time, text []byte) {
	msg := s.format(l, at, text)
	select {
	case s.queue <- msg:
	default:
		s.dropped.Add(1)
	}
}

// severity maps slog's levels to RFC 5424 section 6.2.1.
func severity(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l >= slog.LevelInfo:
		return 6
	}
	return 7
}

func (s *syslogPeer) format(l slog.Level, at time.Time, text []byte) []byte {
	text = bytes.TrimRight(text, "\n")
	if len(text) > syslogMaxBytes {
		text = text[:syslogMaxBytes]
		for len(text) > 0 && !utf8.Valid(text[max(0, len(text)-utf8.UTFMax):]) {
			text = text[:len(text)-1]
		}
	}
	pri := syslogDaemon | severity(l)
	var b bytes.Buffer
	switch {
	case s.rfc5424:
		fmt.Fprintf(&b, "<%d>1 %s %s %s %d - - %s", pri, at.Format("2006-01-02T15:04:05.000000Z07:00"), s.host, s.tag, os.Getpid(), text)
	case s.to.network == "unix" || s.to.network == "unixgram": // local sockets: no host name
		fmt.Fprintf(&b, "<%d>%s %s[%d]: %s", pri, at.Format(time.Stamp), s.tag, os.Getpid(), text)
	default:
		fmt.Fprintf(&b, "<%d>%s %s %s[%d]: %s", pri, at.Format(time.Stamp), s.host, s.tag, os.Getpid(), text)
	}
	return b.Bytes()
}

func (s *syslogSink) run(ctx context.Context) {
	defer close(s.done)
	defer s.hangUp()
	wait := time.Duration(0)
	for {
		var msg []byte
		select {
		case msg = <-s.queue:
		case <-s.closing:
			select {
			case msg = <-s.queue:
			default:
				return
			}
		}
		for {
			err := s.send(ctx, msg)
			if err == nil {
				s.reportDropped(ctx)
				wait = 0
				break
			}
			if ctx.Err() != nil || s.isClosing() {
				return
			}
			wait = min(max(2*wait, time.Second), syslogMaxWait)
			select {
			case <-time.After(wait):
			case <-s.closing:
				return
			}
		}
	}
}

func (s *syslogSink) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// reportDropped sends how many messages were dropped; if that fails, they count for
// the next time.
func (s *syslogSink) reportDropped(ctx context.Context) {
	n := s.dropped.Swap(0)
	if n == 0 {
		return
	}
	if s.send(ctx, s.format(slog.LevelWarn, time.Now(), fmt.Appendf(nil, "msg=\"log messages lost on the way to syslog\" count=%d", n))) != nil {
		s.dropped.Add(n)
	}
}

// send sends a message, by a new connection where there is none that lives.
func (s *syslogPeer) send(ctx context.Context, msg []byte) error {
	for attempt := 0; ; attempt++ {
		fresh := s.conn == nil
		if fresh {
			c, err := s.dial(ctx)
			if err != nil {
				return err
			}
			s.conn = c
		}
		err := s.write(s.conn, msg)
		if err == nil {
			return nil
		}
		s.hangUp()
		if fresh || attempt > 0 {
			return err
		}
		// The connection was old: the server may have been restarted.
	}
}

func (s *syslogPeer) hangUp() {
	if s.conn != nil {
		_ = s.conn.Close() // nothing was left unsaid
		s.conn = nil
	}
}

func (s *syslogPeer) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: syslogDial}
	if s.to.network != "unix" {
		return d.DialContext(ctx, s.to.network, s.to.addr)
	}
	c, err := d.DialContext(ctx, "unixgram", s.to.addr) // as most daemons listen
	if err != nil {
		return d.DialContext(ctx, "unix", s.to.addr)
	}
	return c, nil
}

func (s *syslogPeer) write(c net.Conn, msg []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(syslogDial)); err != nil {
		return err
	}
	network := c.RemoteAddr().Network()
	if network == "tcp" || network == "unix" {
		if s.rfc5424 { // octet counting, RFC 6587 section 3.4.1
			msg = append(strconv.AppendInt(nil, int64(len(msg)), 10), append([]byte(" "), msg...)...)
		} else { // non-transparent framing, RFC 6587 section 3.4.2
			msg = append(bytes.ReplaceAll(msg, []byte("\n"), []byte(" ")), '\n')
		}
	}
	_, err := c.Write(msg)
	return err
}

// syslogHandler formats records with a handler of package slog, without time
// and level, which the syslog header carries.
type syslogHandler struct {
	sink  *syslogSink
	buf   *lockedBuffer
	inner slog.Handler
}

type lockedBuffer struct {
	sync.Mutex
	bytes.Buffer
}

func newSyslogHandler(sink *syslogSink, level slog.Leveler, json bool) slog.Handler {
	buf := new(lockedBuffer)
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return a
	}}
	h := &syslogHandler{sink: sink, buf: buf}
	if json {
		h.inner = slog.NewJSONHandler(&buf.Buffer, opts)
	} else {
		h.inner = slog.NewTextHandler(&buf.Buffer, opts)
	}
	return h
}

func (h *syslogHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.inner.Enabled(ctx, l)
}

func (h *syslogHandler) Handle(ctx context.Context, r slog.Record) error {
	h.buf.Lock()
	defer h.buf.Unlock()
	h.buf.Reset()
	if err := h.inner.Handle(ctx, r); err != nil {
		return err
	}
	h.sink.put(r.Level, r.Time, h.buf.Bytes())
	return nil
}

func (h *syslogHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return &syslogHandler{h.sink, h.buf, h.inner.WithAttrs(a)}
}

func (h *syslogHandler) WithGroup(name string) slog.Handler {
	return &syslogHandler{h.sink, h.buf, h.inner.WithGroup(name)}
}
