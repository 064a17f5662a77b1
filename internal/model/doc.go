// Package model holds the validated values of the domain: names and keys,
// tenants, networks, endpoint groups, policies, rules, endpoints, hosts,
// identities, and the general policy model that all data planes enforce.
//
// It guarantees that a value obtained from one of its parsers or accepted by a
// Validate method satisfies the invariants written at its fields, and that
// every parser and String method form a round trip.
//
// It must not do I/O, must not know wire formats of any API, and imports no
// other package of this module.
package model
