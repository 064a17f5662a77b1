// Package netctl is the command line netctl: commands, flags, tables and JSON over the REST
// client of package api. Attach and detach use netplugin's socket. It guarantees the words,
// short forms, defaults and columns of netctl 1.x, exit codes that say what failed (see
// ExitOK), and that apply writes nothing unless all documents were read and netmaster
// accepted the list. It must not touch the process, whose streams it is given, or validate
// what netmaster validates. It is called by cmd/netctl. Start with Run.
package netctl
