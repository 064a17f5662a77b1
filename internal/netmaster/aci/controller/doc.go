// Package controller keeps the ACI fabric as the store says, while this netmaster leads: it
// makes an aci.Fabric of the cluster's objects, at each change of them, and gives it to
// an aci.Syncer.
//
// It guarantees that nothing is asked of a fabric unless the cluster's infrastructure
// type is aci, or something of the cluster may still be there; that a netmaster that
// leads no longer begins no further comparison; that a group that cannot be in a fabric
// is a problem told, and takes nothing else from it; and that how it fares is in the
// store, where every netmaster reads it.
//
// It must not choose VLANs, change objects, or know how a fabric is spoken to.
package controller
