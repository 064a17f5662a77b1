package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/contiv/netplugin/v2/internal/base/flags"
)

// The exit codes of our programs.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// Run calls fn with a context that SIGINT and SIGTERM cancel, and returns the
// exit code: 0 when fn returns nil or was cancelled by a signal, 2 for a
// *flags.UsageError, 1 otherwise. Errors are printed to stderr with the program's
// name. A second signal ends the process at once. SIGHUP never ends it: see
// LogHangups.
func Run(program string, stderr io.Writer, fn func(ctx context.Context) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // back to the default action, for the second signal
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	err := fn(ctx)
	var usage *flags.UsageError
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, context.Canceled):
		return ExitOK
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %v\n", program, err)
		return ExitUsage
	default:
		fmt.Fprintf(stderr, "%s: %v\n", program, err)
		return ExitFailure
	}
}

// LogHangups answers every SIGHUP with a line, until ctx ends; it calls reopen,
// unless that is nil, for the program's own files. The log goes to standard error
// and to syslog, where nothing is reopened; and a terminal that is closed, or a
// logrotate that expects files, must not end a daemon.
func LogHangups(ctx context.Context, log *slog.Logger, reopen func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-hangups:
			if reopen != nil {
				reopen()
				log.Info("SIGHUP: files are reopened at their next line")
				continue
			}
			log.Info("SIGHUP has no effect: logs go to standard error, and to syslog if asked for, so there are no files to reopen")
		case <-ctx.Done():
			return
		}
	}
}

// ParseFlags takes the arguments, the environment and the file of --config, and when help or
// the version is asked for, prints it to stdout; done says that the program has nothing else
// to do.
func ParseFlags(fs *flags.Set, args []string, getenv func(string) string, stdout io.Writer) (done bool, err error) {
	err = fs.ParseAll(args, getenv)
	switch {
	case errors.Is(err, flags.ErrHelp):
		_, err = io.WriteString(stdout, fs.Help())
		return true, err
	case errors.Is(err, flags.ErrVersion):
		_, err = io.WriteString(stdout, Build().String())
		return true, err
	case err == nil:
		err = fs.FromFile()
	}
	return err != nil, err
}

// WarnFlags says which names of flags are earlier ones, and which of the variables are no
// flag's.
func WarnFlags(fs *flags.Set, environ []string, log *slog.Logger) {
	if old := fs.Deprecated(); len(old) > 0 {
		log.Warn("flags have earlier names, which go on working", "flags", strings.Join(old, ", "))
	}
	for _, name := range fs.UnknownEnv(environ) {
		log.Warn("an environment variable has no effect", "variable", name, "why", "no flag has it: is it misspelt?")
	}
}
