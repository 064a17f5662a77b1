// Package httpguard stands before the handlers of a listener: it refuses requests that web
// pages made a browser send (CheckOrigin), and limits bodies, rates and requests of a
// client (Limiter). It guarantees refusals with a status and bounded sentences without
// control bytes, and bounded memory whatever addresses connect. It must not know a route,
// or more about a client than its address. It is called by every HTTP listener on TCP but
// those in docs/design/security.md. Start with CheckOrigin, Limiter and Refusal.
package httpguard
