// Command render makes the manifests of packaging/kubernetes from its chart. Its tests
// check the chart by Helm's own lint and template. It is a module of its own, because Helm
// brings in more code than everything else here. `go generate ./packaging/kubernetes` runs
// it. Start with run.
package main
