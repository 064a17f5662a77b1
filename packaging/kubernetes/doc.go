// Package kubernetes holds the manifests and the Helm chart that install Contiv on
// Kubernetes. It guarantees by its test that the manifests are made from the chart as it
// is. It must not hold code: the module render makes the manifests. It is called by `go
// generate`, which runs render, and by `go test`. Start with chart/values.yaml.
package kubernetes

//go:generate sh -c "sed -i -E \"s/^(version|appVersion): .*/\\1: $(cat ../../VERSION)/\" chart/Chart.yaml"
//go:generate go -C render run .
