package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"
)

// MaxLine is the longest line that every Lines takes whole.
const MaxLine = syslogMaxBytes

// localSyslog is where a machine's own syslog listens (systemd-journald too).
const localSyslog = "unix:///dev/log"

// Lines take records of a program, one a line, that are not its log. Write does
// not wait for longer than some seconds, and what it fails for is not there; its
// caller may try again. Lines are for one goroutine, but for Reopen.
type Lines interface {
	Write(ctx context.Context, line []byte) error
	// Reopen has the next line go to a new file of the same name.
	Reopen()
	Close() error
	String() string // names it to people
}

// CheckLines reports whether OpenLines takes a name.
func CheckLines(to string) error {
	switch _, err := parseSyslogURL(to); {
	case to == "syslog", filepath.IsAbs(to), err == nil:
		return nil
	case strings.Contains(to, "://"):
		return fmt.Errorf("must be the path of a file, syslog, or the URL of a syslog server, which %w", err)
	}
	return errors.New("must be the absolute path of a file, syslog, or the URL of a syslog server")
}

// OpenLines names where lines go: a file, by its absolute path; this machine's syslog; or a
// server, by a URL of --syslog-url, whose messages have the format (of
// LogConfig.SyslogFormat) and the tag. Nothing is opened before the first line. A target
// that cannot be opened is tried again with each line.
func OpenLines(to, format, tag string) (Lines, error) {
	if filepath.IsAbs(to) {
		return &lineFile{path: to}, nil
	}
	if to == "syslog" {
		to = localSyslog
	}
	peer, err := newSyslogPeer(to, format, tag)
	if err != nil {
		return nil, err
	}
	return &syslogLines{peer: peer, name: "syslog " + to}, nil
}

// syslogLines sends lines to syslog, with severity info.
type syslogLines struct {
	peer *syslogPeer
	name string
}

// Write implements Lines.
func (s *syslogLines) Write(ctx context.Context, line []byte) error {
	if err := s.peer.send(ctx, s.peer.format(slog.LevelInfo, time.Now(), line)); err != nil {
		return fmt.Errorf("write to %s: %w", s.name, err)
	}
	return nil
}

// Reopen implements Lines: broken connections are replaced anyway.
func (s *syslogLines) Reopen() {}

// Close implements Lines.
func (s *syslogLines) Close() error {
	s.peer.hangUp()
	return nil
}

// String implements Lines.
func (s *syslogLines) String() string { return s.name }
