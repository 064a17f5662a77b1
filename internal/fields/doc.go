// Package fields says what each field of each object means and may hold, once: the REST
// reference (docs/user/fields.md), api/openapi.json, netctl's help and the schemas of
// Kubernetes' custom resources are made of it.
//
// It must not check values, and imports nothing: netctl links it.
package fields
