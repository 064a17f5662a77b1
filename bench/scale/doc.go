// Command scale measures a cluster of many hosts on one machine: netplugin's agents with
// the reference driver, all in one process, beside a real netmaster, a real etcd and one
// real netplugin. It adds and deletes endpoints by the API. For every agent that has the
// network it measures how long after the API's answer the agent's driver has the change. It
// also measures what agents read from the store, and the processor time and memory of all.
//
// It guarantees that figures describe real events: it counts what never arrived beside the
// times, reports a rate that was not reached, and writes sizes, commit, date and the
// machine's load into every report. It must not change what an agent does: it observes
// agents only by their driver and their connection to the store.
package main
