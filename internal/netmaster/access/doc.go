// Package access authenticates the clients of netmaster's REST interface, and authorizes
// their requests. Packages below it keep tokens, check an issuer's tokens, and write the
// audit log. It guarantees that an undeclared capability is for cluster administrators
// only, that an unknown tenant or host refuses clients limited to some, and that a refusal
// names the reason and the role that may. It must not serve a route, read a request's path
// or body, or know the store. It is called by cmd/netmaster, which identifies clients, and
// its API server. Start with Identify and Identity.Authorize.
package access
