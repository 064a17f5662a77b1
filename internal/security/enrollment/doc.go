// Package enrollment gets and renews a host's certificate: first by a one-time token or a
// service account, later by the certificate itself. It guarantees that the key never leaves
// the host, and that the token is shown only to the cluster that made it. After a kill at
// any moment the same command line goes on, and the directory has a whole certificate. It
// must not know etcd, or what the certificate is for. It is called by cmd/netplugin. Start
// with Join, then Keep.
package enrollment
