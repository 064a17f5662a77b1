// Package upstream runs the tests that Kubernetes itself has for networks, e2e.test of
// the version that test/kube/kubernetes pins, on a cluster of test/kube/cluster, and
// keeps what came of each spec as a report in test/kube/reports.
//
// It guarantees that a spec which fails and is not in expected.json fails the run, that
// one of that list which passes fails it too, and that a report tells the commit, the
// date, and by a sum the code that it is of. Its test of age fails when that code is
// another one by now.
//
// It must not be imported by anything but tests, and knows no spec by itself.
package upstream
