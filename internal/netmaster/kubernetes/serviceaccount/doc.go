// Package serviceaccount tells of which node a pod's service account token is, so that
// netplugin's pod gets the certificate of that node's host without a secret of ours.
//
// It guarantees that a token counts only where the API server says that it is good now,
// made for the audience Audience, of the one service account that is to be let in, and
// bound to a pod that is on a node; and that no error or log line has a part of a token.
//
// TrustBundle has the authority of the netmasters, which such a pod is to trust, in a
// ConfigMap that the pod mounts.
//
// It must not believe anything that a token says of itself, nor keep one.
package serviceaccount
