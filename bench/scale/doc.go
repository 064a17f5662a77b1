// Command scale measures a cluster of many hosts on one machine: agents as netplugin
// has them, on the reference driver, all in one process of their own, beside a real
// netmaster, a real etcd and one real netplugin. Endpoints come and go by the API, and
// of every agent that has the network it is measured how long after the API's answer
// its driver has it, what the agent reads of the store for it, and what processor time
// and memory all of them take.
//
// It guarantees that a figure is of what has happened: what never arrived is counted
// beside the times, a rate that was not reached is told, and every report has its
// sizes, commit, date and the machine's load. It must not change what an agent does:
// its agents are followed by their driver and their connection to the store alone.
package main
