// Package kubetest holds what Kubernetes' policies come to in Contiv against what their
// specifications say: a naive judge, and random clusters for it.
//
// It guarantees that the judge is written from the texts of the two APIs' types alone, on
// Kubernetes' own objects, and shares nothing with the translation.
//
// It is for tests only; it must not import anything of ours.
package kubetest
