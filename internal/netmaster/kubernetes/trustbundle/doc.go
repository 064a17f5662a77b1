// Package trustbundle keeps the authorities of netmasters' certificates in a ConfigMap of
// Kubernetes, so that netplugins' pods get them by a volume.
//
// It guarantees that the ConfigMap has the file's contents a minute after a change, that it
// never replaces the trust bundle of another cluster (one that shares no certificate with
// the file), and that failures to write are reported with what to do.
//
// It must not create the ConfigMap (the right to create one is the right to create any),
// nor keep secrets in it.
package trustbundle
