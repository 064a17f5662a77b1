// Command scale measures a cluster of many hosts on one machine: netplugin's agents with
// the reference driver in one process, a real netmaster, a real etcd and one real
// netplugin. It adds and deletes endpoints by the API, and measures how long after the
// answer each agent's driver has the change. Every report has the sizes, the commit, the
// date and the machine's load, and counts the changes that never arrived. It does not
// change what an agent does. `make bench-scale` runs it. Start with run.
package main
