// Package model holds the validated values of the domain: names and keys, tenants,
// networks, groups, policies, rules, endpoints, hosts, identities, and the general policy
// that all data planes enforce. It guarantees that a value from a parser or accepted by
// Validate has the invariants written at its fields, and that every parser and String
// method form a round trip. It must not do I/O, know wire formats, or import other packages
// of this module. It is called by nearly every package of netmaster and netplugin. Start
// with Tenant, Network, Group and Endpoint.
package model
