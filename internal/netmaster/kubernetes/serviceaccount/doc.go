// Package serviceaccount finds the node of a pod's service account token, so that
// netplugin's pod gets its host's certificate without another secret. TrustBundle publishes
// netmaster's authority to such pods in a ConfigMap. It guarantees that a token counts only
// if the API server confirms it for our audience, the one service account and a pod on a
// node. No error or log line contains a token. It must not believe what a token says of
// itself, or keep one. It is called by cmd/netmaster. Start with Authenticator.
package serviceaccount
