// Package aci makes an ACI fabric match a Fabric: app profiles, endpoint groups, contracts
// and bindings, by the APIC's REST interface or by the gateway of 1.x. docs/design/aci.md
// explains it. It guarantees that it writes only the difference, adds before it deletes,
// changes nothing without its mark, and puts no password into an error. It must not read
// the store or choose VLANs: the caller gives it the whole Fabric. It is called by
// cmd/netmaster and the ACI controller. Start with Syncer.
package aci
