// Package acitest simulates, for tests, what package aci talks to: an APIC with the
// part of its object model that concerns tenants, and the gateway process of 1.x.
//
// It guarantees that state is kept; that a request is done as a whole or not at
// all; that what the documented object model refuses is refused: unknown classes,
// properties, queries and values, DNs that are not of their class, objects without
// their parent, objects made twice or changed when they do not exist, sessions that
// have ended; that what the APIC makes by itself and writes in another way is there
// in that way; and that all changes are told. Its table of classes is made from the
// documents and shares nothing with package aci; a client that is not ours is
// tested against the APIC too. The gateway has no other client than ours.
//
// It must not be imported but by tests. It is not an APIC: no real one was compared.
package acitest
