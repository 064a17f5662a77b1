package membership

// Enrolment admits members, hosts and accounts: it makes and checks their tokens, and signs
// their certificates.
type Enrolment struct {
	*local
	roster      *Roster
	authorities *Authorities
}
