// Package docker tests Contiv with real Docker engines on the hosts of a test cluster. It
// guarantees that it starts no service of the machine, and changes neither its network nor
// its iptables. It must not run without root and the packages of tools/deps.sh: its tests
// have the build tag integration. It is called by `make test-lab` and `make test-compose`.
// Start with TestEnginesRunContainersForTheirWholeLife.
package docker
