// Package kubernetes holds the manifests and the chart with which Contiv is installed
// on a Kubernetes. The chart is the one source: the manifests are made of it.
//
// It has tests only.
package kubernetes

//go:generate go -C render run .
