// Command render makes the manifests of packaging/kubernetes of its chart, so that both
// are one source, and its tests hold the chart to Helm's own lint and template.
//
// It is a module of its own, since Helm is made of more than all else here.
package main
