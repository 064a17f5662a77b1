// Package aci makes an ACI fabric what a Fabric says: app profiles, endpoint groups,
// contracts made of policies' rules, and the bindings to domain, paths and nodes. It uses
// the APIC's REST interface (APIC), or the gateway process of 1.x (Gateway). A Syncer
// repeats it.
//
// It guarantees:
//   - Only the difference is written, after reading the APIC each time: unfinished work of
//     an earlier run is never taken for done.
//   - A change of a rule writes only that rule's filter entry.
//   - Objects that stay exist at every moment: additions come before deletions.
//   - Objects without its mark are neither changed nor deleted, nor lost with a parent.
//   - Every session is renewed before it ends and replaced when it has ended.
//   - No error contains a password.
//
// It must not read the store, choose VLANs, or know who asks: the owner of a Syncer gives
// it the whole Fabric.
package aci
