// Package pki makes certificates for a cluster that has no authority of its own: an
// authority in a directory, certificates with a role, and their renewal, including the
// authority's.
//
// It guarantees that keys are readable by their owner only, that a file has its whole old
// or its whole new contents, that existing files are replaced only by Renew and
// RenewAuthority, and that during the renewal of an authority certificates of the new and
// of the former one are both accepted, in whatever order hosts get them.
//
// It must not open connections, nor know who checks a certificate.
package pki
