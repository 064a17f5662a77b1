// Command image makes a container image of the built programs alone, as an archive for
// `docker load`, `ctr images import` and tools for OCI layouts. The same programs, name and
// time make the same bytes. It uses no registry, daemon or network. `make image` runs it.
// Start with run.
package main
