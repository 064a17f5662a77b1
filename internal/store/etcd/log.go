package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewZap returns a zap logger, which is what etcd writes to, over a slog one. etcd's
// information is of interest for debugging only. atEnd is what happens where etcd cannot go
// on.
func NewZap(log *slog.Logger, atEnd zapcore.CheckWriteHook) *zap.Logger {
	return zap.New(&zapCore{handler: log.Handler()}, zap.WithFatalHook(atEnd), zap.WithPanicHook(atEnd))
}

type zapCore struct{ handler slog.Handler }

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

func (c *zapCore) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), level(l))
}

func (c *zapCore) With(fields []zapcore.Field) zapcore.Core {
	return &zapCore{handler: c.handler.WithAttrs(attrs(fields))}
}

func (c *zapCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// routine is what etcd warns of although it is as it should be here, or
// reaches the caller as an error anyway.
var routine = map[string]bool{
	"retrying of unary invoker failed": true, // returned by the call
	"creating peer listener failed":    true, // as well
	// A member that joins has no schema until it has the leader's snapshot.
	"Failed to detect schema version":  true,
	"failed to update storage version": true,
	// A member that ends, or whose peer does; another message says that the peer is
	// inactive.
	"closed TCP streaming connection with remote peer": true,
	"lost TCP streaming connection with remote peer":   true,
	"failed to find remote peer in cluster":            true,
	// The answer to a read index request that was sent again, as when the leader changes.
	"ignored out-of-date read index response; local node read indexes queueing up and waiting to be in sync with leader": true,
	// A learner that has not caught up is asked about again; members come and go.
	"rejecting promote learner: learner is not ready":                                      true,
	"Running http and grpc server on single port. This is not recommended for production.": true,
	"simple token is not cryptographically signed":                                         true, // authentication is off
	"setting up serving from embedded etcd failed.":                                        true, // at every Close; else Server.Err tells
	"prober detected unhealthy status":                                                     true, // a member that restarts; that one is away status tells
	"stopping insecure grpc server due to error":                                           true,
	"stopped insecure grpc server due to error":                                            true,
}

func (c *zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	l := level(e.Level)
	if routine[e.Message] || isShutdown(e, fields) {
		if l = slog.LevelDebug; !c.handler.Enabled(context.Background(), l) {
			return nil
		}
	}
	r := slog.NewRecord(e.Time, l, "etcd: "+e.Message, 0)
	r.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), r)
}

// isShutdown reports whether an entry tells only that this member is being ended.
func isShutdown(e zapcore.Entry, fields []zapcore.Field) bool {
	return e.Message == "failed to process Raft message" && slices.ContainsFunc(fields, func(f zapcore.Field) bool {
		err, ok := f.Interface.(error)
		return ok && err.Error() == "raft: stopped" // raft.ErrStopped
	})
}

func (c *zapCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
	enc := zapcore.NewMapObjectEncoder()
	out := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
		switch v := enc.Fields[f.Key].(type) {
		case nil:
		case time.Duration, time.Time, string, bool, int64, uint64, int, float64:
			out = append(out, slog.Any(f.Key, v))
		default:
			out = append(out, slog.String(f.Key, fmt.Sprint(v)))
		}
	}
	return out
}
