// Package policyapi is the conformance suite that sigs.k8s.io/network-policy-api has for
// ClusterNetworkPolicy, of the version that the module pins: its test is upstream's, on
// the cluster that KUBECONFIG names.
package policyapi
