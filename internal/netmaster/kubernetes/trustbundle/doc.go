// Package trustbundle keeps the authority that netmasters show to who joins in a ConfigMap of
// Kubernetes, so that netplugins' pods get it by a volume.
//
// It guarantees that what the ConfigMap has is the file's a minute after that has changed;
// that the anchor of another cluster, which shares no certificate with the file, is never
// replaced; and that what keeps it from writing is told with what to do.
//
// It must not make the ConfigMap (whoever may make one may make any), nor keep anything in
// it that is secret.
package trustbundle
