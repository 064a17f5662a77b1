// Package controller keeps an ACI fabric in step with the store while this netmaster leads:
// at each change it compiles the cluster's objects to an aci.Fabric and gives it to an
// aci.Syncer. It guarantees no request unless the infrastructure type is aci or something
// may be left there, and no new comparison after the lead is lost. A group that cannot be
// in a fabric is reported, and affects nothing else. It must not choose VLANs, change
// objects, or know the fabric's protocol. It is called by cmd/netmaster, which tells it
// when it leads. Start with Controller.
package controller
