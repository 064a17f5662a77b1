// Package netctl is netctl: commands, their flags, tables and JSON, on top of the
// REST client of package api; attach and detach ask netplugin, by its socket.
//
// It guarantees the words, short forms, defaults and table columns of netctl
// 1.x; that a long flag works with one dash and with two, before and after
// positional arguments; that a message about a change is printed after the
// change was made; that the exit code tells what went wrong (see ExitOK and its
// neighbours); and that apply writes nothing unless all documents could be
// read and netmaster took the whole list.
//
// It must not touch the process: arguments, environment, streams and the exit
// are given to and taken from Run by cmd/netctl. It validates nothing that
// netmaster validates, except what is plainly a wrong use of the command line.
package netctl
