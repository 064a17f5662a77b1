// Package fields describes each field of each API object once: the REST reference
// (docs/reference/fields.md), api/openapi.json, netctl's help and the schemas of Kubernetes'
// custom resources are made from it. It guarantees one text for a field in all these
// places. It must not check values or import anything, since netctl links it. It is called
// by netctl, netmaster's API server and package objects of Kubernetes. Start with Field.
package fields
