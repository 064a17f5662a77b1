// Package serviceaccount finds the node of a pod's service account token, so that its host, or
// its netmaster, gets in without another secret. TrustBundle publishes netmaster's authority
// in a ConfigMap, by which Founder lets one netmaster found a cluster. It guarantees that a
// token counts only if the API server confirms it for our audience, the one service account
// and a pod on a node, and that a recorded cluster is the only one. No error or log line
// contains a token. It must not believe what a token says of itself, or keep one. It is
// called by cmd/netmaster. Start with Authenticator.
package serviceaccount
