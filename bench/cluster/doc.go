// Command cluster measures whole test clusters: netmaster on a real etcd, hosts with real
// data planes, and containers attached by the CNI library. It writes the machine, the
// command and the date beside each figure, and the figure of 1.x where one is known. It
// measures nothing outside the test cluster's own namespaces. `make bench-cluster` runs it;
// bench/README.md lists its sections. Start with run.
package main
