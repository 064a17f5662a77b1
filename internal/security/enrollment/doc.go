// Package enrollment gives a host its certificate: by a one-time token at first, by the
// certificate itself before its end. The key is made on the host and never leaves it.
//
// It guarantees that the token is shown to nobody but the cluster that made it; that a
// kill at any moment leaves a directory with which the same command line goes on, and
// with which a process that reads it (transport.Directory) has a whole certificate or
// the former one; and that what is refused is told with what to do.
//
// It must not know etcd, nor what the certificate is for.
package enrollment
