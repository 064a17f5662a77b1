// Package policyapi is the conformance suite of sigs.k8s.io/network-policy-api for
// ClusterNetworkPolicy, of the version that the module pins. It guarantees that its test is
// upstream's, on the cluster that KUBECONFIG names; a test goes on after a connection that
// is not as it is to be. It must not contain tests of ours. It is called by
// test/kube/upstream, for which tools/kube.sh builds it. Start with TestClusterNetworkPolicy.
package policyapi
