// Package access says who the clients of netmaster's REST interface are, and decides
// what they may do. Identify finds a client's Identity, by a certificate or a bearer's
// token. Each route declares the Capability that it requires, and says of each request
// what Resource it is about; Identity.Authorize decides. Packages below it keep tokens,
// judge those of an issuer, limit clients and write the audit log.
//
// It guarantees that a Capability which nobody declared is for cluster admins alone, that
// a Resource of which tenants or hosts are not known is refused to who is limited to some,
// and that a refusal says why, and which role may.
//
// It must not serve a route, read a request's path, query or body, or know the store.
package access
