// Package kubetest decides what Kubernetes' policies should allow, by a simple evaluation
// of their specification, and makes random clusters to compare it with Contiv. It
// guarantees that it follows the text of the two policy APIs alone, on Kubernetes' own
// objects. It must not import anything of ours, or be imported outside of tests. It is
// called by the tests of package translate and by test/kube. Start with World.
package kubetest
