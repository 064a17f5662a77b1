// Command ledger keeps the chaos ledger: it kills one component at a time with
// SIGKILL, again and again, on a running lab with traffic and churn, and writes down
// what that cost: packets of established flows, refusals of the API, time of CNI ADD,
// and what is left behind. Each row is a report of its own (bench/results/ledger);
// docs/reliability.md is made of the reports.
//
// It guarantees that a row whose report is of the same code is not run again, that a
// report tells its commit, date, length and the machine's load, and that the page says
// which rows have not been run. It must not judge a figure by itself beyond what the
// row says is wanted.
package main
