// Package durable writes files that outlive a crash of the machine: after one,
// a file has its old or its new contents, whole; after success, the new ones.
//
// It must not know what it writes, nor import anything but the standard
// library: contivk8s is made of it too.
package durable
