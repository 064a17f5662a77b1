package join

import (
	"context"
	"fmt"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newZap is what etcd writes its log to: warnings and errors become slog's, the rest
// is for who debugs. What ends the process elsewhere ends atEnd's goroutine.
func newZap(log *slog.Logger, atEnd zapcore.CheckWriteHook) *zap.Logger {
	return zap.New(&core{handler: log.Handler()}, zap.WithFatalHook(atEnd), zap.WithPanicHook(atEnd))
}

type core struct{ handler slog.Handler }

// routine is what etcd says at a level above what it means here: a learner that has
// not caught up is asked about again, members come and go.
var routine = map[string]bool{
	"rejecting promote learner: learner is not ready":                                      true,
	"setting up serving from embedded etcd failed.":                                        true, // at every Close
	"Running http and grpc server on single port. This is not recommended for production.": true,
	"simple token is not cryptographically signed":                                         true,
}

func level(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	case l == zapcore.InfoLevel:
		return slog.LevelDebug
	}
	return slog.LevelDebug - 1
}

func (c *core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), level(l))
}

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{c.handler.WithAttrs(attrs(fields))}
}

func (c *core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	l := level(e.Level)
	if routine[e.Message] {
		l = slog.LevelDebug
	}
	if !c.handler.Enabled(context.Background(), l) {
		return nil
	}
	r := slog.NewRecord(e.Time, l, "etcd: "+e.Message, 0)
	r.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), r)
}

func (c *core) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
	enc := zapcore.NewMapObjectEncoder()
	out := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
		out = append(out, slog.String(f.Key, fmt.Sprint(enc.Fields[f.Key])))
	}
	return out
}
