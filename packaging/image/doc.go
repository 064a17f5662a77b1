// Command image makes an image of Contiv for containers' runtimes of the built
// programs alone: an archive that `docker load`, `ctr images import` and tools for
// OCI layouts take.
//
// It guarantees that the same programs, name and time make the same bytes. It asks no
// registry, no daemon and no network, and must not know what the programs do.
package main
