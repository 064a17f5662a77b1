// Command ledger keeps the chaos ledger: on a running test cluster with traffic and churn
// it kills one component at a time with SIGKILL, and records packet loss, API refusals, the
// time of CNI ADD and leftovers. Each row has a report in bench/results/ledger, from which
// it makes docs/reliability.md. It skips rows whose report is of the same code, and the
// page says which rows have not been run. It judges a figure only by the limit that its row
// states. `make chaos` runs it. Start with run.
package main
