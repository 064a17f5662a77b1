// Package daemon is what every long-running program of ours needs around its
// work: flags with old spellings and environment variables, logging to stderr
// and syslog, signals and exit codes, HTTP serving with graceful shutdown,
// build information and debug endpoints.
//
// It guarantees that a bad flag or variable is refused with a sentence that
// names it, its value and what is allowed; that logging never blocks on the
// network; and that whatever it starts has ended when its stop function, Close
// or Serve returns.
//
// It must not know what the programs do, and imports only transport of this module.
package daemon
