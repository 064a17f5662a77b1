// Package acitest simulates an APIC, with the part of its object model that concerns
// tenants, and the gateway of 1.x. It guarantees that it executes a request as a whole or
// not at all, refuses what the documented object model refuses, and reports all changes. It
// was never compared with a real APIC. It must not be imported outside of tests, or share
// anything with package aci: its classes come from the documents. It is called by the tests
// of package aci, its controller and netmaster. Start with APIC.
package acitest
