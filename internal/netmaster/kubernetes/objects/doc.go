// Package objects holds Contiv's custom resources of contiv.io/v1alpha1: Tenant, Network,
// EndpointGroup, Policy and NetProfile, with their schemas and their translation to package
// model. It guarantees that a spec has the same fields as the REST object, parsed by
// package apiconv, and that its results do not rely on the API server's validation. It must
// not do I/O: no watch, no store. It is called by the Kubernetes controller, mirror and
// status report, and by cmd/netmaster. Start with Kinds.
package objects
