// Command contivk8s is the CNI plugin of Contiv: it passes a container runtime's request to
// netplugin. See docs/how-to/cni.md. Start with main, which calls package cni in
// internal/netplugin/runtimes.
package main
