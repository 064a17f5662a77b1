package cli

// What has no effect in this version, in the words of model.NoEffect, which
// netctl does not link; a test compares them.
const (
	noteRouting     = "forwarding mode routing has no effect yet: hosts forward as in mode bridge, and networks do not reach each other"
	noteACI         = "infrastructure type aci has no effect yet: this version configures no ACI fabric, and hosts forward as with type default"
	noteOpflex      = "infrastructure type aci-opflex has no effect yet: this version configures no ACI fabric, and hosts forward as with type default"
	noteInfra       = "network type infra has no effect yet: hosts get no endpoint of their own on the network, which is like one of type data"
	noteNetworkTag  = "a network's tag is kept and shown, and has no other effect yet: no runtime gets a network of that name"
	noteGroupTag    = "a group's tag is kept and shown, and has no other effect yet: no runtime gets a network of that name"
	noteGroupNet    = "a group's net profile has no effect yet: hosts neither limit nor mark what its endpoints send"
	noteGroupExt    = "a group's external contracts have no effect yet: this version configures no ACI fabric"
	noteNetProfiles = "net profiles are kept and have no effect yet: hosts neither limit nor mark what endpoints send"
	noteServices    = "services are not served yet: names resolve to their addresses, but no host spreads connections over the providers, so that connections fail"
	noteAppProfiles = "app profiles are kept and have no effect yet: they are for ACI, and this version configures no ACI fabric"
	noteBgp         = "BGP settings are kept and have no effect yet: hosts run no router"
	noteContracts   = "external contracts are kept and have no effect yet: this version configures no ACI fabric"
	noteAciGw       = "the ACI gateway's settings are kept and have no effect yet: this version configures no ACI fabric"
)
