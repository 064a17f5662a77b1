package netctl

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// Exit codes of netctl; scripts rely on them.
const (
	ExitOK          = 0
	ExitFailure     = 1 // the request was refused (bad value) or failed otherwise
	ExitUsage       = 2 // the command line is wrong; nothing was sent
	ExitNotFound    = 3 // an object that the command names does not exist
	ExitConflict    = 4 // in use, immutable, taken, exhausted
	ExitUnavailable = 5 // no netmaster (attach: no netplugin) answers, or its store is away: try again later
	ExitDiffers     = 6 // diff, plan: something differs; nothing went wrong
	ExitUnhealthy   = 7 // status, doctor, verify: the cluster answers, and there are problems; install --check: the machine has some
	ExitDenied      = 8 // can: not all that was asked for is allowed; trace: the packet did not arrive; assertion test: not all hold; nothing went wrong
)

// exitMeanings says when netctl exits with each code.
var exitMeanings = [...]string{
	ExitOK:          "done",
	ExitFailure:     "netmaster refused the request, or it failed otherwise",
	ExitUsage:       "the command line is wrong; nothing was sent",
	ExitNotFound:    "an object that the command names does not exist",
	ExitConflict:    "conflict: in use, immutable, taken, exhausted, or contradicting what exists",
	ExitUnavailable: "no netmaster (attach, detach: no netplugin) answers, or it cannot reach its store: try again later",
	ExitDiffers:     "diff found differences; plan and --plan: something would change",
	ExitUnhealthy:   "status, doctor, verify: the cluster answers, and there are problems; install --check: the machine fails a check",
	ExitDenied:      "can: not all that was asked for is allowed; trace: the packet did not arrive; assertion test: not all assertions hold",
}

// errDenied makes can and assertion test exit with ExitDenied, errNotArrived trace.
var (
	errDenied     = errors.New("not all of it is allowed, or holds")
	errNotArrived = errors.New("the packet was not seen where it leads, and not answered")
)

// errDiffers makes diff exit with ExitDiffers.
var errDiffers = errors.New("there are differences")

func exitCode(err error) int {
	if e, ok := errors.AsType[*agentError](err); ok {
		return e.exitCode()
	}
	switch _, usage := errors.AsType[*flags.UsageError](err); {
	case err == nil:
		return ExitOK
	case errors.Is(err, errDiffers):
		return ExitDiffers
	case errors.Is(err, errUnhealthy):
		return ExitUnhealthy
	case errors.Is(err, errDenied), errors.Is(err, errNotArrived):
		return ExitDenied
	case isOtherServer(err):
		return ExitUnavailable
	case usage:
		return ExitUsage
	case api.IsNotFound(err):
		return ExitNotFound
	case api.IsConflict(err):
		return ExitConflict
	case api.IsUnavailable(err), errors.Is(err, context.DeadlineExceeded):
		return ExitUnavailable
	}
	return ExitFailure
}

// isOtherServer reports whether the answer comes from a server that is no netmaster, such as
// etcd. Netmaster's own refusals are sentences.
func isOtherServer(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.Status == http.StatusNotFound && e.Message == "404 page not found"
}

// message is what a person reads about err.
func message(err error) string {
	if u, ok := errors.AsType[*api.UnreachableError](err); ok {
		if remedy := transport.Remedy(u.Err); remedy != "" {
			if _, unknown := errors.AsType[x509.UnknownAuthorityError](u.Err); unknown {
				remedy += ", or log in with it: netctl --netmaster URL login --token --ca-file ca.crt"
			}
			return fmt.Sprintf("netmaster at %s is there, but %s (%v)", strings.Join(u.URLs, ", "), remedy, u.Err)
		}
		return fmt.Sprintf("no netmaster answers at %s (%v); start one there, or name another with --netmaster URL or the environment variable NETMASTER",
			strings.Join(u.URLs, ", "), u.Err)
	}
	if isOtherServer(err) {
		return "no netmaster answers there: what does, does not know the path (404 page not found); look at --netmaster URL or the environment variable NETMASTER: netmaster's port is " + api.DefaultPort
	}
	if e, ok := errors.AsType[*api.Error](err); ok && e.Status == http.StatusBadRequest && strings.Contains(e.Message, "HTTP request to an HTTPS server") { // net/http's words
		return "netmaster speaks TLS there: ask it at https://, with a certificate (--tls-dir) or a token (netctl login --token)"
	}
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	if e, ok := errors.AsType[*api.Error](err); ok && e.Kind == "" && e.Message == "404 page not found" {
		return "netmaster does not answer there, but something else, which says: " + e.Message + "; name netmaster's URL with --netmaster or the environment variable NETMASTER"
	}
	return err.Error()
}
