// Command contivlab builds clusters of simulated hosts in network namespaces of
// one machine, shows what they do, and takes them down.
//
// It guarantees that everything it makes lies in namespaces and a directory of
// the lab's own, and that Ctrl-C, a failure, or `contivlab down` removes it.
//
// It must not change the machine's own links, routes, filters or sysctls.
package main
