package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"

	"github.com/contiv/netplugin/v2/internal/base/flags"
)

// LogConfig says where and how to log. Register binds it to flags.
type LogConfig struct {
	Level        string // DEBUG, INFO, WARN, ERROR
	JSON         bool
	Syslog       bool
	SyslogURL    string // protocol://ip:port or unix:///path
	SyslogFormat string // auto, rfc5424, rfc3164
}

// DefaultLog logs as 1.x did: INFO, as text, to stderr.
func DefaultLog() LogConfig {
	return LogConfig{Level: "INFO", SyslogURL: "udp://127.0.0.1:514", SyslogFormat: "auto"}
}

// Register binds the logging flags of 1.x; envPrefix begins the names of their
// environment variables, such as "CONTIV_NETMASTER_".
func (c *LogConfig) Register(fs *flags.Set) {
	fs.Enum(&c.Level, "log-level", "level", "least level to log: DEBUG, INFO, WARN or ERROR", "DEBUG", "INFO", "WARN", "ERROR")
	fs.Bool(&c.JSON, "use-json-log, json-log", "log as JSON instead of text")
	fs.Bool(&c.Syslog, "use-syslog, syslog", "log to syslog too")
	fs.String(&c.SyslogURL, "syslog-url", "url", "syslog server: udp://ip:port, tcp://ip:port or unix:///dev/log").Must(func(v string) error { _, err := parseSyslogURL(v); return err })
	fs.Enum(&c.SyslogFormat, "syslog-format", "format", "rfc5424, rfc3164, or auto: rfc3164 on unix sockets and rfc5424 elsewhere", "auto", "rfc5424", "rfc3164")
}

// Open returns the logger and a function that flushes and closes it.
func (c LogConfig) Open(program string, stderr io.Writer) (*slog.Logger, func() error, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(strings.ToUpper(c.Level))); err != nil {
		return nil, nil, flags.Usagef("--log-level %q: must be one of DEBUG, INFO, WARN, ERROR", c.Level)
	}
	opts := &slog.HandlerOptions{Level: level}
	var h slog.Handler
	if c.JSON {
		h = slog.NewJSONHandler(stderr, opts)
	} else {
		h = slog.NewTextHandler(stderr, opts)
	}
	if !c.Syslog {
		log := slog.New(h)
		if d := DefaultLog(); c.SyslogURL != d.SyslogURL || c.SyslogFormat != d.SyslogFormat {
			log.Warn("a flag has no effect", "flag", "--syslog-url, --syslog-format", "why", "nothing is sent to syslog without --use-syslog")
		}
		return log, func() error { return nil }, nil
	}
	sink, err := newSyslogSink(c, program)
	if err != nil {
		return nil, nil, flags.Usagef("--syslog-url %q: %w", c.SyslogURL, err)
	}
	return slog.New(teeHandler{h, newSyslogHandler(sink, level, c.JSON)}), sink.Close, nil
}

// teeHandler hands each record to two handlers.
type teeHandler [2]slog.Handler

func (t teeHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return t[0].Enabled(ctx, l) || t[1].Enabled(ctx, l)
}

func (t teeHandler) Handle(ctx context.Context, r slog.Record) error {
	var errs []error
	for _, h := range t {
		if h.Enabled(ctx, r.Level) {
			errs = append(errs, h.Handle(ctx, r.Clone()))
		}
	}
	return errors.Join(errs...)
}

func (t teeHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return teeHandler{t[0].WithAttrs(a), t[1].WithAttrs(a)}
}

func (t teeHandler) WithGroup(name string) slog.Handler {
	return teeHandler{t[0].WithGroup(name), t[1].WithGroup(name)}
}
