package jointoken

// RootsPath is where a host asks, with or without its certificate, whether what it trusts
// was renewed.
const RootsPath = "/join/v1/roots"

// Roots is the answer: no secret.
type Roots struct {
	Authorities []byte      `json:"authorities"` // PEM, the one that signs first
	Members     Fingerprint `json:"members"`     // of the authority that enrollment servers show
}
