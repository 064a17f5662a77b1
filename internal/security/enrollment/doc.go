// Package enrollment gets and renews a host's certificate: the first by a one-time token,
// later ones by the certificate itself. The key is made on the host and never leaves it.
//
// It guarantees:
//   - The token is shown only to the cluster that made it.
//   - A kill at any moment leaves a directory with which the same command line goes on. A
//     process that reads the directory (transport.Directory) finds a whole certificate: the
//     new one or the previous one.
//   - Refusals name the remedy.
//
// It must not know etcd, nor what the certificate is for.
package enrollment
