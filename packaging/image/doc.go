// Command image makes a container image of the built programs and their licences alone, for
// several architectures, as an archive for `docker load`, `podman load`, `ctr images import`
// and tools for OCI layouts. The same programs, name and time make the same bytes. It uses no
// registry, daemon or network. `make image` and `make release` run it.
// Start with run.
package main
