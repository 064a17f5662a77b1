// Package acitest simulates, for tests, what package aci talks to: an APIC with the part of
// its object model that concerns tenants, and the gateway process of 1.x.
//
// It guarantees:
//   - It keeps state, and does a request as a whole or not at all.
//   - It refuses what the documented object model refuses: unknown classes, properties,
//     queries and values, DNs of another class, objects without their parent, creation of
//     existing and changes of missing objects, expired sessions.
//   - It has the objects that the APIC makes by itself, in the form that the APIC writes.
//   - It reports all changes.
//
// Its table of classes is made from the documents and shares nothing with package aci. A
// client of other authors is tested against the APIC too. The gateway's only client is
// ours.
//
// It must only be imported by tests. It is not an APIC: it was compared with no real one.
package acitest
