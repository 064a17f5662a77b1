// Package access authenticates the clients of netmaster's REST interface, and authorises
// their requests. Identify finds a client's Identity by a certificate or a bearer token.
// Each route declares the Capability that it requires, and returns the Resource of each
// request; Identity.Authorize decides. Packages below it keep tokens, check an issuer's
// tokens, limit clients and write the audit log.
//
// It guarantees that an undeclared Capability is for cluster administrators only; that a
// Resource with unknown tenants or hosts is refused to clients limited to some; and that a
// refusal names the reason and the role that may.
//
// It must not serve a route, read a request's path, query or body, or know the store.
package access
