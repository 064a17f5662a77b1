// Package daemon is what every long-running program needs around its work: logging,
// signals, exit codes, HTTP serving with graceful shutdown, build information and debug
// endpoints. It guarantees that a bad flag is refused with its name, its value and what is
// allowed, that logging never blocks on the network, and that what it started has ended
// when its stop function, Close or Serve returns. It must not know what the programs do. It
// is called by the main functions of netmaster, netplugin and netctl. Start with Run.
package daemon
