// Package objects has the objects of Kubernetes in which Contiv's intent can be written:
// Tenant, Network, EndpointGroup, Policy and NetProfile of contiv.io/v1alpha1. It is the
// one source of their schemas (Definitions), from which the manifests are made, and says
// in values of model what they mean.
//
// A spec is the object as the REST interface takes it, by the same names, so that there
// is one vocabulary and one parser (package apiconv). The package is pure, and trusts no API
// server to have validated what it reads.
package objects
