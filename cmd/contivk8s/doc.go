// Command contivk8s is the CNI plugin of Contiv: it hands what a container
// runtime asks for to netplugin. See docs/user/cni.md.
package main
