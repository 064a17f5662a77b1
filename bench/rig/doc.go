// Package rig is what benchmarks measure on: hosts with a data plane and containers, without
// a control plane, in the network namespaces of a test cluster. It also builds the programs
// for benchmarks of whole clusters, and configures the stock bridge plugin beside them. It
// guarantees that no namespace, process or pinned map is left after Close. It must not run
// netplugin or netmaster, or change the machine's own network. It is called by the programs
// in bench. Start with New and One.
package rig
