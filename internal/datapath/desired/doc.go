// Package desired is the desired state of one host's data plane: data only, made by compile
// and enforced by a driver. It guarantees that a published Host never changes, and that
// comparing two costs only their difference, because they share their maps. It must not do
// I/O or know how any data plane works. It is called by compile, the drivers and netplugin.
// Start with Host.
package desired
