// Package pkitest makes what internal/security/pki does not: certificates that have ended.
//
// It guarantees that what it makes differs from what the authority made by its times alone.
//
// It must not be imported by programs.
package pkitest
