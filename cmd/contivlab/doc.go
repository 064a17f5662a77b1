// Command contivlab builds clusters of simulated hosts in network namespaces of one
// machine, shows what they do, and removes them. Everything that it makes lies in its own
// namespaces and one directory. Ctrl-C, a failure, or `contivlab down` removes it. It does
// not change the machine's own links, routes, filters or sysctls. Start with commands;
// package testcluster builds the cluster.
package main
