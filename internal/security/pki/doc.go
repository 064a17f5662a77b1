// Package pki makes certificates for a cluster without an authority of its own: an
// authority in a directory, certificates with a role, and their renewal. It guarantees keys
// that only their owner can read, whole files, that only Renew and RenewAuthority replace
// files, and that old and new certificates are both accepted while the authority is
// renewed. It must not open connections, or know who checks a certificate. It is called by
// `netctl pki`, netmaster's membership, enrollment, and checks of roles. Start with
// Authority.
package pki
