// Package bpfattach holds eBPF programs to interfaces, by TCX links or by filters under
// clsact, and has the BPF file systems on which they outlive a process. It guarantees that
// programs and filters of others stay where they are. It must not load programs, or know what
// they do. It is called by the eBPF driver and hostservices. Start with Filter.
package bpfattach
