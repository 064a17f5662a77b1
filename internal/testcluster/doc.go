// Package testcluster builds clusters of simulated hosts on one machine: network namespaces
// with a data plane and a netplugin each, a netmaster on a real store, and containers
// attached by the CNI library. It guarantees that everything lies in its own namespaces and
// directory, that it ends only its own processes, and that Down also removes what a killed
// run left. It must not touch the machine's links, routes, filters or sysctls, or wait by
// sleeping. It is called by contivlab, by the suites in test and by benchmarks. Start with
// Up and Lab.
package testcluster
