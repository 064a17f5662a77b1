// Package aci keeps an ACI fabric as a Fabric says: app profiles, endpoint groups,
// contracts made of policies' rules, and the bindings to domain, paths and nodes;
// through the APIC's REST interface (APIC), or the gateway process of 1.x
// (Gateway). A Syncer does it over and over.
//
// It guarantees that only the difference to what the APIC has is written, after
// reading it anew each time, so that nothing that was begun and not finished is
// taken for done; that a change of a rule writes that rule's filter entry and
// nothing else; that what stays is there at every moment: what is added goes
// before what is taken away; that objects without its mark are neither changed
// nor deleted, nor lost with one that contains them; that every session is
// renewed before it ends and begun anew when it has ended; and that a password is
// in no error.
//
// It must not read the store, choose VLANs, or know who asks: who makes a Syncer
// gives it all of the Fabric.
package aci
