// Package pki makes certificates for a cluster that has no authority of its own:
// an authority in a directory, certificates with a role, and their renewal, the
// authority's own included.
//
// It guarantees that keys are readable by their owner only, that a file has its
// whole old or its whole new contents, that nothing that is there is replaced but
// by Renew and RenewAuthority, and that a certificate which a renewed authority
// signed is accepted by who knows the former one only, and the other way round, in
// whatever order they are told.
//
// It must not open connections, nor know who checks a certificate.
package pki
