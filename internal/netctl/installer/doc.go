// Package installer makes a machine that has the packages a host of a cluster, or the first
// one of a new cluster. It guarantees that a check changes nothing, and that nothing is
// changed while a check finds an error. It must not ask a netmaster for anything but the
// time. It is called by netctl. Start with Machine.Check.
package installer
