package membership

// Roster lists and removes members, and decides whether a member may vote.
type Roster struct {
	*local
	health *Health
}
