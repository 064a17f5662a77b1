package model

import "slices"

// Action is what a rule or a default does with a new connection. It is stored as its
// text.
type Action string

// The actions.
const (
	Allow Action = "allow"
	Deny  Action = "deny"
	Pass  Action = "pass" // leave the decision to the next tier
)

// Actions is how many there are.
const Actions = 3

// actions are all of them, in the order in which they decide among rules of one priority.
var actions = [Actions]Action{Deny, Pass, Allow}

// ParseAction parses a Contiv rule's action; Pass is not one of them.
func ParseAction(s string) (Action, error) { return parseEnum("action", s, Allow, Deny) }

func parseAnyAction(field string, a Action) (Action, error) {
	return parseEnum(field, string(a), Allow, Deny, Pass)
}

// IsKnown reports whether this version knows the action.
func (a Action) IsKnown() bool { return slices.Contains(actions[:], a) }

// Rank is the place of the action among rules of one priority: the lowest decides, from 0.
// What is no action denies, and ranks so.
func (a Action) Rank() int { return max(slices.Index(actions[:], a), 0) }

// Denies reports whether a connection ends with the action: what is no action denies.
func (a Action) Denies() bool { return a != Allow && a != Pass }
