package driver

// Why packets are dropped; also the keys of Stats.Drops.
const (
	DropNoPort        = "unknown-port"        // from a port that is not programmed
	DropNetwork       = "unknown-network"     // tunnel or tag of no network of ours
	DropSpoof         = "spoof"               // sender is not who it says
	DropUnknownSource = "unknown-source"      // VXLAN: no endpoint is known at the source address
	DropUnknownDest   = "unknown-destination" // no endpoint has the destination MAC, or it is not resolved
	DropPolicy        = "policy"              // a rule, or a tier's default, denied it
	DropInvalid       = "invalid"             // damaged, or answer to nothing: reply, error or fragment without its first
	DropNotIP         = "not-ip"              // neither ARP nor IP
	DropTooBig        = "too-big"             // it does not fit the path, which its sender was told; the reference has no MTU
	DropTTL           = "ttl"                 // routed to another network with no hop left, which its sender was told
	DropNoProvider    = "no-provider"         // to a service without a backend for it; the sender got an error
)

// DropReasons are all of them: counters of each begin with zero.
var DropReasons = []string{
	DropNoPort, DropNetwork, DropSpoof, DropUnknownSource, DropUnknownDest, DropPolicy, DropInvalid, DropNotIP, DropTooBig, DropTTL, DropNoProvider,
}
